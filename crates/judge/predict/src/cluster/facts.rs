//! What a description, a log or a topology states about a cluster, before the rest is assumed.

use super::hardware::{MachineProduct, Pcie};
use super::{CpuVendor, Fabric, Gpu, NetTransport};
use busbw_model::{Collective, GBps, PathType};
use std::collections::BTreeMap;

/// What is stated. [`super::complete::complete`] makes a [`super::Cluster`] of it.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) nodes: usize,
    pub(super) gpus_per_node: usize,
    pub(super) gpu: Gpu,
    /// The machine that a name reveals.
    pub(super) machine: Option<&'static MachineProduct>,
    pub(super) links: LinkFacts,
    pub(super) cpu: CpuFacts,
    pub(super) network: NetworkFacts,
    pub(super) fabric: Option<Fabric>,
    pub(super) nccl: Option<(u32, u32)>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) collective: Option<Collective>,
    pub(super) gpus_per_process: Option<usize>,
    /// What had to be assumed so far.
    pub(super) assumptions: Vec<String>,
}

/// What is stated about the links between the GPUs of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkFacts {
    pub(super) kind: Option<LinkKind>,
    /// What one GPU sends by NVLink, per direction.
    pub(super) nvlink: Option<GBps>,
    /// GPUs that reach each other by NVLink.
    pub(super) domain: Option<usize>,
    pub(super) nvls: Option<bool>,
    pub(super) peer_to_peer: Option<bool>,
    /// The worst PCIe path between two GPUs.
    pub(super) path: Option<PathType>,
    pub(super) pcie: Option<Pcie>,
}

/// How the GPUs of a host are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    NvSwitch,
    Mesh,
    /// NVLink bridges between some GPUs each.
    Bridge,
    Pcie,
    Single,
}

/// What is stated about a host's processors.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuFacts {
    pub(super) vendor: Option<CpuVendor>,
    pub(super) sockets: Option<usize>,
    pub(super) link: Option<GBps>,
}

/// What is stated about the network.
#[derive(Debug, Clone, Default)]
pub(super) struct NetworkFacts {
    pub(super) transport: StatedTransport,
    pub(super) count: Option<usize>,
    /// The count is that of the GPUs from which rings leave a host.
    pub(super) count_by_rings: bool,
    pub(super) rate: Option<GBps>,
    pub(super) flow_limit: Option<GBps>,
    pub(super) gpu_direct: Option<bool>,
    pub(super) place: Option<PathType>,
    pub(super) pcie: Option<Pcie>,
}

/// What is stated about the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum StatedTransport {
    #[default]
    Unknown,
    None,
    Is(NetTransport),
}
