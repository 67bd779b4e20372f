//! The time model: which algorithms can run, which of them NCCL chooses, how long they take, and what limits them.
//!
//! [`tuning`] restates how NCCL estimates times, and so chooses; [`timing`] has the same structure with constants from
//! measurements, and gives the time that is predicted. The difference is deliberate: NCCL's own estimates are good enough
//! to choose by and 30 to 45% too fast below 16 MB.

mod candidates;
pub(crate) mod constants;
mod figures;
mod limit;
#[cfg(test)]
mod tests;
mod timing;
mod tuning;

pub use constants::Constants;

use crate::Cluster;
use crate::prediction::{Prediction, PredictionRow};
use busbw_model::{Algorithm, Bytes, Collective, GBps, Micros, Protocol};
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
    predict_with(Constants::built_in(), cluster, collective, sizes)
}

/// As [`predict`], with other constants: for fitting them.
pub fn predict_with(constants: &Constants, cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> Prediction {
    let figures = Figures::of(cluster, constants);
    let candidates = candidates::of(&figures, cluster, collective);
    let rows = sizes.iter().map(|size| row(&figures, collective, &candidates, *size)).collect();
    let mut assumptions = cluster.assumptions.clone();
    assumptions.extend(figures.assumptions());
    Prediction { collective, ranks: cluster.ranks(), assumptions, rows }
}

/// What tuned kernel sockets between two hosts carry at most: about twice what they carry by default.
pub fn sockets_at_best() -> GBps {
    GBps(2.0 * Constants::built_in().measured.sockets_host.value)
}

fn row(figures: &Figures, collective: Collective, candidates: &[Candidate], size: Bytes) -> PredictionRow {
    let Candidate { algorithm, protocol } = tuning::choose(figures, collective, candidates, size);
    let ranks = u32::try_from(figures.ranks).unwrap_or(u32::MAX);
    let limit = limit::of(figures, collective, algorithm);
    // Without a peer busbw is zero by its factor, and so is its limit, however fast the rank copies to itself.
    let limit_busbw = if limit.algbw.0.is_finite() { collective.busbw(limit.algbw, ranks) } else { GBps(0.0) };
    let estimate = timing::estimate(figures, collective, Candidate { algorithm, protocol }, size);
    // A model of measurements may not promise more than physics.
    let time = estimate.total().max(if limit.algbw.0 > 0.0 { size.0 as f64 / limit.algbw.0 / 1e3 } else { 0.0 });
    let algbw = GBps::from_transfer(size, Micros(time));
    PredictionRow {
        size,
        time: Micros(time),
        algbw,
        busbw: collective.busbw(algbw, ranks),
        limit: limit_busbw,
        algorithm,
        protocol,
        bottleneck: bottleneck(&estimate, &limit, algorithm, protocol),
    }
}

/// In words, what most of the time goes to.
fn bottleneck(estimate: &timing::Estimate, limit: &limit::Limit, algorithm: Algorithm, protocol: Protocol) -> String {
    if estimate.latency >= estimate.transfer {
        let hops = estimate.hops;
        return format!("latency: {hops} step{}", if hops == 1 { "" } else { "s" });
    }
    match protocol {
        Protocol::Simple => limit.what.clone(),
        _ if algorithm == Algorithm::PointToPoint => limit.what.clone(),
        _ => format!("{protocol} protocol, then {}", limit.what),
    }
}
