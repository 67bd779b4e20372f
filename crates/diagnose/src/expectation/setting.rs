//! The cluster that a table was measured on: as described, or as far as the run tells.

use crate::case::{Case, Test};
use busbw_model::{EnvOrigin, Run};
use busbw_predict::{Cluster, cluster};

/// A cluster, and how well it is known.
pub(super) struct Setting {
    pub cluster: Cluster,
    /// Somebody described it.
    pub described: bool,
    /// All that decides is known: described, or a single node whose GPUs the run names.
    pub certain: bool,
}

impl Setting {
    /// `2 nodes of 8 NVIDIA H20, described`.
    pub fn words(&self) -> String {
        let Cluster { nodes, gpus_per_node, gpu, .. } = &self.cluster;
        let plural = if *nodes == 1 { "node" } else { "nodes" };
        let known = if self.described { "as described" } else { "as far as the input tells" };
        format!("{nodes} {plural} of {gpus_per_node} {}, {known}", gpu.name)
    }
}

/// The setting of a table; `None` when neither description nor run tells what it ran on.
pub(super) fn of(case: &Case, test: &Test, described: Option<&Cluster>) -> Option<Setting> {
    let ranks = test.table.nranks? as usize;
    let mut cluster = match described {
        Some(cluster) => cluster.clone(),
        None => derived(case, test)?,
    };
    let nodes = test.nodes.or(case.hardware.nodes.filter(|_| described.is_none()));
    if cluster.ranks() != ranks || nodes.is_some_and(|nodes| nodes as usize != cluster.nodes && described.is_none()) {
        resize(&mut cluster, ranks, nodes)?;
    }
    for setting in case.run.nccl.env.iter().filter(|env| env.source.place.input == test.table.place.input) {
        let known = cluster.environment.contains_key(&setting.name);
        if !known || setting.origin == EnvOrigin::NcclLog {
            cluster.environment.insert(setting.name.clone(), setting.value.clone());
        }
    }
    let certain = described.is_some() || cluster.domains() == 1;
    Some(Setting { cluster, described: described.is_some(), certain })
}

/// The same machines, as many as the table's ranks need.
fn resize(cluster: &mut Cluster, ranks: usize, nodes: Option<u32>) -> Option<()> {
    let nodes = match nodes {
        Some(nodes) => nodes as usize,
        None if ranks <= cluster.gpus_per_node => 1,
        None => ranks.div_ceil(cluster.gpus_per_node),
    };
    let fits = nodes > 0 && ranks.is_multiple_of(nodes) && ranks / nodes <= cluster.gpus_per_node;
    fits.then(|| {
        cluster.nodes = nodes;
        cluster.gpus_per_node = ranks / nodes;
    })
}

/// What the run tells; of several inputs, the one that the table is in.
fn derived(case: &Case, test: &Test) -> Option<Cluster> {
    if case.run.tables.len() < 2 {
        return cluster::derive(case.run).ok();
    }
    cluster::derive(&part(case.run, test)).ok()
}

/// A run as if the table's input had been alone.
fn part(run: &Run, test: &Test) -> Run {
    let input = test.table.place.input;
    let mut part = Run { inputs: run.inputs.clone(), tables: vec![test.table.clone()], ..Run::default() };
    part.communicators.extend(test.comm.cloned());
    let hosts = test.table.hosts();
    part.nodes =
        run.nodes.iter().filter(|node| hosts.is_empty() || hosts.contains(&node.host.as_str())).cloned().collect();
    // Warnings and the like are many and tell nothing of the machine.
    let log = &run.nccl;
    part.nccl.versions = log.versions.clone();
    part.nccl.env = log.env.iter().filter(|env| env.source.place.input == input).cloned().collect();
    part.nccl.networks = log.networks.iter().filter(|line| line.source.place.input == input).cloned().collect();
    part.nccl.patterns = log.patterns.iter().filter(|pattern| pattern.source.place.input == input).cloned().collect();
    part.topo_matrices = run.topo_matrices.clone();
    part.topo_xmls = run.topo_xmls.clone();
    part
}
