//! What no setting can exceed: the rate of the lines that an algorithm's bytes cross.

use super::figures::{Figures, Inside};
use super::timing::{to_algbw, tree_crossings};
use busbw_model::{Algorithm, Collective, GBps};

/// A physical limit, and what sets it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limit {
    pub algbw: GBps,
    /// `8 NICs of 50 GB/s`.
    pub what: String,
}

pub(super) fn of(figures: &Figures, collective: Collective, algorithm: Algorithm) -> Limit {
    let inside = Limit { algbw: GBps(inside(figures, collective, algorithm)), what: inside_words(figures, algorithm) };
    let Some(network) = &figures.network else { return inside };
    let outside = GBps(network.line * crossings_share(figures, collective, algorithm));
    // What holds the network back is no line rate, yet it is what people can change.
    let outside_words = |what: String| match figures.busiest.and_then(|busiest| busiest.nic) {
        Some(nic) if algorithm == Algorithm::PointToPoint && nic.times_even > UNEVEN => format!("{nic}, {what}"),
        _ => what,
    };
    let held = network.payload / network.line.max(f64::MIN_POSITIVE) * outside.0 < inside.algbw.0;
    let what = match network.held_back_by {
        Some(why) if held => why.to_string(),
        _ => format!(
            "{} NIC{} of {} GB/s",
            network.nics,
            if network.nics == 1 { "" } else { "s" },
            short(network.nic_line)
        ),
    };
    if outside.0 < inside.algbw.0 {
        Limit { algbw: outside, what: outside_words(what) }
    } else {
        Limit { what: if held { what } else { inside.what.clone() }, ..inside }
    }
}

/// The algbw that the links inside a domain allow.
fn inside(figures: &Figures, collective: Collective, algorithm: Algorithm) -> f64 {
    let line = figures.gpu_line;
    let ranks = figures.ranks;
    match algorithm {
        // Switches add and copy: each GPU sends and receives every byte once.
        Algorithm::Nvls | Algorithm::NvlsTree => line,
        // A GPU in the middle of a chain sends each byte up and down.
        Algorithm::Tree | Algorithm::CollNetDirect | Algorithm::CollNetChain if figures.inside != Inside::Nothing => {
            line / 2.0 * tree_end(figures)
        }
        Algorithm::Tree | Algorithm::CollNetDirect | Algorithm::CollNetChain => line,
        Algorithm::Ring | Algorithm::Pat => to_algbw(line, collective, ranks),
        Algorithm::PointToPoint if matches!(collective, Collective::SendRecv | Collective::HyperCube) => line,
        Algorithm::PointToPoint => {
            let (peers, _) = figures.senders(collective);
            let even = line * ranks as f64 / peers.max(1) as f64;
            even / figures.unevenness().0.max(f64::MIN_POSITIVE)
        }
    }
}

/// With two GPUs each is an end of the chain and sends every byte once.
fn tree_end(figures: &Figures) -> f64 {
    if figures.domain_gpus <= 2 { 2.0 } else { 1.0 }
}

/// The algbw that a domain's NICs allow, over their line rate.
fn crossings_share(figures: &Figures, collective: Collective, algorithm: Algorithm) -> f64 {
    let ranks = figures.ranks;
    match algorithm {
        Algorithm::Tree | Algorithm::NvlsTree => 1.0 / tree_crossings(figures.domains),
        Algorithm::Nvls | Algorithm::CollNetDirect | Algorithm::CollNetChain => 1.0,
        Algorithm::Ring | Algorithm::Pat => to_algbw(1.0, collective, ranks),
        Algorithm::PointToPoint if matches!(collective, Collective::SendRecv | Collective::HyperCube) => {
            figures.network.as_ref().map_or(1.0, |network| network.line_of_a_gpu / network.line.max(f64::MIN_POSITIVE))
        }
        Algorithm::PointToPoint => {
            let (_, senders) = figures.senders(collective);
            let even = ranks as f64 / (senders * (ranks - figures.domain_gpus.min(ranks)).max(1)) as f64;
            even / figures.unevenness().1.max(f64::MIN_POSITIVE)
        }
    }
}

fn inside_words(figures: &Figures, algorithm: Algorithm) -> String {
    let line = short(figures.gpu_line);
    let what = match figures.inside {
        Inside::Switched | Inside::DirectNvLink => format!("NVLink, {line} GB/s per GPU"),
        Inside::Pcie => format!("PCIe, {line} GB/s per GPU"),
        Inside::HostMemory => "copies through host memory: GPUs cannot reach each other".to_string(),
        Inside::Nics => "NICs also between GPUs of a host: NCCL_SHM_DISABLE=1".to_string(),
        Inside::Nothing => format!("PCIe of the GPU, {line} GB/s"),
    };
    match figures.busiest {
        Some(busiest) if algorithm == Algorithm::PointToPoint && busiest.inside > UNEVEN => {
            format!("{}, {what}", busiest.rank)
        }
        _ => what,
    }
}

/// From here on an exchange is said to be uneven.
const UNEVEN: f64 = 1.01;

/// A figure without needless digits: `50`, `12.5`, `164.8`, `0.025`.
fn short(figure: f64) -> String {
    let text = if figure < 1.0 { format!("{figure:.3}") } else { format!("{figure:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
