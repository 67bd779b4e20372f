//! What connects the devices of one machine: the matrix of `nvidia-smi topo -m`, NCCL's topology XML, NCCL's dump.

use crate::place::Place;
use std::cmp::{Ordering, Reverse};
use std::fmt;

/// The kind of path between two devices, as `nvidia-smi topo -m` names it. Ordered from nearest to farthest: fewer NVLinks are
/// farther.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathType {
    /// `X`: the device itself.
    Same,
    /// `NV#`: a bonded set of that many NVLinks.
    NvLink(u8),
    /// `PIX`: at most one PCIe bridge.
    Pix,
    /// `PXB`: several PCIe bridges, no host bridge.
    Pxb,
    /// `PHB`: a PCIe host bridge (the CPU).
    Phb,
    /// `NODE`: the link between host bridges of one NUMA node.
    Node,
    /// `SYS`: the link between NUMA nodes (UPI, Infinity Fabric).
    Sys,
}

impl PathType {
    /// Reads a cell of the matrix; `None` for anything that is no path (an affinity, `N/A`).
    ///
    /// ```
    /// use busbw_model::PathType;
    /// assert_eq!(PathType::from_cell("NV18"), Some(PathType::NvLink(18)));
    /// assert_eq!(PathType::from_cell("0-63"), None);
    /// assert!(PathType::NvLink(18) < PathType::NvLink(12) && PathType::NvLink(1) < PathType::Pix);
    /// ```
    pub fn from_cell(cell: &str) -> Option<Self> {
        Some(match cell {
            "X" => PathType::Same,
            "PIX" => PathType::Pix,
            "PXB" => PathType::Pxb,
            "PHB" => PathType::Phb,
            "NODE" => PathType::Node,
            "SYS" | "SOC" => PathType::Sys, // SOC: the name of SYS in drivers before R384
            _ => PathType::NvLink(cell.strip_prefix("NV")?.parse().ok()?),
        })
    }

    fn distance(self) -> (u8, Reverse<u8>) {
        match self {
            PathType::Same => (0, Reverse(0)),
            PathType::NvLink(links) => (1, Reverse(links)),
            PathType::Pix => (2, Reverse(0)),
            PathType::Pxb => (3, Reverse(0)),
            PathType::Phb => (4, Reverse(0)),
            PathType::Node => (5, Reverse(0)),
            PathType::Sys => (6, Reverse(0)),
        }
    }
}

impl Ord for PathType {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance().cmp(&other.distance())
    }
}

impl PartialOrd for PathType {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for PathType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathType::Same => f.pad("X"),
            PathType::NvLink(links) => f.pad(&format!("NV{links}")),
            PathType::Pix => f.pad("PIX"),
            PathType::Pxb => f.pad("PXB"),
            PathType::Phb => f.pad("PHB"),
            PathType::Node => f.pad("NODE"),
            PathType::Sys => f.pad("SYS"),
        }
    }
}

/// Whether a device of the matrix is a GPU or a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// `GPU0` …
    Gpu,
    /// `NIC0` … or `mlx5_0`, `hfi1_0`, `rocep…` directly.
    Nic,
}

/// A row or column of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopoDevice {
    /// `GPU0`, `NIC3`, or the HCA's own name in older output.
    pub name: String,
    /// GPU or NIC.
    pub kind: DeviceKind,
    /// The HCA behind `NIC3`, from the `NIC Legend`.
    pub hca: Option<String>,
    /// `CPU Affinity`: `0-63,128-191`.
    pub cpu_affinity: Option<String>,
    /// `NUMA Affinity`: `0` or `0-1`.
    pub numa_affinity: Option<String>,
}

/// A matrix of `nvidia-smi topo -m`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopoMatrix {
    /// The header line.
    pub place: Place,
    /// Devices in the order of the columns.
    pub devices: Vec<TopoDevice>,
    /// `paths[row][column]` by index into `devices`; `None` where the output was cut or the cell is no path.
    pub paths: Vec<Vec<Option<PathType>>>,
}

