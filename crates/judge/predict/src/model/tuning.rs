//! How NCCL estimates the time of each algorithm and protocol, and so chooses.
//!
//! Restates `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` of NCCL 2.30.7 (src/graph/tuning.cc), for the channels of
//! [`search`].

use super::candidates::Candidate;
use super::figures::{Figures, by_protocol, is_efa_v3};
use super::search;
use super::timing::{log2, to_algbw};
use crate::cluster::{CpuVendor, Generation, Graph, NetTransport};
use busbw_model::{Algorithm, Bytes, Collective, Protocol};

/// The candidate with the least time; the first of equals. There is always one.
pub(super) fn choose(figures: &Figures, collective: Collective, candidates: &[Candidate], size: Bytes) -> Candidate {
    let simple = Candidate { algorithm: Algorithm::PointToPoint, protocol: Protocol::Simple };
    let times = candidates.iter().map(|candidate| (time(figures, collective, *candidate, size), *candidate));
    times.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(simple, |(_, candidate)| candidate)
}

/// NCCL's estimate, us; infinite where NCCL rules the candidate out.
fn time(figures: &Figures, collective: Collective, candidate: Candidate, size: Bytes) -> f64 {
    let graph = search::graph(figures, candidate.algorithm);
    let algbw = bandwidth(figures, collective, candidate, graph, size);
    if algbw <= 0.0 {
        return f64::INFINITY;
    }
    latency(figures, collective, candidate, graph, size) + size.0 as f64 / (1e3 * algbw)
}

/// Index into NCCL's tables for one node, two, and more.
fn by_nodes(figures: &Figures) -> usize {
    figures.domains.clamp(1, 3) - 1
}

/// The total bandwidth that LL may have.
fn ll_max(figures: &Figures) -> f64 {
    let nccl = figures.nccl();
    let several = if figures.is_amd() { &nccl.ll_max_amd } else { &nccl.ll_max_other };
    match figures.domains {
        0 | 1 => figures.generation().ll_max,
        2 => several[0],
        _ => several[1],
    }
}

/// algbw as NCCL assumes it, GB/s.
fn bandwidth(figures: &Figures, collective: Collective, candidate: Candidate, graph: Graph, size: Bytes) -> f64 {
    let (nccl, constants, nodes) = (figures.nccl(), figures.generation(), by_nodes(figures));
    let Graph { intra, inter, .. } = graph;
    let channels = f64::from(graph.channels);
    let per_channel = if figures.domains <= 2 { intra } else { inter };
    let busbw = channels * per_channel;
    match candidate.algorithm {
        Algorithm::Ring => {
            let busbw = match candidate.protocol {
                Protocol::Ll => (busbw / 2.0).min(ll_max(figures)),
                Protocol::Ll128 => (busbw * nccl.ring_ll128).min(channels * constants.ring_ll128_cap[nodes]),
                Protocol::Simple => busbw,
            };
            to_algbw(busbw, collective, figures.ranks)
        }
        Algorithm::Tree => {
            let busbw = (busbw * nccl.tree_share).min(channels * constants.tree_cap[nodes]);
            let busbw = match candidate.protocol {
                Protocol::Ll => (busbw / 3.8).min(ll_max(figures)),
                Protocol::Ll128 => {
                    let share = if figures.domains == 1 { 7.0 / 9.0 } else { nccl.tree_ll128_share };
                    (busbw * share).min(channels * constants.tree_ll128_cap[nodes])
                }
                Protocol::Simple => busbw,
            };
            let share = if graph.simple_tree { nccl.simple_tree_share } else { 1.0 };
            busbw * share * 0.5 * tree_correction(figures, candidate.protocol, size)
        }
        Algorithm::NvlsTree if is_corrected_as_tree(figures) => {
            nvls_bandwidth(figures, candidate.algorithm, graph) * tree_correction(figures, Protocol::Simple, size)
        }
        Algorithm::Nvls | Algorithm::NvlsTree => nvls_bandwidth(figures, candidate.algorithm, graph),
        Algorithm::CollNetDirect | Algorithm::CollNetChain => channels * intra * 0.5,
        Algorithm::Pat => busbw * 0.75,
        Algorithm::PointToPoint => f64::MAX,
    }
}

/// Blackwells beside x86 processors.
fn is_corrected_as_tree(figures: &Figures) -> bool {
    let x86 = matches!(figures.cluster.cpu.vendor, CpuVendor::Intel | CpuVendor::Amd);
    x86 && figures.cluster.gpu.generation >= Generation::Blackwell
}

fn nvls_bandwidth(figures: &Figures, algorithm: Algorithm, graph: Graph) -> f64 {
    let constants = figures.generation();
    let channels = f64::from(graph.channels);
    if channels < 2.0 {
        return 0.0;
    }
    let intra = graph.intra * constants.nvls_efficiency * (channels - 1.0) / channels * 2.0;
    let per_channel = match (algorithm, figures.domains) {
        (Algorithm::NvlsTree, 0..=2) => intra.min(2.0 * graph.inter).min(constants.nvls_tree_cap[by_nodes(figures)]),
        (Algorithm::NvlsTree, _) => intra.min(graph.inter).min(constants.nvls_tree_cap[by_nodes(figures)]),
        _ => intra,
    };
    to_algbw(channels * per_channel, Collective::AllReduce, figures.ranks)
}

