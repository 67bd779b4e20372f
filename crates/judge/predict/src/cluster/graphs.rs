//! What NCCL's search found on a machine, where its log says so: channels and their speed.

use super::{Cluster, Generation, GpuLinks, Nics};
use busbw_model::{GraphPattern, Run};
use std::ops::RangeInclusive;

/// What the search found for rings, trees and NVLS, and the machine that it looked at: for another one it says nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Graphs {
    machine: Machine,
    pub ring: Graph,
    pub tree: Option<Graph>,
    pub nvls: Option<Graph>,
}

/// What the search depends on.
#[derive(Debug, Clone, PartialEq)]
struct Machine {
    alone: bool,
    gpus: usize,
    links: GpuLinks,
    nics: Option<Nics>,
}

impl Machine {
    fn of(cluster: &Cluster) -> Self {
        Machine {
            alone: cluster.domains() == 1,
            gpus: cluster.gpus_per_node,
            links: cluster.links.clone(),
            nics: cluster.nics.clone(),
        }
    }
}

/// Channels of one speed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Graph {
    pub channels: u32,
    /// GB/s of a channel between the GPUs of a domain, and between domains.
    pub intra: f64,
    pub inter: f64,
    /// NVLinks alone join the GPUs.
    pub by_nvlink: bool,
    /// Stores of 128 bytes arrive whole on all its paths.
    pub keeps_order: bool,
    /// A tree whose first GPU alone sends to the network.
    pub simple_tree: bool,
}

/// NCCL's numbers of patterns (`src/graph/graph.h`).
const RING: RangeInclusive<i32> = 4..=4;
const SIMPLE_TREE: i32 = 3;
const NVLS: RangeInclusive<i32> = 5..=5;

/// NCCL's types of paths, the best first (`src/graph/topo.h`).
const PATHS: [&str; 10] = ["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"];

impl Graphs {
    pub(super) const TREES: RangeInclusive<i32> = 1..=3;

    /// Adds what a log says of the search to the cluster that was derived from it.
    pub(super) fn add(run: &Run, cluster: &mut Cluster) {
        let generation = cluster.gpu.generation;
        // Of several communicators nobody knows which line is whose.
        let several = run.communicators.len() > 1;
        let graph = |numbers: RangeInclusive<i32>| {
            let lines = run.nccl.patterns.iter().filter(|line| numbers.contains(&line.pattern));
            let found: Vec<Graph> = lines.filter_map(|line| Graph::of(line, generation)).collect();
            let first = *found.first()?;
            let known = !several || found.iter().all(|graph| *graph == first);
            // Ranks agree on the least that any of them found.
            known.then(|| found.into_iter().fold(first, Graph::least))
        };
        if let Some(ring) = graph(RING) {
            let (tree, nvls) = (graph(Self::TREES), graph(NVLS).filter(|nvls| nvls.channels > 0));
            cluster.graphs = Some(Graphs { machine: Machine::of(cluster), ring, tree, nvls });
        }
    }

    /// What the search found on this very machine.
    pub fn of(cluster: &Cluster) -> Option<&Graphs> {
        cluster.graphs.as_ref().filter(|graphs| graphs.machine == Machine::of(cluster))
    }
}

impl Graph {
    fn of(line: &GraphPattern, generation: Generation) -> Option<Graph> {
        let place = |name: &Option<String>| PATHS.iter().position(|path| Some(*path) == name.as_deref());
        let at = |name: &str| PATHS.iter().position(|path| *path == name);
        let (intra, inter) = (place(&line.type_intra), place(&line.type_inter));
        // Hopper and later keep the order over a GPU that hands data on, too (`ncclTopoTuneModel`, src/graph/tuning.cc).
        let farthest = if generation >= Generation::Hopper { at("PXN") } else { at("PXB") };
        Some(Graph {
            channels: line.channels,
            intra: line.bw_intra?,
            inter: line.bw_inter?,
            by_nvlink: intra == at("NVL"),
            keeps_order: intra.is_some() && intra <= at("NVB") && inter.is_some() && inter <= farthest,
            simple_tree: line.pattern == SIMPLE_TREE,
        })
    }

    fn least(self, other: Graph) -> Graph {
        Graph {
            channels: self.channels.min(other.channels),
            intra: self.intra.min(other.intra),
            inter: self.inter.min(other.inter),
            by_nvlink: self.by_nvlink && other.by_nvlink,
            keeps_order: self.keeps_order && other.keeps_order,
            simple_tree: self.simple_tree || other.simple_tree,
        }
    }
}
