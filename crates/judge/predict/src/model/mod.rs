//! The time model: which algorithms can run, which of them NCCL chooses, how long they take, and what limits them.
//!
//! [`tuning`] restates how NCCL estimates times, and so chooses; [`timing`] has the same structure with constants from
//! measurements, and gives the time that is predicted. The difference is deliberate: NCCL's own estimates are good enough
//! to choose by and 30 to 45% too fast below 16 MB.

mod band;
mod candidates;
pub(crate) mod constants;
mod fabric;
mod figures;
mod limit;
mod proposals;
mod search;
#[cfg(test)]
mod tests;
mod timing;
mod tuning;

pub(crate) use band::class;
pub use constants::Constants;
pub use fabric::Congestion;
pub use proposals::proposals;

use crate::Cluster;
use crate::load::Busiest;
use crate::prediction::{Channels, FabricEffect, Prediction, PredictionRow};
use crate::simulation::Simulation;
use crate::traffic::crossings;
use busbw_model::{Algorithm, Bytes, Collective, GBps, Load, Micros, Protocol};
use candidates::Candidate;
use figures::Figures;

/// What `collective` should take on `cluster`, one row per size. A size of nccl-tests: the whole buffer for all_gather,
/// reduce_scatter and alltoall. The algorithm of each size is the one that NCCL would choose (`NCCL_ALGO` and `NCCL_PROTO`
/// of the cluster's environment are obeyed); the time is what such machines have been measured to take.
///
/// ```
/// use busbw_model::{Bytes, Collective};
/// let text = "nodes = 2\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"nvlink4 NVSwitch\"\n\
///             nics_per_node = 8\nnic_gbps = 400\ntransport = \"ib\"\n";
/// let cluster = busbw_predict::cluster::parse(text)?;
/// let rows = busbw_predict::predict(&cluster, Collective::AllReduce, &[Bytes(8 << 30)]).rows;
/// assert!(rows[0].busbw.0 > 430.0 && rows[0].busbw.0 < rows[0].limit.0);
/// # Ok::<(), busbw_predict::cluster::DescriptionError>(())
/// ```
pub fn predict(cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> Prediction {
    predict_over(&Congestion::of(cluster), cluster, collective, sizes)
}

/// As [`predict`], where somebody predicts more than once for a cluster: `congestion` is [`Congestion::of`] it.
pub fn predict_over(congestion: &Congestion, cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> Prediction {
    predict_by(Constants::built_in(), congestion, cluster, collective, sizes)
}

/// As [`predict_over`], with other constants.
pub(crate) fn predict_by(
    constants: &Constants,
    congestion: &Congestion,
    cluster: &Cluster,
    collective: Collective,
    sizes: &[Bytes],
) -> Prediction {
    prediction(&Figures::of(cluster, constants), congestion, collective, sizes)
}

/// As [`predict`] for an exchange between all ranks that is not even. A size is what a rank sends in the mean.
pub fn predict_load(cluster: &Cluster, load: &Load, sizes: &[Bytes]) -> Prediction {
    let busiest = Busiest::of(load, cluster);
    let figures = Figures { busiest: busiest.as_ref(), ..Figures::of(cluster, Constants::built_in()) };
    let predicted = prediction(&figures, &Congestion::of(cluster), Collective::AllToAllV, sizes);
    Prediction { busiest, ..predicted }
}

/// As [`predict`], with other constants: for fitting them.
pub fn predict_with(constants: &Constants, cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> Prediction {
    predict_by(constants, &Congestion::of(cluster), cluster, collective, sizes)
}

fn prediction(figures: &Figures, fabric: &Congestion, collective: Collective, sizes: &[Bytes]) -> Prediction {
    let cluster = figures.cluster;
    let candidates = candidates::of(figures, cluster, collective);
    let rows: Vec<_> = sizes.iter().map(|size| row(figures, fabric, collective, &candidates, *size)).collect();
    let mut assumptions = cluster.assumptions.clone();
    assumptions.extend(figures.assumptions());
    let largest = rows.iter().max_by_key(|row| row.size);
    let simulation = largest.and_then(|row| fabric.simulated(row.algorithm));
    assumptions.extend(simulation.iter().flat_map(|simulation| simulation.assumptions.clone()));
    Prediction {
        collective,
        ranks: cluster.ranks(),
        assumptions,
        calibrated: None,
        fabric: simulation.map(effect),
        busiest: None,
        channels: channels(figures),
        rings: crossings(cluster),
        rows,
    }
}

/// What the search finds for rings, trees and NVLS.
fn channels(figures: &Figures) -> Vec<Channels> {
    let nvls = if figures.domains > 1 { Algorithm::NvlsTree } else { Algorithm::Nvls };
    let used = search::used_channels(figures);
    let of = |algorithm: Algorithm| {
        let graph = search::graph(figures, algorithm);
        (graph.channels > 0 && figures.ranks > 1).then_some(Channels {
            algorithm,
            found: graph.channels,
            intra: GBps(graph.intra),
            inter: GBps(graph.inter),
            used: (algorithm != nvls).then_some(used),
        })
    };
    [Algorithm::Ring, Algorithm::Tree, nvls].into_iter().filter_map(of).collect()
}

fn effect(simulation: &Simulation) -> FabricEffect {
    FabricEffect {
        busbw: simulation.busbw,
        unshared: simulation.unshared,
        seeds: simulation.per_seed.len(),
        as_the_worst: simulation.share_at_most(simulation.busbw.min),
    }
}

/// Whether data goes through the memory of hosts: inside a domain, and between them.
pub(crate) fn copies(cluster: &Cluster) -> (bool, bool) {
    band::copies(&Figures::of(cluster, Constants::built_in()))
}

/// What tuned kernel sockets between two hosts carry at most: about twice what they carry by default.
pub fn sockets_at_best() -> GBps {
    GBps(2.0 * Constants::built_in().measured.sockets_host.value)
}

fn row(
    figures: &Figures,
    fabric: &Congestion,
    collective: Collective,
    candidates: &[Candidate],
    size: Bytes,
) -> PredictionRow {
    let candidate = tuning::choose(figures, collective, candidates, size);
    let Candidate { algorithm, protocol } = candidate;
    let ranks = u32::try_from(figures.ranks).unwrap_or(u32::MAX);
    let limit = limit::of(figures, collective, algorithm);
    // Without a peer busbw is zero by its factor, and so is its limit, however fast the rank copies to itself.
    let limit_busbw = if limit.algbw.0.is_finite() { collective.busbw(limit.algbw, ranks) } else { GBps(0.0) };
    let simulation = fabric.simulated(algorithm);
    let caps = simulation.map_or([None; 4], |simulation| fabric::caps(simulation, figures));
    let estimate = |cap: Option<f64>| timing::estimate(figures, collective, candidate, size, cap);
    // The slow seed has the least; where it is not held back, none is.
    let is_hashed = caps[1].is_some();
    let [worst, slow, estimated, fast] = if is_hashed { caps.map(estimate) } else { [estimate(None); 4] };
    // A model of measurements may not promise more than physics.
    let least = if limit.algbw.0 > 0.0 { size.0 as f64 / limit.algbw.0 / 1e3 } else { 0.0 };
    let algbw = |time: f64| GBps::from_transfer(size, Micros(time.max(least)));
    let busbw = |time: f64| collective.busbw(algbw(time), ranks);
    let time = estimated.total().max(least);
    let error = band::of(figures, size);
    // A hash that is polarised is as the worst seed, every time.
    let slowest = (slow.total() * error.slowest).max(worst.total());
    PredictionRow {
        size,
        time: Micros(time),
        algbw: algbw(time),
        busbw: busbw(time),
        band: (busbw(slowest), busbw(fast.total() * error.fastest)),
        over_seeds: is_hashed.then(|| (busbw(slow.total()), busbw(fast.total()))),
        limit: limit_busbw,
        algorithm,
        protocol,
        bottleneck: bottleneck(
            &estimated,
            &what(figures, simulation.filter(|_| estimated.by_fabric), limit),
            candidate,
        ),
    }
}

/// In words, what sets the bandwidth: the fabric where it holds large messages back.
fn what(figures: &Figures, fabric: Option<&Simulation>, limit: limit::Limit) -> String {
    fabric.map_or(limit.what, |simulation| fabric::words(simulation, figures.cluster))
}

/// In words, what most of the time goes to; `bandwidth` is what sets the bandwidth.
fn bottleneck(estimate: &timing::Estimate, bandwidth: &str, Candidate { algorithm, protocol }: Candidate) -> String {
    if estimate.latency >= estimate.transfer {
        let hops = estimate.hops;
        return format!("latency: {hops} step{}", if hops == 1 { "" } else { "s" });
    }
    match protocol {
        Protocol::Simple => bandwidth.to_owned(),
        _ if algorithm == Algorithm::PointToPoint => bandwidth.to_owned(),
        _ => format!("{protocol} protocol, then {bandwidth}"),
    }
}