/// How far trees stay below their bandwidth, by size.
fn tree_correction(figures: &Figures, protocol: Protocol, size: Bytes) -> f64 {
    let nccl = figures.nccl();
    let table = match protocol {
        Protocol::Ll => &nccl.tree_ll,
        Protocol::Ll128 => &nccl.tree_ll128,
        Protocol::Simple => &nccl.tree_simple,
    };
    let index = (size.0 >> 6).checked_ilog2().unwrap_or(0) as usize;
    table.get(index).copied().unwrap_or(1.0)
}

/// NCCL's latency, us.
fn latency(figures: &Figures, collective: Collective, candidate: Candidate, graph: Graph, size: Bytes) -> f64 {
    let nccl = figures.nccl();
    let protocol = candidate.protocol;
    let simple = protocol == Protocol::Simple;
    let (ranks, domains, gpus) = (figures.ranks as f64, figures.domains as f64, figures.domain_gpus as f64);
    let (inner_tree, inner_ring) =
        if graph.by_nvlink { (&nccl.nvlink_tree, &nccl.nvlink_ring) } else { (&nccl.pcie_tree, &nccl.pcie_ring) };
    let plugin = plugin_latency(figures) * if simple { 2.0 } else { 1.0 };
    let rounds = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
    let levels = log2(figures.domains) as f64;
    match candidate.algorithm {
        Algorithm::Ring => {
            let outer = rounds * (domains - 1.0);
            let network = if figures.domain_gpus == 1 { &nccl.network_tree } else { &nccl.network_ring };
            let overhead =
                if figures.domains > 1 { net_overhead(figures) * if simple { 3.0 } else { 1.0 } } else { 0.0 };
            let inner = by_protocol(inner_ring, protocol).max(overhead);
            let mut time = by_protocol(&nccl.base_ring, protocol)
                + (rounds * (ranks - 1.0) - outer) * inner
                + outer * (by_protocol(network, protocol) + plugin);
            if simple && collective == Collective::AllReduce && figures.domains > 1 && many_bytes(size, figures) {
                time *= if figures.cluster.gpu.generation < Generation::Ampere { 1.9 } else { 1.4 };
            }
            time
        }
        Algorithm::Tree => {
            by_protocol(&nccl.base_tree, protocol)
                + 2.0
                    * ((gpus - 1.0) * by_protocol(inner_tree, protocol)
                        + levels * (by_protocol(&nccl.network_tree, protocol) + plugin))
        }
        Algorithm::Nvls => nccl.nvls + if figures.domains > 1 { nccl.nvls_network + plugin } else { 0.0 },
        Algorithm::NvlsTree => nccl.nvls_tree + 2.0 * levels * (nccl.nvls_tree_network + plugin),
        Algorithm::CollNetDirect | Algorithm::CollNetChain => {
            2.0 * ((gpus - 1.0).min(1.0) * nccl.collnet_direct + 0.4 * (gpus - 1.0))
                + nccl.collnet_direct_network
                + plugin
        }
        Algorithm::Pat => nccl.pat_base + levels * (nccl.pat_network + plugin) / 3.5 + 2.8 * ranks,
        // Messages from rank to rank take LL while they are small.
        Algorithm::PointToPoint => {
            if simple == point_to_point_is_large(figures, size) {
                0.0
            } else {
                1.0
            }
        }
    }
}

/// `NCCL_P2P_LL_THRESHOLD`: 16 KiB to each peer.
fn point_to_point_is_large(figures: &Figures, size: Bytes) -> bool {
    size.0 / figures.ranks.max(1) as u64 > 16 << 10
}

/// From 64 bytes per channel and rank on.
fn many_bytes(size: Bytes, figures: &Figures) -> bool {
    size.0 / (u64::from(search::used_channels(figures).max(1)) * figures.ranks.max(1) as u64) >= 64
}

/// `NCCL_NET_OVERHEAD`: us that the CPU takes to hand a message to the NIC.
fn net_overhead(figures: &Figures) -> f64 {
    if figures.is_amd() { 2.0 } else { 1.0 }
}

/// What the net plugin tells NCCL about its latency, us.
fn plugin_latency(figures: &Figures) -> f64 {
    let is_latest = figures.cluster.nics.as_ref().is_some_and(is_efa_v3);
    match figures.network.as_ref().map(|network| network.transport) {
        Some(NetTransport::Efa) if is_latest => figures.nccl().plugin_efa_v3,
        Some(NetTransport::Efa) => figures.nccl().plugin_efa,
        _ => 0.0,
    }
}
