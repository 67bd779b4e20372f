//! How long an algorithm takes, by constants from measurements.
//!
//! A time is latency (a start, and hops at their own cost each), transfer (bytes over what the slowest part carries), and a
//! ramp between the two: pipelines that fill and chunks that shrink cost most where neither dominates.

use super::candidates::Candidate;
use super::constants::Fitted;
use super::figures::{Figures, Inside};
use super::search;
use busbw_model::{Algorithm, Bytes, Collective, Protocol};

/// The parts of a time, us.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    /// Start and hops; with what launching adds to it.
    pub latency: f64,
    /// Bytes over bandwidth.
    pub transfer: f64,
    /// What filling the pipeline adds.
    pub ramp: f64,
    /// Steps that the latency is made of.
    pub hops: usize,
    /// The fabric holds back what all else would carry.
    pub by_fabric: bool,
}

impl Estimate {
    pub fn total(&self) -> f64 {
        self.latency + self.transfer + self.ramp
    }
}

/// Latency in us, hops, and bandwidth as algbw in GB/s.
struct Line {
    latency: f64,
    hops: usize,
    algbw: f64,
}

/// The time on a network that leaves `fabric` of busbw to large messages, where it is less than the NICs'.
pub(super) fn estimate(
    figures: &Figures,
    collective: Collective,
    candidate: Candidate,
    size: Bytes,
    fabric: Option<f64>,
) -> Estimate {
    let m = figures.measured();
    let mut line = match candidate.algorithm {
        Algorithm::Ring | Algorithm::Pat => ring(figures, collective, candidate.protocol, size),
        Algorithm::Tree => tree(figures, candidate.protocol),
        Algorithm::Nvls => nvls(figures),
        Algorithm::NvlsTree | Algorithm::CollNetDirect | Algorithm::CollNetChain => {
            nvls_tree(figures, candidate.algorithm)
        }
        Algorithm::PointToPoint => point_to_point(figures, collective, candidate.protocol, size),
    };
    let calibration = figures.cluster.calibration.of_collective(collective);
    line.latency *= calibration.latency;
    line.algbw *= if figures.network.is_some() { calibration.bandwidth_between } else { calibration.bandwidth_inside };
    let left = fabric.map(|busbw| to_algbw(busbw * share(figures, candidate.protocol), collective, figures.ranks));
    let by_fabric = left.is_some_and(|left| left < line.algbw);
    line.algbw = left.map_or(line.algbw, |left| left.min(line.algbw));
    let transfer = if line.algbw > 0.0 { size.0 as f64 / line.algbw / 1e3 } else { 0.0 };
    let exponent = m.ramp_exponent.value;
    // The ramp vanishes for sizes far above the latency. A ring of LL128 or Simple has no pipeline to fill but its hops.
    let fading = (-transfer / (RAMP_ENDS * line.latency)).exp();
    let ring = matches!(candidate.algorithm, Algorithm::Ring | Algorithm::Pat) && candidate.protocol != Protocol::Ll;
    let scale = if ring { 0.0 } else { calibration.ramp * m.ramp.value };
    let ramp = scale * line.latency.powf(1.0 - exponent) * transfer.powf(exponent) * fading;
    let launch = m.launch.value * figures.gpus_per_process() as f64 - line.latency;
    let waiting = if figures.gpus_per_process() > 1 { launch.max(0.0) * (-transfer / LAUNCH_HIDES).exp() } else { 0.0 };
    Estimate { latency: line.latency + waiting, transfer, ramp, hops: line.hops, by_fabric }
}

/// The ramp fades once the transfer takes this many times the latency.
const RAMP_ENDS: f64 = 20.0;
/// Launches overlap with transfers of this length, us.
const LAUNCH_HIDES: f64 = 60.0;

fn pick(protocol: Protocol, ll: Fitted, ll128: Fitted, simple: Fitted) -> f64 {
    match protocol {
        Protocol::Ll => ll.value,
        Protocol::Ll128 => ll128.value,
        Protocol::Simple => simple.value,
    }
}

fn start(figures: &Figures, protocol: Protocol) -> f64 {
    let m = figures.measured();
    pick(protocol, m.start_ll, m.start_ll128, m.start_simple)
}

/// The share of a line's bandwidth that a protocol uses.
fn share(figures: &Figures, protocol: Protocol) -> f64 {
    let m = figures.measured();
    match protocol {
        Protocol::Ll => m.ll.value,
        Protocol::Ll128 => m.ll128.value,
        Protocol::Simple => 1.0,
    }
}

