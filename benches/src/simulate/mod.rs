//! The benchmark of the fabric simulation: the same three-level fabric from 512 to 65,536 GPUs.

mod report;

pub use report::{Report, table};

use crate::measure::{Sample, Tool};
use crate::program::Outcome;
use crate::random::Random;
use busbw_model::{GBps, PathType};
use busbw_predict::cluster::{
    Cores, Cpu, CpuVendor, Fabric, Generation, Gpu, GpuLinks, NetTransport, Nics, Routing, Uplinks, Wiring,
};
use busbw_predict::{Calibration, Cluster, Options, SimulationError, Traffic, simulate};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;

/// The clusters measured, in GPUs.
pub const SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
/// GPUs of a node, and its NICs.
const PER_NODE: u32 = 8;
/// Seeds of the cases with many.
const SEEDS: u32 = 1000;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A ring and a double binary tree per NIC, one seed each.
    RingAndTree,
    /// Rings through neighbouring nodes, 1,000 seeds.
    ManySeeds,
    /// Rings through nodes in random places, so that nearly every flow crosses the core: 1,000 seeds.
    ManySeedsScattered,
}

impl Case {
    pub const ALL: [Case; 3] = [Case::RingAndTree, Case::ManySeeds, Case::ManySeedsScattered];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Case::RingAndTree => "ring-and-tree",
            Case::ManySeeds => "many-seeds",
            Case::ManySeedsScattered => "many-seeds-scattered",
        }
    }

    /// In tables.
    pub fn title(self) -> &'static str {
        match self {
            Case::RingAndTree => "ring and tree, 1 seed",
            Case::ManySeeds => "ring, 1,000 seeds",
            Case::ManySeedsScattered => "ring over scattered nodes, 1,000 seeds",
        }
    }

    /// The most seconds and bytes that a case may take at some size, where there is a goal.
    pub fn goal(self, gpus: u32) -> Option<(f64, Option<u64>)> {
        match (self, gpus) {
            (Case::RingAndTree, 65_536) => Some((60.0, Some(4 << 30))),
            (Case::ManySeeds | Case::ManySeedsScattered, 2048) => Some((10.0, None)),
            _ => None,
        }
    }

    /// Simulates the case on one thread; returns the lowest busbw found, which shows that something was simulated.
    pub fn simulate(self, gpus: u32) -> Result<GBps, SimulationError> {
        let cluster = three_levels(gpus);
        let rings = Traffic::of_cluster(&cluster)?;
        let lowest = |traffic: &Traffic, seeds| {
            let seeds = NonZero::new(seeds).unwrap_or(NonZero::<u32>::MIN);
            let options = Options { seeds, threads: Some(NonZero::<usize>::MIN), ..Options::default() };
            simulate(&cluster, traffic, &options).map(|simulation| simulation.busbw.min)
        };
        match self {
            Case::RingAndTree => {
                let (ring, tree) = (lowest(&rings, 1)?, lowest(&Traffic::trees_of_cluster(&cluster)?, 1)?);
                Ok(GBps(ring.0.min(tree.0)))
            }
            Case::ManySeeds => lowest(&rings, SEEDS),
            Case::ManySeedsScattered => {
                let mut places: Vec<u32> = (0..gpus / PER_NODE).collect();
                Random::new(1).shuffle(&mut places);
                lowest(&rings.placed(&places), SEEDS)
            }
        }
    }
}

/// Nodes of 8 GPUs and 8 NICs of 400 Gbit/s on three levels without oversubscription: 4 nodes under a leaf, 16 leaves and 32
/// spines in a pod, 16 cores.
fn three_levels(gpus: u32) -> Cluster {
    let one = Uplinks { count: 1, rate: GBps(50.0) };
    let cores = Some(Cores { leaves_per_pod: 16, switches: 16, uplinks: one });
    Cluster {
        nodes: (gpus / PER_NODE) as usize,
        gpus_per_node: PER_NODE as usize,
        gpu: Gpu::new("NVIDIA H100", Generation::Hopper),
        links: GpuLinks::NvSwitch { per_gpu: GBps(450.0), domain: PER_NODE as usize, nvls: true },
        cpu: Cpu { vendor: CpuVendor::Intel, sockets: 2, socket_link: GBps(40.0) },
        nics: Some(Nics {
            count: PER_NODE as usize,
            rate: GBps(50.0),
            transport: NetTransport::Roce,
            flow_limit: None,
            gpu_direct: true,
            place: PathType::Pix,
            pcie: GBps(52.0),
        }),
        fabric: Fabric {
            wiring: Wiring::LeafSpine { nodes_per_leaf: 4, spines: 32, uplinks: one, cores },
            routing: Routing::Hash,
        },
        nccl: None,
        environment: BTreeMap::new(),
        collective: None,
        calibration: Calibration::NONE,
        graphs: None,
        gpus_per_process: None,
        assumptions: Vec::new(),
    }
}

/// A case at a size, and what it took.
#[derive(Debug)]
pub struct Measured {
    /// What was simulated.
    pub case: Case,
    /// The size.
    pub gpus: u32,
    /// One sample per run.
    pub samples: Vec<Sample>,
}

/// Measures every case at every size of at most `largest` GPUs, `runs` times in turn. Each run is a process of its own, so
/// that its memory can be told: `program` is called with `--only CASE --gpus N`.
pub fn measure(
    program: &Path,
    largest: u32,
    runs: u16,
    scratch: &Path,
    mut progress: impl FnMut(&str),
) -> Outcome<Vec<Measured>> {
    let sizes = SIZES.into_iter().filter(|&gpus| gpus <= largest);
    let cases = sizes.flat_map(|gpus| Case::ALL.map(|case| Measured { case, gpus, samples: Vec::new() }));
    let mut measured: Vec<Measured> = cases.collect();
    for run in 1..=runs {
        progress(&format!("round {run} of {runs}"));
        for of_case in &mut measured {
            let arguments =
                ["--only".into(), of_case.case.name().into(), "--gpus".into(), of_case.gpus.to_string().into()];
            let tool = Tool { program: program.to_path_buf(), arguments: arguments.into(), answers: &[0] };
            of_case.samples.push(tool.run(scratch)?);
        }
    }
    Ok(measured)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn every_case_simulates_something() {
        for case in Case::ALL {
            let busbw = case.simulate(512).unwrap();
            // Below what 8 NICs carry, because hashed flows share links, and above none.
            assert!(busbw.0 > 10.0 && busbw.0 < 8.0 * 48.25, "{}: {busbw}", case.name());
        }
    }
}
