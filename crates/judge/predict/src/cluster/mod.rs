//! What a cluster is: machines, the links inside them, NICs, and the fabric between them.
//!
//! Every bandwidth is per direction. All nodes are alike.

use crate::calibration::Calibration;
use busbw_model::{Collective, GBps, PathType};
use hardware::GpuProduct;
pub use hardware::{NicProduct, joined_by_nvlink, product, usual_with_rdma};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

mod complete;
mod derive;
mod description;
mod environment;
mod facts;
mod full;
mod graphs;
mod hardware;
mod hypotheses;
pub(crate) mod rate;
mod section;
mod short;
mod vocabulary;
mod words;

pub use derive::{Underivable, derive};
pub use description::parse;
pub(crate) use environment::level;
pub use graphs::{Graph, Graphs};
pub use hypotheses::{GpusOfHost, MachineHints, NicsOfHost, Reach, hypotheses};
pub use section::DescriptionError;

/// A cluster, as described or derived. Whatever was not stated but assumed is listed in `assumptions`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub nodes: usize,
    /// GPUs per host that take part; one rank each.
    pub gpus_per_node: usize,
    pub gpu: Gpu,
    /// How the GPUs of a host reach each other.
    pub links: GpuLinks,
    pub cpu: Cpu,
    /// The NICs of a host; `None` where there is no network.
    pub nics: Option<Nics>,
    /// What connects the NICs of the hosts.
    pub fabric: Fabric,
    /// NCCL's version, where known: `(2, 27)`.
    pub nccl: Option<(u32, u32)>,
    /// Variables that are set: NCCL_*, and what plugins and CUDA read.
    pub environment: BTreeMap<String, String>,
    /// The collective that the description is about, where it says so.
    pub collective: Option<Collective>,
    /// GPUs that one process drives, where known: `-g` of nccl-tests.
    pub gpus_per_process: Option<usize>,
    /// How it differs from the machines that the model was fitted on.
    pub calibration: Calibration,
    /// What NCCL's search found, where its log says so; it holds for the machine of that log alone ([`Graphs::of`]).
    pub graphs: Option<Graphs>,
    /// What was not stated and had to be assumed, a sentence each.
    pub assumptions: Vec<String>,
}

impl Cluster {
    /// Ranks: one per GPU.
    pub fn ranks(&self) -> usize {
        self.nodes * self.gpus_per_node
    }

    /// GPUs that reach each other by NVLink: those of a host, or of several where NVLink leaves the host (NVL72).
    /// NCCL calls such a domain a node.
    pub fn domain_gpus(&self) -> usize {
        match self.links {
            GpuLinks::NvSwitch { domain, .. } => domain.min(self.ranks()).max(self.gpus_per_node),
            _ => self.gpus_per_node,
        }
    }

    /// NVLink domains: what NCCL counts as nodes.
    pub fn domains(&self) -> usize {
        self.ranks().div_ceil(self.domain_gpus().max(1))
    }

    /// NICs of one NVLink domain.
    pub fn domain_nics(&self) -> usize {
        let hosts = self.domain_gpus().div_ceil(self.gpus_per_node.max(1));
        self.nics.as_ref().map_or(0, |nics| nics.count * hosts)
    }

    /// Whether a GPU hands data for a NIC that is near another GPU to that one: since NCCL 2.12, unless NCCL_PXN_DISABLE=1.
    pub(crate) fn uses_pxn(&self) -> bool {
        let able = self.nccl.is_none_or(|version| version >= (2, 12));
        able && self.variable("NCCL_PXN_DISABLE").is_none_or(|disabled| disabled == 0)
    }

    /// The variable's value as a number, where it is set to one.
    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.environment.get(name)?.trim().parse().ok()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// As described: `NVIDIA H20`.
    pub name: String,
    pub generation: Generation,
    /// What they are sold as; not known where only a generation was stated.
    product: Option<&'static GpuProduct>,
}

impl Gpu {
    /// GPUs of which nothing is known but a generation.
    pub fn new(name: &str, generation: Generation) -> Self {
        Gpu { name: name.to_owned(), generation, product: None }
    }

    fn of(product: &'static GpuProduct, name: &str) -> Self {
        Gpu { name: name.to_owned(), generation: product.generation, product: Some(product) }
    }
}

/// Generations of NVIDIA's GPUs, by compute capability, oldest first; AMD's before them, which lack what these brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generation {
    /// AMD Instinct: MI250X, MI300X, MI355X.
    Cdna,
    /// 6.x: P100.
    Pascal,
    /// 7.0: V100.
    Volta,
    /// 7.5: T4, RTX 2080.
    Turing,
    /// 8.0, 8.6: A100, A10, RTX 3090.
    Ampere,
    /// 8.9: L4, L40S, RTX 4090.
    Ada,
    /// 9.0: H100, H200, H20, GH200.
    Hopper,
    /// 10.x, 12.x: B200, GB200, RTX 5090.
    Blackwell,
}

/// How the GPUs of a host reach each other.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuLinks {
    /// Every GPU reaches every other through NVSwitches at full rate.
    NvSwitch {
        /// What one GPU sends, per direction: 450 GB/s for an H100.
        per_gpu: GBps,
        /// GPUs in the NVLink domain: those of a host, or 72 in an NVL72 rack.
        domain: usize,
        /// The switches can add (NVLS): Hopper and later, where all GPUs of the host take part.
        nvls: bool,
    },
    /// NVLinks straight from GPU to GPU: the V100 cube mesh, pairs with bridges, four superchips.
    NvLinkMesh {
        /// What one GPU sends over all its links, per direction.
        per_gpu: GBps,
    },
    Pcie {
        /// What one GPU sends, per direction: 12 GB/s for PCIe 3.0 x16, 24 for 4.0.
        per_gpu: GBps,
        /// Whether GPUs reach each other directly (P2P); otherwise data goes through host memory (SHM).
        peer_to_peer: bool,
    },
    /// One GPU per host.
    Single {
        /// What the GPU sends to the host, per direction.
        per_gpu: GBps,
    },
}