impl TopoMatrix {
    /// The path between two devices by name (`GPU0`, `NIC1` or the HCA's name), in either direction.
    pub fn path(&self, a: &str, b: &str) -> Option<PathType> {
        let index = |name: &str| self.devices.iter().position(|d| d.name == name || d.hca.as_deref() == Some(name));
        let (a, b) = (index(a)?, index(b)?);
        let cell = |row: usize, column: usize| self.paths.get(row).and_then(|r| r.get(column)).copied().flatten();
        cell(a, b).or_else(|| cell(b, a))
    }

    /// The devices of one kind.
    pub fn of_kind(&self, kind: DeviceKind) -> impl Iterator<Item = &TopoDevice> {
        self.devices.iter().filter(move |d| d.kind == kind)
    }
}

/// A topology XML of NCCL (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`): `<system version="1">`, read as NCCL's
/// `src/graph/xml.cc` does. Attributes that were absent are `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlTopology {
    /// The `<system>` line.
    pub place: Place,
    /// The NUMA nodes.
    pub cpus: Vec<XmlCpu>,
}

/// `<cpu>`: a NUMA node and the PCI tree below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlCpu {
    /// `numaid`.
    pub numa_id: Option<i32>,
    /// `host_hash`, in fused topologies of several hosts.
    pub host_hash: Option<String>,
    /// `affinity` mask as written.
    pub affinity: Option<String>,
    /// `arch`: `x86_64`, `arm64`, `ppc64`.
    pub arch: Option<String>,
    /// `vendor`: `GenuineIntel`, `AuthenticAMD`.
    pub vendor: Option<String>,
    /// `familyid`.
    pub family_id: Option<i32>,
    /// `modelid`.
    pub model_id: Option<i32>,
    /// PCI devices directly below the CPU.
    pub pcis: Vec<XmlPci>,
    /// `<nic>` entries directly below the CPU (NICs without a PCI address).
    pub nics: Vec<XmlNic>,
}

/// `<pci>`: a bridge or a device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlPci {
    /// `busid`: `0000:0f:00.0`.
    pub bus_id: String,
    /// `class`: `0x060400` bridge, `0x030200` GPU, `0x020000`/`0x020700` Ethernet/InfiniBand.
    pub class: Option<String>,
    /// GT/s per lane from `link_speed` ("16 GT/s", "32.0 GT/s PCIe"); `None` when empty or unreadable (virtual machines).
    pub link_speed_gts: Option<f64>,
    /// Lanes from `link_width`; `None` when empty or 0.
    pub link_width: Option<u32>,
    /// Devices behind this bridge.
    pub children: Vec<XmlPci>,
    /// The GPU at this address.
    pub gpu: Option<XmlGpu>,
    /// The NIC at this address.
    pub nics: Vec<XmlNic>,
}

/// `<gpu>`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlGpu {
    /// `dev`: device index.
    pub dev: Option<i32>,
    /// `sm`: compute capability, `90`.
    pub sm: Option<i32>,
    /// `rank`.
    pub rank: Option<i32>,
    /// `gdr`: whether GPUDirect RDMA is possible.
    pub gdr: Option<bool>,
    /// NVLinks: target bus id (or `fffffff:ffff:ff` for an NVSwitch) and count.
    pub nvlinks: Vec<(String, u32)>,
}

/// `<nic>` with its `<net>` ports.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlNic {
    /// The ports.
    pub nets: Vec<XmlNet>,
}

/// `<net>`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlNet {
    /// `name`: `mlx5_0`.
    pub name: Option<String>,
    /// `dev`: index that `NET/IB/N` refers to.
    pub dev: Option<i32>,
    /// `speed` in Mbit/s.
    pub speed_mbps: Option<u64>,
    /// `port`.
    pub port: Option<i32>,
    /// `guid`.
    pub guid: Option<String>,
    /// `gdr`.
    pub gdr: Option<bool>,
}

impl XmlTopology {
    /// Every PCI device, bridges before what is behind them.
    pub fn all_pcis(&self) -> Vec<&XmlPci> {
        self.spots().into_iter().map(|spot| spot.device).collect()
    }