/// A hop between GPUs of a domain, us.
fn inner_hop(figures: &Figures, on_tree: bool, protocol: Protocol) -> f64 {
    let m = figures.measured();
    let nvlink = if on_tree {
        pick(protocol, m.tree_nvlink_ll, m.tree_nvlink_ll128, m.tree_nvlink_simple)
    } else {
        pick(protocol, m.ring_nvlink_ll, m.ring_nvlink_ll128, m.ring_nvlink_simple)
    };
    match figures.inside {
        Inside::Switched | Inside::Nothing => nvlink,
        Inside::DirectNvLink => nvlink * m.direct_nvlink.value,
        // Beside NICs, GPUs of one processor have PCIe, and most hops are theirs.
        Inside::Pcie | Inside::Nics => pick(protocol, m.pcie_ll, m.pcie_ll128, m.pcie_simple),
        Inside::HostMemory => pick(protocol, m.host_memory_ll, m.pcie_ll128, m.host_memory_simple),
    }
}

/// A hop between domains, us.
fn outer_hop(figures: &Figures, on_tree: bool, protocol: Protocol) -> f64 {
    let m = figures.measured();
    let hop = if on_tree {
        pick(protocol, m.tree_network_ll, m.tree_network_ll128, m.tree_network_simple)
    } else {
        pick(protocol, m.ring_network_ll, m.ring_network_ll128, m.ring_network_simple)
    };
    let switched = on_tree && figures.inside == Inside::Switched && figures.domain_gpus > GPUS_OF_A_SMALL_BOARD;
    hop + if switched { m.switched_network.value } else { 0.0 }
        + figures.network.as_ref().map_or(0.0, |network| network.added(protocol == Protocol::Simple))
}

const GPUS_OF_A_SMALL_BOARD: usize = 4;

fn network_payload(figures: &Figures) -> f64 {
    figures.network.as_ref().map_or(f64::INFINITY, |network| network.payload)
}

fn ring(figures: &Figures, collective: Collective, protocol: Protocol, size: Bytes) -> Line {
    let ranks = figures.ranks;
    let rounds = if collective == Collective::AllReduce { 2 } else { 1 };
    let hops = rounds * ranks.saturating_sub(1);
    let outer = if figures.domains > 1 { rounds * (figures.domains - 1) } else { 0 };
    let latency = start(figures, protocol)
        + hops.saturating_sub(outer) as f64 * inner_hop(figures, false, protocol)
        + outer as f64 * outer_hop(figures, false, protocol);
    let mut busbw = figures.gpu_payload.min(network_payload(figures));
    if figures.is_racks() {
        busbw = busbw.min(figures.gpu_line * figures.measured().rack_ring.value);
    }
    let busbw = (busbw * share(figures, protocol)).min(by_channels(figures, protocol, size));
    Line { latency, hops, algbw: to_algbw(busbw, collective, ranks) }
}

/// What the channels carry that NCCL uses for a ring of LL: one for each 4 KiB of each rank (`topoGetAlgoInfo`,
/// src/enqueue.cc of NCCL 2.30.7; thresholds in src/graph/tuning.cc).
fn by_channels(figures: &Figures, protocol: Protocol, size: Bytes) -> f64 {
    if protocol != Protocol::Ll {
        return f64::INFINITY;
    }
    let filled = size.0 as f64 / (BYTES_OF_A_CHANNEL * figures.ranks.max(1) as f64);
    let channels = filled.clamp(1.0, f64::from(search::used_channels(figures).max(1)));
    let generation = figures.generation();
    let of_a_channel = generation.ll_max / generation.ll_channels * figures.measured().channel_ll.value;
    channels * of_a_channel
}

/// 512 threads, 8 bytes each.
const BYTES_OF_A_CHANNEL: f64 = 4096.0;

fn tree(figures: &Figures, protocol: Protocol) -> Line {
    let m = figures.measured();
    let inner = figures.domain_gpus.saturating_sub(1);
    let outer = log2(figures.domains);
    let latency = start(figures, protocol)
        + 2.0 * (inner as f64 * inner_hop(figures, true, protocol) + outer as f64 * outer_hop(figures, true, protocol));
    let network = network_payload(figures) * m.tree_network.value / tree_crossings(figures.domains);
    let inside = if figures.inside == Inside::Nothing {
        figures.gpu_payload
    } else {
        figures.gpu_payload * m.tree_nvlink.value / 2.0
    };
    Line { latency, hops: 2 * (inner + outer), algbw: inside.min(network) * share(figures, protocol) }
}

/// How often a byte of the buffer crosses a domain's NICs in each direction in a double binary tree: once between two
/// domains, twice in general, 4/3 of the bandwidth being left among three.
pub(super) fn tree_crossings(domains: usize) -> f64 {
    match domains {
        0..=2 => 1.0,
        3 => 1.5,
        _ => 2.0,
    }
}