impl GpuLinks {
    /// What one GPU sends to its neighbours, per direction.
    pub fn per_gpu(&self) -> GBps {
        match self {
            GpuLinks::NvSwitch { per_gpu, .. }
            | GpuLinks::NvLinkMesh { per_gpu }
            | GpuLinks::Pcie { per_gpu, .. }
            | GpuLinks::Single { per_gpu } => *per_gpu,
        }
    }
}

/// A host's processors.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    pub vendor: CpuVendor,
    pub sockets: usize,
    /// The link between sockets (UPI, Infinity Fabric).
    pub socket_link: GBps,
}

/// Makers of processors, as far as NCCL's constants distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum CpuVendor {
    Intel,
    Amd,
    Arm,
    Power,
    Unknown,
}

/// The NICs of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Nics {
    pub count: usize,
    /// The line rate of one: 50 GB/s for 400 Gbit/s.
    pub rate: GBps,
    pub transport: NetTransport,
    /// What one flow can carry, where less than the line rate: a TCP connection on a cloud's network.
    pub flow_limit: Option<GBps>,
    /// Whether NICs read and write GPU memory (GPUDirect RDMA); otherwise data goes through host memory.
    pub gpu_direct: bool,
    /// The path from a NIC to its nearest GPU.
    pub place: PathType,
    /// What PCIe carries between a NIC and that GPU, per direction.
    pub pcie: GBps,
}

/// What carries the messages between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetTransport {
    InfiniBand,
    Roce,
    /// AWS's Elastic Fabric Adapter through libfabric.
    Efa,
    /// HPE Slingshot through libfabric (CXI).
    Slingshot,
    /// A TCP-like protocol that places data in GPU memory: Google's TCPX.
    Tcpx,
    /// Its successor: TCPXO (FasTrak).
    Tcpxo,
    Tcp,
}

impl NetTransport {
    pub fn name(self) -> &'static str {
        match self {
            NetTransport::InfiniBand => "InfiniBand",
            NetTransport::Roce => "RoCE",
            NetTransport::Efa => "EFA",
            NetTransport::Slingshot => "Slingshot",
            NetTransport::Tcpx => "TCPX",
            NetTransport::Tcpxo => "TCPXO",
            NetTransport::Tcp => "TCP",
        }
    }
}

/// What connects the hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    /// How switches and NICs are cabled.
    pub wiring: Wiring,
    /// How switches choose among equal paths.
    pub routing: Routing,
}

/// How switches and NICs are cabled. NIC `i` of node `n` is a port of the fabric.
#[derive(Debug, Clone, PartialEq)]
pub enum Wiring {
    /// One switch, or a fabric that behaves as one: only the NICs' own links can be full.
    SingleSwitch,
    /// NIC `i` of every node on switch `i` (of its group), switches of several rails joined by spines where there are any.
    RailOptimised {
        /// Nodes under one group of rail switches; all nodes if there is one group.
        nodes_per_group: usize,
        /// Spine switches that join the rail switches of all groups; 0 if rails never meet.
        spines: usize,
        /// Links from a rail switch to each spine, and their rate.
        uplinks: Uplinks,
    },
    /// Leaf switches with all NICs of some nodes each, joined by spines. With `cores`, spines of a pod reach other
    /// pods over core switches (three levels).
    LeafSpine {
        /// Nodes under one leaf.
        nodes_per_leaf: usize,
        /// Spines (of a pod, where there are pods).
        spines: usize,
        /// Links from a leaf to each spine.
        uplinks: Uplinks,
        /// The third level, if there is one.
        cores: Option<Cores>,
    },
    /// All NICs of a host on a switch of its own, the switches joined directly: the first field report.
    HostToSwitch {
        /// Links between each two switches, and their rate.
        between: Uplinks,
    },
    /// Every switch and cable listed.
    Explicit { switches: Vec<String>, links: Vec<Cable> },
}

/// Parallel links of one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Uplinks {
    pub count: usize,
    /// The rate of each, per direction.
    pub rate: GBps,
}

/// The third level of a fat tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cores {
    pub leaves_per_pod: usize,
    /// Core switches; each reaches every spine.
    pub switches: usize,
    /// Links from a spine to each core switch.
    pub uplinks: Uplinks,
}

/// Cables of an explicit fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct Cable {
    pub from: CableEnd,
    pub to: CableEnd,
    /// How many in parallel, and their rate.
    pub uplinks: Uplinks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CableEnd {
    /// A switch by its index in [`Wiring::Explicit`].
    Switch(usize),
    /// NIC `nic` of node `node`.
    Nic { node: usize, nic: usize },
}

/// A NIC of a node, where a flow enters or leaves the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The node, from 0.
    pub node: u32,
    /// The NIC of the node, from 0.
    pub nic: u32,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("NIC {} of node {}", self.nic, self.node))
    }
}

/// How switches choose among equal paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Routing {
    /// A hash per flow (ECMP): a flow stays on one path.
    Hash,
    /// Packets go where there is room (adaptive routing, packet spraying): paths are shared evenly.
    Adaptive,
}