    /// Every PCI device with its place, bridges before what is behind them.
    pub fn spots(&self) -> Vec<PciSpot<'_>> {
        let mut found = Vec::new();
        for (cpu, of_cpu) in self.cpus.iter().enumerate() {
            let mut next: Vec<(Vec<&str>, &XmlPci)> = of_cpu.pcis.iter().map(|pci| (Vec::new(), pci)).rev().collect();
            while let Some((bridges, pci)) = next.pop() {
                let below: Vec<&str> = bridges.iter().copied().chain([pci.bus_id.as_str()]).collect();
                next.extend(pci.children.iter().rev().map(|child| (below.clone(), child)));
                found.push(PciSpot { cpu, bridges, device: pci });
            }
        }
        found
    }
}

/// A PCI device and where it hangs.
#[derive(Debug, Clone)]
pub struct PciSpot<'a> {
    /// Index of its CPU.
    pub cpu: usize,
    /// Bus ids of the bridges above it, from the top.
    pub bridges: Vec<&'a str>,
    /// The device.
    pub device: &'a XmlPci,
}

impl PciSpot<'_> {
    /// The path to another device, in the words of `nvidia-smi topo -m`.
    pub fn path(&self, other: &PciSpot) -> PathType {
        if self.cpu != other.cpu {
            return PathType::Sys;
        }
        let shared = self.bridges.iter().zip(&other.bridges).take_while(|(a, b)| a == b).count();
        match (shared, self.bridges.len().max(other.bridges.len()) - shared) {
            (0, _) => PathType::Phb,
            (_, 0) => PathType::Pix,
            _ => PathType::Pxb,
        }
    }
}

impl XmlPci {
    /// Whether it is a GPU: PCI classes 0x0300 and 0x0302 are display controllers.
    pub fn is_gpu(&self) -> bool {
        self.gpu.is_some() || self.class.as_deref().is_some_and(|class| class.starts_with("0x03"))
    }

    /// Whether it is a NIC: PCI classes 0x0200 and 0x0207 are network controllers.
    pub fn is_nic(&self) -> bool {
        !self.nics.is_empty() || self.class.as_deref().is_some_and(|class| class.starts_with("0x02"))
    }
}

/// A graph XML of NCCL (`NCCL_GRAPH_FILE`, `NCCL_GRAPH_DUMP_FILE`): `<graphs version="1">`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlGraphs {
    /// The `<graphs>` line.
    pub place: Place,
    /// One entry per `<graph>`.
    pub graphs: Vec<XmlGraph>,
}

/// `<graph>`: the channels found for one pattern.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlGraph {
    /// `id`: 0 ring, 1 tree, 2 CollNet, 3 NVLS (`src/graph/graph.h` of NCCL 2.19 and later).
    pub id: i32,
    /// `pattern`: 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct.
    pub pattern: i32,
    /// `nchannels`.
    pub channels: u32,
    /// `speedintra`, GB/s per channel.
    pub speed_intra: Option<f64>,
    /// `speedinter`, GB/s per channel.
    pub speed_inter: Option<f64>,
    /// `typeintra`: NVL, PIX, SYS …
    pub type_intra: Option<String>,
    /// `typeinter`.
    pub type_inter: Option<String>,
    /// GPU device indices per channel, in order.
    pub gpu_orders: Vec<Vec<i32>>,
}

/// NCCL's own dump of a machine (`=== System : maxBw 24.0 totalBw 24.0 ===`, subsystem GRAPH).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SystemDump {
    /// The `=== System` line.
    pub place: Place,
    /// The fastest link, GB/s.
    pub max_bw: Option<f64>,
    /// What one GPU can send in all, GB/s.
    pub total_bw: Option<f64>,
    /// The tree, one entry per line.
    pub nodes: Vec<SystemNode>,
}

/// One line of NCCL's dump: `+ PCI[24.0] - GPU/B000 (0)`.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemNode {
    /// Nesting depth: 0 for a CPU.
    pub depth: u32,
    /// The link leading here: `PCI`, `NVL`, `NET`, `SYS`; empty for a CPU.
    pub link: String,
    /// Bandwidth of that link, GB/s.
    pub bw_gbs: Option<f64>,
    /// The device: `GPU/B000`, `NIC/…`, `CPU/0`, `NET/0`.
    pub device: String,
    /// What follows in parentheses: of a CPU its architecture, vendor and model (`1/2/-1`), of a PCI device its numbers
    /// (`10de20b510de1533`).
    pub detail: Option<String>,
}
