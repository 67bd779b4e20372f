//! What one node is: what `busbw check` collects, keeps as facts.json, and judges.
//!
//! A part that could not be had says why ([`Known`]). A plain `None` is a thing that this node, driver or kernel simply does
//! not have or tell. Fields may be added: a reader takes a missing one as its default.

mod gpu;
mod net;
mod pci;
mod rdma;
mod system;

pub use gpu::{Ecc, FabricState, GpuDevice, GpuFacts, GpuTest, NvLinkState, PeerAccess, PowerLimit, XidLine};
pub use net::{NetInterface, NicCounter, Rings};
pub use pci::{Bridge, PciFunction, PcieSlot};
pub use rdma::{Gid, GidKind, HcaList, RdmaDevice, RdmaPort};
pub use system::{Bound, Clock, HugePages, Library, Limits, LinuxLimit, Program, SharedMemory, TuningTableFile};

use crate::host::FactLine;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A part of the facts, or why it could not be had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Known<T> {
    /// It was had.
    Known(T),
    /// It was not, for this reason: `only root may read it`.
    Unknown(String),
}

impl<T> Known<T> {
    /// What is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Known::Known(value) => Some(value),
            Known::Unknown(_) => None,
        }
    }

    /// What is known, begun where nothing was.
    pub fn begun(&mut self) -> &mut T
    where
        T: Default,
    {
        if let Known::Unknown(_) = self {
            *self = Known::Known(T::default());
        }
        match self {
            Known::Known(value) => value,
            Known::Unknown(_) => unreachable!("it was begun above"),
        }
    }

    /// Why nothing is known.
    pub fn why(&self) -> Option<&str> {
        match self {
            Known::Known(_) => None,
            Known::Unknown(why) => Some(why),
        }
    }
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known::Unknown("not looked at".into())
    }
}

/// The name of the format of [`FactsFile`].
pub const FACTS_SCHEMA: &str = "busbw.facts/1";

/// The facts of several nodes, as kept in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactsFile {
    /// [`FACTS_SCHEMA`].
    pub schema: String,
    /// A node each.
    pub nodes: Vec<NodeFacts>,
    /// How the hosts answered, where they were asked.
    #[serde(default, skip_serializing_if = "Hello::is_no_question")]
    pub hello: Hello,
}

impl FactsFile {
    /// A file of these nodes.
    pub fn new(nodes: Vec<NodeFacts>, hello: Hello) -> Self {
        FactsFile { schema: FACTS_SCHEMA.into(), nodes, hello }
    }
}

/// A host that was asked and did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// Its name, as the user gave it.
    pub host: String,
    /// What was seen instead.
    pub why: String,
    /// Whether its name leads to no address: nothing was started.
    #[serde(default)]
    pub is_unknown: bool,
}

/// How hosts answered when busbw was started on them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// How many hosts were asked; 0 when this was no question.
    pub asked: usize,
    /// Those that did not answer.
    pub silent: Vec<Silent>,
    /// Why they did not answer as one job, although each does by itself.
    pub apart: Option<String>,
}

impl Hello {
    fn is_no_question(&self) -> bool {
        self.asked == 0
    }
}

