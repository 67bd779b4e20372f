//! What the switches leave of the NICs' rate: flows that a hash puts on one link share it.
//!
//! NCCL knows nothing of this, so it changes no choice of algorithm, only the time.

use super::figures::Figures;
use crate::calibration::Calibration;
use crate::cluster::{Routing, Wiring};
use crate::fabric::payload;
use crate::simulation::{Distribution, Options, Simulation};
use crate::traffic::Traffic;
use crate::{Cluster, simulate};
use busbw_model::{Algorithm, GBps};
use std::cell::OnceCell;
use std::num::NonZero;

/// Rates are sums of parts of rates.
const SAME: f64 = 1e-6;
/// Flows times seeds that are worth the time: a table is predicted in a moment.
const STEPS: usize = 1 << 21;
/// Enough for percentiles.
const SEEDS: usize = 1000;
/// On the largest fabrics, where flows are so many that seeds hardly differ.
const LEAST_SEEDS: usize = 64;

/// The fabric of a cluster, simulated when somebody asks, and then only once: predictions of a cluster share it.
#[derive(Debug)]
pub struct Congestion {
    /// None where nothing is known of the wiring, or nothing leaves an NVLink domain.
    cluster: Option<Cluster>,
    rings: OnceCell<Option<Simulation>>,
    trees: OnceCell<Option<Simulation>>,
}

impl Congestion {
    pub fn of(cluster: &Cluster) -> Self {
        Congestion { cluster: wired(cluster), rings: OnceCell::new(), trees: OnceCell::new() }
    }

    /// Whether another cluster has the same: calibration and NCCL's choice change nothing of it.
    pub fn is_of(&self, cluster: &Cluster) -> bool {
        self.cluster == wired(cluster)
    }

    /// What large messages of an algorithm get from the fabric, over hash seeds; none where the algorithm's flows are not
    /// simulated.
    pub(super) fn simulated(&self, algorithm: Algorithm) -> Option<&Simulation> {
        let cluster = self.cluster.as_ref()?;
        let found = match algorithm {
            Algorithm::Ring => self.rings.get_or_init(|| simulation(cluster, Traffic::of_cluster(cluster).ok()?)),
            Algorithm::Tree | Algorithm::NvlsTree => {
                self.trees.get_or_init(|| simulation(cluster, Traffic::trees_of_cluster(cluster).ok()?))
            }
            _ => &None,
        };
        // Where no seed is slower than the NICs, there is nothing to tell.
        found.as_ref().filter(|simulation| is_held_back(simulation.busbw.min, simulation))
    }
}

/// Settings that choose an algorithm, whose flows are simulated each for itself.
const CHOICE: [&str; 2] = ["NCCL_ALGO", "NCCL_PROTO"];

/// As much of a cluster as the flows between its hosts depend on.
fn wired(cluster: &Cluster) -> Option<Cluster> {
    let wired = cluster.domains() > 1 && cluster.nics.is_some() && cluster.fabric.wiring != Wiring::SingleSwitch;
    wired.then(|| {
        let mut cluster = cluster.clone();
        cluster.environment.retain(|name, _| !CHOICE.contains(&name.as_str()));
        Cluster {
            calibration: Calibration::NONE,
            collective: None,
            graphs: None,
            gpus_per_process: None,
            assumptions: Vec::new(),
            ..cluster
        }
    })
}

fn simulation(cluster: &Cluster, traffic: Traffic) -> Option<Simulation> {
    let seeds = (STEPS / traffic.flows.len().max(1)).clamp(LEAST_SEEDS, SEEDS);
    let seeds = NonZero::new(u32::try_from(seeds).ok()?)?;
    // What goes on inside a domain is the time model's.
    let traffic = Traffic { gpu_load: 0.0, ..traffic };
    // What cannot be simulated is told by `busbw simulate`; the NICs' rate holds then.
    simulate(cluster, &traffic, &Options { seeds, ..Options::default() }).ok()
}

/// The busbw that the worst seed, a slow one (p5), the median and a fast one (p95) leave, as the time model measures it: both have their share
/// of a link's rate that is payload. None where no link of the fabric holds anything back.
pub(super) fn caps(simulation: &Simulation, figures: &Figures) -> [Option<f64>; 4] {
    let arrives = figures.network.as_ref().map_or(1.0, |network| {
        network.payload_of_a_gpu / network.line_of_a_gpu.max(f64::MIN_POSITIVE) / payload(network.transport)
    });
    let Distribution { min, p5, p50, p95, .. } = simulation.busbw;
    [min, p5, p50, p95].map(|busbw| is_held_back(busbw, simulation).then_some(busbw.0 * arrives))
}

fn is_held_back(busbw: GBps, simulation: &Simulation) -> bool {
    busbw.0 <= simulation.unshared.0 * (1.0 - SAME)
}

/// In words, what of the fabric holds large messages back.
pub(super) fn words(simulation: &Simulation, cluster: &Cluster) -> String {
    let deciding = simulation.links.first();
    match (cluster.fabric.routing, deciding) {
        (Routing::Hash, Some(link)) => format!("the fabric: flows share links of {} (hash)", link.rate),
        (_, Some(link)) => format!("the fabric: {}", link.name),
        (_, None) => "the fabric".into(),
    }
}
