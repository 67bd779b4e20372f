//! A cluster as the time model sees it: a few numbers.

use super::constants::{Constants, Fitted, Measured, Nccl, PerGeneration, PerProtocol};
use crate::cluster::{Cluster, CpuVendor, Generation, GpuLinks, Graphs, NetTransport, Nics};
use crate::load::{Busiest, Rails};
use crate::traffic::{channels_per_nic, streams_per_connection};
use busbw_model::{Collective, PathType, Protocol};

/// The numbers of a cluster that times follow from. Bandwidths in GB/s per direction. A *domain* is what NCCL calls a node:
/// GPUs that reach each other without a NIC.
pub(super) struct Figures<'a> {
    pub constants: &'a Constants,
    pub cluster: &'a Cluster,
    pub ranks: usize,
    pub domains: usize,
    pub domain_gpus: usize,
    pub inside: Inside,
    /// What a GPU's links carry as sold.
    pub gpu_line: f64,
    /// What a ring through a domain's GPUs carries.
    pub gpu_payload: f64,
    /// The network, where several domains need one.
    pub network: Option<Network>,
    pub nvls: bool,
    /// What NCCL's search found, where a log says so.
    pub graphs: Option<&'a Graphs>,
    /// Who is busiest, where an exchange is uneven.
    pub busiest: Option<&'a Busiest>,
}

/// What GPUs of a domain reach each other by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Switched,
    DirectNvLink,
    Pcie,
    HostMemory,
    /// NICs, also to GPUs of the same host.
    Nics,
    /// One GPU per domain.
    Nothing,
}

impl Inside {
    pub fn is_nvlink(self) -> bool {
        matches!(self, Inside::Switched | Inside::DirectNvLink)
    }
}

/// The NICs of a domain together.
pub(super) struct Network {
    pub nics: usize,
    /// Line rate of one.
    pub nic_line: f64,
    /// Line rate of all, as far as PCIe lets them.
    pub line: f64,
    /// Line rate of those that serve one GPU: one, or several where NICs outnumber GPUs.
    pub line_of_a_gpu: f64,
    /// What arrives of it.
    pub payload_of_a_gpu: f64,
    /// What arrives of it.
    pub payload: f64,
    /// Why `payload` is less than the NICs could carry, where it is.
    pub held_back_by: Option<&'static str>,
    /// What the transport adds to a hop, us.
    pub hop: f64,
    /// NCCL's Simple protocol flushes the NIC's writes with a second trip, where NICs write to GPUs.
    pub gpu_direct: bool,
    pub transport: NetTransport,
}

impl Network {
    /// What the transport adds to each hop with a protocol, us.
    pub fn added(&self, simple: bool) -> f64 {
        if simple && self.gpu_direct { 2.0 * self.hop } else { self.hop }
    }
}

/// Hosts with at least this many GPUs per NIC have most GPUs far from it.
const GPUS_PER_FAR_NIC: usize = 4;
/// The share of PCIe's raw rate that is payload: NCCL takes a 3.0 x16 link of 15.75 GB/s for 12.
const PCIE_PAYLOAD: f64 = 0.762;
/// PCIe 3.0 x16, the link that staging through host memory was measured on, GB/s.
const PCIE_3: f64 = 12.0;
/// PCIe 4.0 x16, GB/s.
const PCIE_4: f64 = 24.0;
/// What copies through the memory of a host with PCIe 5.0 give a ring, GB/s: four RTX 5090 27 (NVIDIA/nccl issue 1637),
/// eight 28, four 35 (issue 1639).
const HOST_MEMORY_PCIE_5: f64 = 28.0;
/// GPUs that stage at once before the host's memory is the limit.
const STAGING_GPUS: usize = 4;

impl<'a> Figures<'a> {
    pub fn of(cluster: &'a Cluster, constants: &'a Constants) -> Self {
        let measured = &constants.measured;
        let domains = cluster.domains().max(1);
        let network = cluster.nics.as_ref().filter(|_| domains > 1).map(|nics| network(cluster, nics, measured));
        let inside = if network.is_some() && goes_over_nics(cluster) { Inside::Nics } else { inside(cluster) };
        let of_a_nic = network.as_ref().filter(|_| inside == Inside::Nics);
        let gpu_line = of_a_nic.map_or(cluster.links.per_gpu().0, |network| network.line_of_a_gpu);
        let gpu_payload =
            of_a_nic.map_or_else(|| gpu_payload(cluster, inside, measured), |network| network.payload_of_a_gpu);
        let graphs = Graphs::of(cluster);
        let nvls = matches!(cluster.links, GpuLinks::NvSwitch { nvls: true, .. });
        Figures {
            constants,
            cluster,
            ranks: cluster.ranks(),
            domains,
            domain_gpus: cluster.ranks().div_ceil(domains).max(1),
            inside,
            gpu_line,
            gpu_payload,
            network,
            nvls: graphs.map_or(nvls && cluster.gpu.generation >= Generation::Hopper, |found| found.nvls.is_some()),
            graphs,
            busiest: None,
        }
    }

