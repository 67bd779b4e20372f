//! What topologies show about one host.

use crate::cluster::CpuVendor;
use crate::cluster::facts::LinkKind;
use crate::cluster::hardware::{GpuProduct, HARDWARE, Pcie};
use busbw_model::{GBps, PathType, Run, SystemDump};

/// What is known about a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::cluster) struct HostClues {
    /// GPUs in it; 0 where no topology lists them.
    pub(super) gpus: usize,
    /// What the number of the PCI device says.
    pub(super) product: Option<&'static GpuProduct>,
    /// Compute capability: 90.
    pub(super) capability: Option<i32>,
    /// NVLinks of one GPU.
    pub(super) nvlinks: Option<u32>,
    pub(super) kind: Option<LinkKind>,
    /// The worst PCIe path between two GPUs that no NVLink joins.
    pub(super) path: Option<PathType>,
    pub(super) gpu_pcie: Option<Pcie>,
    pub(super) nics: Option<usize>,
    pub(super) nic_rate: Option<GBps>,
    /// The path from a NIC to its nearest GPU.
    pub(super) place: Option<PathType>,
    pub(super) nic_pcie: Option<Pcie>,
    pub(super) gpu_direct: Option<bool>,
    pub(super) cpu: Option<CpuVendor>,
    pub(super) sockets: Option<usize>,
}

impl HostClues {
    /// These clues, and where they say nothing the others.
    pub(super) fn or(self, other: HostClues) -> HostClues {
        HostClues {
            gpus: if self.gpus > 0 { self.gpus } else { other.gpus },
            product: self.product.or(other.product),
            capability: self.capability.or(other.capability),
            nvlinks: self.nvlinks.or(other.nvlinks),
            kind: self.kind.or(other.kind),
            path: self.path.or(other.path),
            gpu_pcie: self.gpu_pcie.or(other.gpu_pcie),
            nics: self.nics.or(other.nics),
            nic_rate: self.nic_rate.or(other.nic_rate),
            place: self.place.or(other.place),
            nic_pcie: self.nic_pcie.or(other.nic_pcie),
            gpu_direct: self.gpu_direct.or(other.gpu_direct),
            cpu: self.cpu.or(other.cpu),
            sockets: self.sockets.or(other.sockets),
        }
    }
}

impl HostClues {
    /// Where rings take PCIe, NVLinks join a part of the GPUs at most.
    pub(super) fn on_rings(mut self, run: &Run) -> HostClues {
        let crosses = graphs(run).path.is_some_and(|path| path >= PathType::Pix);
        if crosses && self.kind == Some(LinkKind::Mesh) {
            self.kind = Some(LinkKind::Bridge);
        }
        self
    }
}

/// NCCL's dump of a machine: `+ NET[25.0] - NET/0`, `+ NVL[264.0] - NVS/0`. A NIC's figure is its rate
/// (`src/graph/topo.cc` of NCCL 2.30 divides Mbit/s by 8000).
pub(super) fn dump(dump: &SystemDump) -> HostClues {
    let of_kind = |kind: &'static str| dump.nodes.iter().filter(move |node| node.device.starts_with(kind));
    let mut names: Vec<&str> = of_kind("GPU/").map(|node| node.device.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let switched = of_kind("NVS").next().is_some();
    let meshed = dump.nodes.iter().any(|node| node.link == "NVL");
    let mut nets: Vec<&str> = of_kind("NET/").map(|node| node.device.as_str()).collect();
    nets.sort_unstable();
    nets.dedup();
    let rate = of_kind("NET/").filter_map(|node| node.bw_gbs).reduce(f64::max);
    let switch = dump.nodes.iter().find(|node| node.link == "NVL" && node.device.starts_with("NVS"));
    let links = switch.and_then(|node| links_at(node.bw_gbs?));
    let mut devices = dump.nodes.iter().filter_map(|node| node.detail.as_deref()?.strip_prefix(NVIDIA)?.get(..4));
    HostClues {
        gpus: names.len(),
        product: devices.find_map(|number| HARDWARE.gpu_of_device(number)),
        capability: links.map(|(_, capability)| capability),
        nvlinks: links.map(|(count, _)| count),
        cpu: of_kind("CPU/").find_map(|node| vendor(node.detail.as_deref()?)),
        kind: if switched { Some(LinkKind::NvSwitch) } else { meshed.then_some(LinkKind::Mesh) },
        nics: (!nets.is_empty()).then_some(nets.len()),
        nic_rate: rate.map(GBps),
        ..HostClues::default()
    }
}

/// NVIDIA's number among PCI's vendors.
const NVIDIA: &str = "10de";

/// The links and the compute capability of a GPU whose NVLinks to switches NCCL counts as so much: 370.8 GB/s are 18 links of
/// 20.6 (`src/graph/topo.h`).
fn links_at(bandwidth: f64) -> Option<(u32, i32)> {
    const PER_LINK: [(f64, i32); 3] = [(40.1, 100), (20.6, 90), (20.0, 80)];
    PER_LINK.iter().find_map(|(per_link, capability)| {
        let links = (bandwidth / per_link).round();
        ((1.0..=18.0).contains(&links) && (links * per_link - bandwidth).abs() < 0.05)
            .then_some((links as u32, *capability))
    })
}

/// `1/2/-1`: architecture, vendor and model of a processor.
fn vendor(detail: &str) -> Option<CpuVendor> {
    match detail.split('/').collect::<Vec<_>>()[..] {
        ["1", "1", _] => Some(CpuVendor::Intel),
        ["1", "2", _] => Some(CpuVendor::Amd),
        ["2", ..] => Some(CpuVendor::Power),
        ["3", ..] => Some(CpuVendor::Arm),
        _ => None,
    }
}

/// The worst paths of NCCL's graphs: of its rings where there are any.
pub(super) fn graphs(run: &Run) -> HostClues {
    let logged = run.nccl.patterns.iter().map(|graph| (graph.pattern, &graph.type_intra, &graph.type_inter));
    let dumped = run.graph_xmls.iter().flat_map(|xml| &xml.graphs);
    let dumped = dumped.map(|graph| (graph.pattern, &graph.type_intra, &graph.type_inter));
    const RING: i32 = 4;
    let Some((_, intra, inter)) = logged.chain(dumped).min_by_key(|graph| (graph.0 != RING) as u8) else {
        return HostClues::default();
    };
    let path = |name: &Option<String>| name.as_deref().and_then(PathType::from_cell);
    HostClues { path: path(intra), place: path(inter), ..HostClues::default() }
}