fn nvls(figures: &Figures) -> Line {
    Line { latency: figures.measured().nvls.value, hops: 2, algbw: nvls_algbw(figures) }
}

fn nvls_algbw(figures: &Figures) -> f64 {
    let m = figures.measured();
    let share = if figures.cluster.gpu.generation >= crate::cluster::Generation::Blackwell {
        m.blackwell_nvls
    } else {
        m.hopper_nvls
    };
    to_algbw(figures.gpu_line * share.value, Collective::AllReduce, figures.domain_gpus)
}

/// NVLS within domains and trees between them; with CollNet the switches of the network add, so a byte crosses a NIC once.
fn nvls_tree(figures: &Figures, algorithm: Algorithm) -> Line {
    let m = figures.measured();
    let in_network = algorithm != Algorithm::NvlsTree;
    let levels = if in_network { 1 } else { log2(figures.domains) };
    let hop = m.nvls_tree_network.value + figures.network.as_ref().map_or(0.0, |network| network.added(true));
    let crossings = if in_network { 1.0 } else { tree_crossings(figures.domains) };
    let inside = if figures.nvls { nvls_algbw(figures) } else { figures.gpu_payload / 2.0 };
    Line {
        latency: m.nvls.value + 2.0 * levels as f64 * hop,
        hops: 2 + 2 * levels,
        algbw: inside.min(network_payload(figures) / crossings),
    }
}

/// alltoall, gather, scatter, sendrecv, hypercube: messages straight from rank to rank.
fn point_to_point(figures: &Figures, collective: Collective, protocol: Protocol, size: Bytes) -> Line {
    let m = figures.measured();
    let ranks = figures.ranks;
    let per_gpu =
        if figures.inside.is_nvlink() { figures.gpu_line * m.point_to_point.value } else { figures.gpu_payload };
    let (peers_inside, senders) = figures.senders(collective);
    let per_sender = network_payload(figures) / senders as f64;
    let network_start = if figures.domains > 1 { outer_hop(figures, false, protocol) } else { 0.0 };
    if matches!(collective, Collective::SendRecv | Collective::HyperCube) {
        // The ring of nccl-tests' sendrecv leaves a domain at one GPU only.
        let crossing = figures.network.as_ref().map_or(f64::INFINITY, |n| n.payload.min(n.payload_of_a_gpu));
        let channels = size.0.div_ceil(PART).clamp(LEAST_CHANNELS, MOST_CHANNELS) as f64;
        let by_channels = if figures.domains == 1 && figures.inside.is_nvlink() {
            channels * m.point_to_point_channel.value
        } else {
            f64::INFINITY
        };
        let network_hop = if figures.domains > 1 { outer_hop(figures, false, Protocol::Ll) } else { 0.0 };
        let latency = m.start_ll.value + inner_hop(figures, false, Protocol::Ll) + network_hop;
        return Line { latency, hops: 1, algbw: per_gpu.min(crossing).min(by_channels) };
    }
    let (uneven_inside, uneven_outside) = figures.unevenness();
    let inside = to_peers(per_gpu, ranks, peers_inside) / uneven_inside.max(LEAST);
    let peers = if figures.inside == Inside::Nics { 1 } else { figures.domain_gpus };
    let outside = to_peers(per_sender, ranks, ranks - peers.min(ranks)) / uneven_outside.max(LEAST);
    Line {
        latency: m.exchange.value + network_start + m.exchange_per_rank.value * ranks as f64,
        hops: ranks.saturating_sub(1),
        algbw: inside.min(outside),
    }
}

/// NCCL cuts a message within a node into parts of up to 32 steps of 512 KiB, one channel each
/// (src/enqueue.cc, `addP2pToPlan`).
const PART: u64 = 16 << 20;
const LEAST_CHANNELS: u64 = 4;
const MOST_CHANNELS: u64 = 32;

/// Where nothing is sent, nothing holds back.
const LEAST: f64 = 1e-9;

/// The algbw of an exchange in which each rank sends 1/ranks of its buffer to each of `peers` over a link of `bandwidth`.
fn to_peers(bandwidth: f64, ranks: usize, peers: usize) -> f64 {
    if peers == 0 { f64::INFINITY } else { bandwidth * ranks as f64 / peers as f64 }
}

pub(super) fn to_algbw(busbw: f64, collective: Collective, ranks: usize) -> f64 {
    let factor = collective.busbw_factor(u32::try_from(ranks).unwrap_or(u32::MAX));
    if factor > 0.0 { busbw / factor } else { f64::INFINITY }
}

pub(super) fn log2(count: usize) -> usize {
    count.checked_ilog2().unwrap_or(0) as usize
}