    pub fn measured(&self) -> &Measured {
        &self.constants.measured
    }

    pub fn nccl(&self) -> &Nccl {
        &self.constants.nccl
    }

    /// NCCL's constants for this generation of GPUs.
    pub fn generation(&self) -> &PerGeneration {
        let generations = &self.constants.nccl.generation;
        match self.cluster.gpu.generation {
            Generation::Pascal | Generation::Volta | Generation::Turing => &generations.volta,
            Generation::Cdna | Generation::Ampere | Generation::Ada => &generations.ampere,
            Generation::Hopper => &generations.hopper,
            Generation::Blackwell => &generations.blackwell,
        }
    }

    /// How much longer an uneven exchange takes than an even one: inside a domain, and over its NICs.
    pub fn unevenness(&self) -> (f64, f64) {
        let nic = |busiest: &Busiest| busiest.nic.map_or(1.0, |nic| nic.times_even);
        self.busiest.map_or((1.0, 1.0), |busiest| (busiest.inside, nic(busiest)))
    }

    /// To how many peers a rank sends over the links of its domain, and how many ranks of a domain share its NICs, in an
    /// exchange of messages. A root that scatters hands most of them to the GPUs on its receivers' rails, and so has all NICs of
    /// the domain to itself (PXN, `ncclTopoGetNetDev` of NCCL 2.30.7, src/graph/search.cc); one that gathers has its own.
    pub fn senders(&self, collective: Collective) -> (usize, usize) {
        let peers = self.domain_gpus.saturating_sub(1);
        if collective == Collective::Scatter && self.network.is_some() && Rails::of(self.cluster).on_rails {
            (peers * self.domains, 1)
        } else {
            (peers, self.domain_gpus)
        }
    }

    /// Several NVL72 racks: domains larger than a host, joined by NICs.
    pub fn is_racks(&self) -> bool {
        self.domains > 1 && self.domain_gpus > self.cluster.gpus_per_node
    }

    /// GPUs that one process drives: with a single node people run `-g 8`, with several one process per GPU.
    pub fn gpus_per_process(&self) -> usize {
        if let Some(gpus) = self.cluster.gpus_per_process {
            return gpus.clamp(1, self.ranks.max(1));
        }
        let alone = self.cluster.nodes == 1 && self.cluster.gpu.generation < Generation::Blackwell;
        if alone { self.ranks } else { 1 }
    }

    pub fn is_amd(&self) -> bool {
        self.cluster.cpu.vendor == CpuVendor::Amd
    }

    /// What the model adds to what the description left open.
    pub fn assumptions(&self) -> Vec<String> {
        let mut said = Vec::new();
        if self.gpus_per_process() > 1 && self.cluster.gpus_per_process.is_none() {
            said.push(format!(
                "One process drives all {} GPUs of the node (-g {0}), so small messages wait for {0} kernel launches; with a \
                 process per GPU they are faster.",
                self.ranks
            ));
        }
        if self.domains > 1 && self.network.is_none() {
            said.push(
                "No NIC is described although there are several nodes: times between nodes are those of NVLink.".into(),
            );
        }
        said
    }
}

/// Without shared memory, GPUs that do not reach each other by P2P use NICs, and a level below SYS leaves out those of other
/// processors.
fn goes_over_nics(cluster: &Cluster) -> bool {
    let environment = &cluster.environment;
    let GpuLinks::Pcie { peer_to_peer, .. } = cluster.links else { return false };
    let level = environment.get("NCCL_P2P_LEVEL").and_then(|level| crate::cluster::level(level));
    let near = level.is_some_and(|level| level < PathType::Sys) && cluster.cpu.sockets > 1 && cluster.gpus_per_node > 2;
    environment.get("NCCL_SHM_DISABLE").is_some_and(|value| value == "1") && (near || !peer_to_peer)
}

fn inside(cluster: &Cluster) -> Inside {
    match cluster.links {
        _ if cluster.domain_gpus() <= 1 => Inside::Nothing,
        GpuLinks::NvSwitch { .. } => Inside::Switched,
        GpuLinks::NvLinkMesh { .. } => Inside::DirectNvLink,
        GpuLinks::Pcie { peer_to_peer: true, .. } => Inside::Pcie,
        GpuLinks::Pcie { .. } => Inside::HostMemory,
        GpuLinks::Single { .. } => Inside::Nothing,
    }
}

