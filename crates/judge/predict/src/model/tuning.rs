//! How NCCL estimates the time of each algorithm and protocol, and so chooses.
//!
//! Restates `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` of NCCL 2.30.7 (src/graph/tuning.cc), with the outcome of the
//! graph search (src/graph/search.cc) in closed form: its usual results are tests below.

use super::candidates::Candidate;
use super::figures::{Figures, by_protocol};
use super::timing::{log2, to_algbw};
use crate::cluster::{Generation, NetTransport};
use busbw_model::{Algorithm, Bytes, Collective, Protocol};

/// The candidate with the least time; the first of equals. There is always one.
pub(super) fn choose(figures: &Figures, collective: Collective, candidates: &[Candidate], size: Bytes) -> Candidate {
    let simple = Candidate { algorithm: Algorithm::PointToPoint, protocol: Protocol::Simple };
    let times = candidates.iter().map(|candidate| (time(figures, collective, *candidate, size), *candidate));
    times.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(simple, |(_, candidate)| candidate)
}

/// Channels and the bandwidth of each, GB/s: what the graph search finds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Layout {
    channels: f64,
    intra: f64,
    inter: f64,
}

/// A lower speed per channel is tried while it is above this share of the first that fits.
const LOWER_STEPS: f64 = 0.49;
/// NCCL's limit on channels, halved because two are made of each found.
const MOST_CHANNELS: f64 = 32.0;

fn layout(figures: &Figures, algorithm: Algorithm) -> Layout {
    let constants = figures.generation();
    let total = if figures.inside.is_nvlink() {
        figures.gpu_line / constants.sold_nvlink * constants.nvlink
    } else {
        figures.gpu_line
    };
    let gpus = figures.domain_gpus as f64;
    // All but rings may use what a ring leaves idle at its ends.
    let reach = if algorithm == Algorithm::Ring || gpus < 2.0 { total } else { total * gpus / (gpus - 1.0) };
    let Some(network) = &figures.network else {
        let (channels, speed) = best_step(&constants.steps, true, |step| (reach / step).floor().min(MOST_CHANNELS));
        return Layout { channels, intra: speed, inter: speed };
    };
    let nic = network.line / network.nics.max(1) as f64;
    let (channels, inter) = best_step(&constants.network_steps, false, |step| {
        let per_nic = (nic / step).floor();
        (per_nic * network.nics as f64).min((reach / step * 1.05).floor()).min(MOST_CHANNELS)
    });
    let two_way = algorithm != Algorithm::Ring;
    let intra = if two_way { (reach / channels.max(1.0)).min(2.0 * inter).max(inter) } else { inter };
    Layout { channels, intra, inter }
}

/// The step with the most bandwidth in all, and its channels. Among equals, the search ends on the lowest within a node,
/// which gives more channels, and on the highest with NICs, of which each is given one channel.
fn best_step(steps: &[f64], more_channels: bool, channels: impl Fn(f64) -> f64) -> (f64, f64) {
    let first = steps.iter().copied().find(|step| channels(*step) >= 1.0);
    let Some(first) = first else { return (1.0, steps.last().copied().unwrap_or(0.1)) };
    let mut best = (channels(first), first);
    for step in steps.iter().copied().filter(|step| *step < first && *step >= LOWER_STEPS * first) {
        let found = channels(step);
        let (total, best_total) = (found * step, best.0 * best.1);
        if total > best_total || (more_channels && total >= best_total) {
            best = (found, step);
        }
    }
    best
}

