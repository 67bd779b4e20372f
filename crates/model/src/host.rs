//! Facts about a host that commands of the system tell: `ibstat`, `lspci`, `nvidia-smi`, `ulimit`, `dmesg` and their like.

use crate::place::SourceLine;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One fact, and the line that tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFact {
    /// The host, where a shell prompt, a launcher's label or the command's output names it.
    pub host: Option<String>,
    /// What it is about: `mlx5_0`, `mlx5_0/1` (port 1), `eth0`, `0000:17:00.0`, `GPU 0`; empty for the host itself.
    pub device: String,
    /// The fact.
    pub fact: Fact,
    /// The command whose output has this form.
    pub tool: HostTool,
    /// The line.
    pub source: SourceLine,
}

/// A fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Logical state of an HCA's port: `Active`, `Down`, `Init`, `Armed`.
    PortState(String),
    /// Physical state: `LinkUp`, `Polling`, `Disabled`.
    PhysicalState(String),
    /// Rate of a port in Gbit/s.
    RateGbps(f64),
    /// InfiniBand or Ethernet (RoCE).
    LinkLayer(LinkLayer),
    /// MTU in bytes that the port uses.
    ActiveMtu(u32),
    /// The largest MTU that it could use.
    MaxMtu(u32),
    /// Firmware.
    Firmware(String),
    /// The network interface of an HCA's port, and whether it is up.
    Interface {
        /// `ens1f0np0`.
        name: String,
        /// Up.
        up: bool,
    },
    /// An entry of the GID table.
    Gid {
        /// Index: NCCL_IB_GID_INDEX.
        index: u32,
        /// The GID.
        gid: String,
        /// IPv4 address inside it, where there is one.
        ipv4: Option<String>,
        /// 1 or 2: RoCE v1 or v2; none for InfiniBand.
        roce_version: Option<u32>,
        /// Network interface.
        interface: Option<String>,
    },
    /// PCIe link as it is.
    PcieLink(PcieLink),
    /// PCIe link as it could be.
    PcieCapability(PcieLink),
    /// ACS redirects peer-to-peer traffic to the CPU (`ACSCtl` with `SrcValid+`, `ReqRedir+` or `CmpltRedir+`).
    AcsRedirects(bool),
    /// NVIDIA driver.
    Driver(String),
    /// CUDA version that the driver supports.
    CudaDriver(String),
    /// Name of a GPU.
    GpuName(String),
    /// State of the NVLink fabric: `Completed`, `In Progress`, `Not Started`.
    FabricState(String),
    /// Status of the NVLink fabric: `Success`, or an error.
    FabricStatus(String),
    /// Rate of an NVLink in GB/s; none where the link is inactive.
    NvLink {
        /// The link.
        link: u32,
        /// GB/s.
        rate_gbs: Option<f64>,
    },
    /// What peer access between two GPUs is: `OK`, `CNS` (chipset not supported), `NS` …, for reads, writes, NVLink, atomics
    /// or PCIe (`nvidia-smi topo -p2p`).
    PeerAccess {
        /// The other GPU.
        to: String,
        /// As printed.
        status: String,
    },
    /// A limit of the shell or process; `None` is unlimited.
    Limit {
        /// Which.
        limit: Limit,
        /// The soft limit: bytes, or a count of files or processes.
        soft: Option<u64>,
    },
    /// Size of /dev/shm in bytes.
    SharedMemory {
        /// Bytes in all.
        size: u64,
        /// Bytes left.
        free: Option<u64>,
    },
    /// An Xid error of a GPU in the kernel's log.
    Xid {
        /// Its number: 79 is a GPU that fell off the bus, 74 an NVLink error, 48 a double-bit ECC error.
        code: u32,
        /// What follows.
        text: String,
    },
    /// An error of PCIe's error reporting (AER).
    PcieError {
        /// Whether the device corrected it.
        corrected: bool,
        /// The message.
        text: String,
    },
    /// A message of an NIC's driver (`mlx5_core …`) that tells of trouble or of the link.
    NicMessage(String),
    /// A process that the kernel killed for memory.
    OutOfMemoryKill(String),
    /// A kernel module that is loaded (`lsmod`): `nvidia_peermem`, `gdrdrv`.
    ModuleLoaded(String),
    /// The interface by which NICs reach GPU memory (`/sys/kernel/mm/memory_peers/nv_mem`): whether it is registered.
    GpuMemoryPeer {
        /// Registered.
        registered: bool,
    },
    /// A service and its state: `nvidia-fabricmanager` is `active`, `inactive`, `failed`.
    Service {
        /// Its name.
        name: String,
        /// Its state.
        state: String,
    },
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Memory that a process may lock (`ulimit -l`), in bytes.
    LockedMemory,
    /// Open files (`ulimit -n`).
    OpenFiles,
    /// Processes (`ulimit -u`).
    Processes,
    /// Stack (`ulimit -s`), in bytes.
    Stack,
}

/// Speed and width of a PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PcieLink {
    /// GT/s per lane.
    pub speed_gts: f64,
    /// Lanes.
    pub width: u32,
    /// The device itself says that this is less than it could (`(downgraded)`).
    #[serde(skip)]
    pub downgraded: bool,
}

impl PcieLink {
    /// Usable bandwidth in GB/s per direction before protocol headers: 8b/10b up to 5 GT/s, 128b/130b above.
    pub fn gb_per_s(&self) -> f64 {
        let coding = if self.speed_gts <= 5.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
        self.speed_gts * coding / 8.0 * f64::from(self.width)
    }
}

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, so RoCE.
    Ethernet,
}

/// The command whose output was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // each is named after its command
pub enum HostTool {
    Ibstat,
    IbvDevinfo,
    Ibdev2netdev,
    ShowGids,
    Lspci,
    NvidiaSmi,
    Ulimit,
    Dmesg,
    Ethtool,
    Df,
    Lsmod,
    Systemctl,
    Ip,
    BusbwCheck,
}

impl HostTool {
    /// The command.
    pub fn command(self) -> &'static str {
        match self {
            HostTool::Ibstat => "ibstat",
            HostTool::IbvDevinfo => "ibv_devinfo",
            HostTool::Ibdev2netdev => "ibdev2netdev",
            HostTool::ShowGids => "show_gids",
            HostTool::Lspci => "lspci -vv",
            HostTool::NvidiaSmi => "nvidia-smi",
            HostTool::Ulimit => "ulimit -a",
            HostTool::Dmesg => "dmesg",
            HostTool::Ethtool => "ethtool",
            HostTool::Df => "df -h /dev/shm",
            HostTool::Lsmod => "lsmod",
            HostTool::Systemctl => "systemctl status",
            HostTool::Ip => "ip link",
            HostTool::BusbwCheck => "busbw check",
        }
    }
}

impl fmt::Display for HostTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_rates_follow_from_speed_and_width() {
        for (speed_gts, width, gbs) in [(16.0, 16, 31.5), (32.0, 16, 63.0), (8.0, 8, 7.9), (2.5, 1, 0.25)] {
            let link = PcieLink { speed_gts, width, downgraded: false };
            assert!((link.gb_per_s() - gbs).abs() < 0.05, "{link:?}: {}", link.gb_per_s());
        }
    }
}