fn gpu_payload(cluster: &Cluster, inside: Inside, measured: &Measured) -> f64 {
    let line = cluster.links.per_gpu().0;
    match inside {
        Inside::Switched | Inside::DirectNvLink => line * nvlink_share(cluster.gpu.generation, measured),
        Inside::Pcie => {
            let pcie = line * measured.pcie.value;
            let sockets = cluster.cpu.socket_link.0;
            if cluster.cpu.sockets > 1 && cluster.gpus_per_node > 2 && sockets > 0.0 { pcie.min(sockets) } else { pcie }
        }
        Inside::HostMemory if line > PCIE_4 => HOST_MEMORY_PCIE_5.min(line),
        Inside::HostMemory => {
            let shared = if cluster.gpus_per_node > 2 { measured.host_memory_shared.value } else { 1.0 };
            (measured.host_memory.value * shared).min(line)
        }
        Inside::Nics | Inside::Nothing => line,
    }
}

fn nvlink_share(generation: Generation, measured: &Measured) -> f64 {
    match generation {
        Generation::Pascal | Generation::Volta | Generation::Turing => measured.volta_nvlink,
        Generation::Ampere | Generation::Ada => measured.ampere_nvlink,
        Generation::Cdna => measured.xgmi,
        Generation::Hopper => measured.hopper_nvlink,
        Generation::Blackwell => measured.blackwell_nvlink,
    }
    .value
}

fn network(cluster: &Cluster, nics: &Nics, measured: &Measured) -> Network {
    let count = cluster.domain_nics();
    let (payload, hop) = transport_constants(nics, measured);
    let pcie = if nics.pcie.0 > 0.0 { nics.pcie.0 } else { f64::INFINITY };
    let line = count as f64 * nics.rate.0.min(pcie / PCIE_PAYLOAD);
    let arriving = line * payload.value;
    let line_of_a_gpu = line / count.min(cluster.domain_gpus()).max(1) as f64;
    let mut network = Network {
        nics: count,
        line_of_a_gpu,
        payload_of_a_gpu: line_of_a_gpu * payload.value,
        nic_line: nics.rate.0,
        line,
        payload: arriving,
        held_back_by: None,
        hop: hop.value,
        gpu_direct: nics.gpu_direct,
        transport: nics.transport,
    };
    let mut hold = |bandwidth: f64, why| {
        if bandwidth < network.payload {
            network.payload = bandwidth;
            network.held_back_by = Some(why);
        }
    };
    hold(count as f64 * pcie, "PCIe between NIC and GPU");
    if let Some(limit) = nics.flow_limit {
        let flows = count as f64 * f64::from(channels_per_nic(cluster)) * f64::from(streams_per_connection(cluster));
        hold(limit.0 * flows, "what the network lets one flow carry");
    }
    if nics.count * GPUS_PER_FAR_NIC <= cluster.gpus_per_node {
        hold(arriving * measured.far_nic.value, "GPUs far from the NIC");
    }
    if nics.transport == NetTransport::Tcp {
        hold(measured.sockets_host.value, "kernel sockets: copies through host memory");
    } else if !nics.gpu_direct {
        let gpus = cluster.domain_gpus().clamp(1, STAGING_GPUS) as f64;
        // The GPU copies; what its NIC's slot carries is less where the NIC is an older one.
        let of_gpu = match cluster.links {
            GpuLinks::Pcie { per_gpu, .. } | GpuLinks::Single { per_gpu } => per_gpu.0,
            _ => 0.0,
        };
        let pcie = nics.pcie.0.max(of_gpu).max(PCIE_3) / PCIE_3;
        hold(measured.staged.value * gpus * pcie, "no GPUDirect RDMA: copies through host memory");
    }
    network
}

/// EFA devices of 200 Gbit/s and more are of the third generation (p5en) or the fourth (p6).
pub(super) fn is_efa_v3(nics: &Nics) -> bool {
    nics.transport == NetTransport::Efa && nics.rate.0 >= EFA_V3
}

const EFA_V3: f64 = 25.0;

/// The share of the rate that is payload, and what a hop adds.
fn transport_constants(nics: &Nics, m: &Measured) -> (Fitted, Fitted) {
    match nics.transport {
        NetTransport::Efa if is_efa_v3(nics) => (m.efa_payload, m.efa_v3),
        NetTransport::InfiniBand => (m.infiniband_payload, m.infiniband),
        NetTransport::Roce => (m.roce_payload, m.roce),
        NetTransport::Efa => (m.efa_payload, m.efa),
        NetTransport::Slingshot => (m.slingshot_payload, m.slingshot),
        NetTransport::Tcpx => (m.tcpx_payload, m.tcpx),
        NetTransport::Tcpxo => (m.tcpxo_payload, m.tcpxo),
        NetTransport::Tcp => (m.tcp_payload, m.tcp),
    }
}

pub(super) fn by_protocol(figures: &PerProtocol, protocol: Protocol) -> f64 {
    match protocol {
        Protocol::Ll => figures[0],
        Protocol::Ll128 => figures[1],
        Protocol::Simple => figures[2],
    }
}