/// NCCL's estimate, us; infinite where NCCL rules the candidate out.
fn time(figures: &Figures, collective: Collective, candidate: Candidate, size: Bytes) -> f64 {
    let layout = layout(figures, candidate.algorithm);
    let algbw = bandwidth(figures, collective, candidate, layout, size);
    if algbw <= 0.0 {
        return f64::INFINITY;
    }
    latency(figures, collective, candidate, layout, size) + size.0 as f64 / (1e3 * algbw)
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
fn bandwidth(figures: &Figures, collective: Collective, candidate: Candidate, layout: Layout, size: Bytes) -> f64 {
    let (nccl, constants, nodes) = (figures.nccl(), figures.generation(), by_nodes(figures));
    let Layout { channels, intra, inter } = layout;
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
            busbw * 0.5 * tree_correction(figures, candidate.protocol, size)
        }
        Algorithm::Nvls | Algorithm::NvlsTree => nvls_bandwidth(figures, candidate.algorithm, layout),
        Algorithm::CollNetDirect | Algorithm::CollNetChain => channels * intra * 0.5,
        Algorithm::Pat => to_algbw(busbw * 0.75, collective, figures.ranks),
        Algorithm::PointToPoint => f64::MAX,
    }
}

fn nvls_bandwidth(figures: &Figures, algorithm: Algorithm, layout: Layout) -> f64 {
    let constants = figures.generation();
    let channels = layout.channels;
    if channels < 2.0 {
        return 0.0;
    }
    let intra = layout.intra * constants.nvls_efficiency * (channels - 1.0) / channels * 2.0;
    let per_channel = match (algorithm, figures.domains) {
        (Algorithm::NvlsTree, 0..=2) => intra.min(2.0 * layout.inter).min(constants.nvls_tree_cap[by_nodes(figures)]),
        (Algorithm::NvlsTree, _) => intra.min(layout.inter).min(constants.nvls_tree_cap[by_nodes(figures)]),
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
fn latency(figures: &Figures, collective: Collective, candidate: Candidate, layout: Layout, size: Bytes) -> f64 {
    let nccl = figures.nccl();
    let protocol = candidate.protocol;
    let simple = protocol == Protocol::Simple;
    let (ranks, domains, gpus) = (figures.ranks as f64, figures.domains as f64, figures.domain_gpus as f64);
    let (inner_tree, inner_ring) = if figures.inside.is_nvlink() {
        (&nccl.nvlink_tree, &nccl.nvlink_ring)
    } else {
        (&nccl.pcie_tree, &nccl.pcie_ring)
    };
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
            if simple && collective == Collective::AllReduce && figures.domains > 1 && many_bytes(size, layout, figures)
            {
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
fn many_bytes(size: Bytes, layout: Layout, figures: &Figures) -> bool {
    size.0 as f64 / (layout.channels.max(1.0) * figures.ranks as f64) >= 64.0
}

/// `NCCL_NET_OVERHEAD`: us that the CPU takes to hand a message to the NIC.
fn net_overhead(figures: &Figures) -> f64 {
    if figures.is_amd() { 2.0 } else { 1.0 }
}

/// What the net plugin tells NCCL about its latency, us.
fn plugin_latency(figures: &Figures) -> f64 {
    match figures.network.as_ref().map(|network| network.transport) {
        Some(NetTransport::Efa) => figures.nccl().plugin_efa,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Generation as G, NetTransport::InfiniBand};
    use crate::model::constants::Constants;
    use crate::model::tests::hgx;

    /// What NCCL's logs show for these machines (`Pattern 4, … nChannels 8, bw 24.000000/24.000000`).
    #[test]
    fn the_graph_search_ends_as_in_logs() {
        let cases = [
            (hgx(G::Ampere, 1, 8, 200.0, InfiniBand), Algorithm::Ring, (12.0, 20.0)),
            (hgx(G::Ampere, 2, 8, 200.0, InfiniBand), Algorithm::Ring, (8.0, 24.0)),
            (hgx(G::Hopper, 1, 8, 400.0, InfiniBand), Algorithm::Ring, (12.0, 30.0)),
            (hgx(G::Hopper, 2, 8, 400.0, InfiniBand), Algorithm::Ring, (8.0, 48.0)),
        ];
        for (cluster, algorithm, (channels, inter)) in cases {
            let figures = Figures::of(&cluster, Constants::built_in());
            let found = layout(&figures, algorithm);
            assert_eq!(
                (found.channels, found.inter),
                (channels, inter),
                "{} nodes of {:?}",
                cluster.nodes,
                cluster.gpu
            );
        }
    }
}