/// What one node is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Its name; empty where nothing shows it.
    pub host: String,
    /// Only some commands show it: what is not in `lines` was not looked at.
    #[serde(skip)]
    pub partial: bool,
    /// The lines of commands that show it, in order.
    #[serde(skip)]
    pub lines: Vec<FactLine>,
    /// Where saved facts begin, in an input that holds them.
    #[serde(skip)]
    pub saved: Option<Place>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The processor's architecture: `x86_64`, `aarch64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// NVIDIA's GPUs.
    pub gpu: GpuFacts,
    /// Xid errors in the kernel's log.
    pub xids: Known<Vec<XidLine>>,
    /// Errors in the kernel's log that PCIe could not correct (AER), with the device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pcie_errors: Vec<String>,
    /// Processes that the kernel killed for memory, as its log shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_kills: Vec<String>,
    /// The state of NVIDIA's fabric manager, where there are NVSwitches: `running`, `not running`, or `hidden` where the
    /// host's processes cannot be seen, as in a container.
    pub fabric_manager: Option<String>,
    /// NCCL's libraries, in the order in which a program would find them.
    pub nccl: Vec<Library>,
    /// The CUDA toolkits that are installed.
    pub cuda: Vec<Library>,
    /// RDMA devices.
    pub rdma: Vec<RdmaDevice>,
    /// Stages of ibdiagnet, which looks at the InfiniBand subnet of the node, with the errors of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subnet: BTreeMap<String, u64>,
    /// Network interfaces, loopback apart.
    pub interfaces: Vec<NetInterface>,
    /// PCIe bridges above GPUs and NICs.
    pub bridges: Vec<Bridge>,
    /// Kernel modules that GPUs and RDMA need, of those that are loaded.
    pub modules: Known<Vec<String>>,
    /// Limits of this process.
    pub limits: Known<Limits>,
    /// /dev/shm.
    pub shared_memory: Known<SharedMemory>,
    /// Huge pages.
    pub huge_pages: Option<HugePages>,
    /// mpirun and ssh, with what they say of their version.
    pub programs: Vec<Program>,
    /// Variables of the environment that communication libraries read.
    pub environment: BTreeMap<String, String>,
    /// The tuning table that lies here, or that a variable names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tuning_table: Option<TuningTableFile>,
    /// The clock.
    pub clock: Known<Clock>,
    /// Frequency governors of the cores, and how many cores have each.
    pub governors: BTreeMap<String, u32>,
}

impl NodeFacts {
    /// The lines that show an item: of one device, or of every device without one.
    pub fn lines_of<'a>(&'a self, item: &'a str, device: Option<&'a str>) -> impl Iterator<Item = &'a FactLine> {
        let is_about = move |line: &&FactLine| line.item == item && device.is_none_or(|device| line.device == device);
        self.lines.iter().filter(is_about)
    }

    /// Whether it may be one of these hosts, of which some are named with their domain (`node1.cluster.local`): where a name lacks on
    /// either side, it may.
    pub fn may_be_of(&self, hosts: &[&str]) -> bool {
        let in_domain = |name: &str, host: &str| name.strip_prefix(host).is_some_and(|rest| rest.starts_with('.'));
        let is_it = |host: &&str| *host == self.host || in_domain(host, &self.host) || in_domain(&self.host, host);
        hosts.is_empty() || self.host.is_empty() || hosts.iter().any(is_it)
    }

    /// The RDMA ports that carry a job's data, of those that NCCL_IB_HCA takes: the active ones of the rate and kind that carry most
    /// together. Storage and management have others.
    pub fn data_ports(&self, taken: &HcaList) -> Vec<(&RdmaDevice, &RdmaPort)> {
        let ports = self.rdma.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        let ports = ports.filter(|(device, port)| taken.takes(&device.name, Some(port.port)));
        let mut kinds: Vec<(f64, Vec<(&RdmaDevice, &RdmaPort)>)> = Vec::new();
        for (device, port) in ports.filter(|(_, port)| port.state == "ACTIVE") {
            let Some(rate) = port.rate_gbps.filter(|gbps| *gbps >= 1.0) else { continue };
            let alike = |(other, ports): &&mut (f64, Vec<(&RdmaDevice, &RdmaPort)>)| {
                *other == rate && ports.first().is_some_and(|(_, first)| first.link_layer == port.link_layer)
            };
            match kinds.iter_mut().find(alike) {
                Some((_, ports)) => ports.push((device, port)),
                None => kinds.push((rate, vec![(device, port)])),
            }
        }
        kinds.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let together = |(rate, ports): &(f64, Vec<(&RdmaDevice, &RdmaPort)>)| rate * ports.len() as f64;
        kinds.into_iter().max_by(|a, b| together(a).total_cmp(&together(b))).map_or(Vec::new(), |(_, ports)| ports)
    }

    /// Whether NVLink is meant to join the GPUs: some link is up, or there are several GPUs and NVSwitches. GPUs on PCIe
    /// cards have links too, which are all down without a bridge (github.com/NVIDIA/NVSentinel/pull/1481).
    pub fn is_joined_by_nvlink(&self) -> bool {
        let any_up = self.gpu.devices.iter().flat_map(|gpu| &gpu.nvlinks).any(|link| link.active);
        any_up || self.gpu.devices.len() > 1 && self.fabric_manager.is_some()
    }
}
