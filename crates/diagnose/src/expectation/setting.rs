//! The cluster that a table was measured on: as described, or as far as the run tells.

use crate::case::{Case, Test};
use busbw_model::{EnvOrigin, Run};
use busbw_predict::cluster::GpuLinks;
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
    let nodes = test.nodes;
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
    let before = cluster.gpus_per_node.max(1);
    fits.then(|| {
        cluster.nodes = nodes;
        cluster.gpus_per_node = ranks / nodes;
        // A domain is of hosts, however few of their GPUs take part.
        if let GpuLinks::NvSwitch { domain, .. } = &mut cluster.links {
            *domain = domain.div_ceil(before) * cluster.gpus_per_node;
        }
        // GPUs use the NICs beside them.
        if let Some(nics) = cluster.nics.as_mut().filter(|_| cluster.gpus_per_node < before) {
            nics.count = (nics.count * cluster.gpus_per_node).div_ceil(before);
        }
    })?;
    (cluster.domains() == 1 || cluster.nics.is_some()).then_some(())
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

#[cfg(test)]
mod tests {
    use busbw_predict::cluster;

    const CLUSTER: &str = "nodes = 2\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"NVSwitch\"\nnics_per_node = 8\nnic_gbps = 400\ntransport = \"InfiniBand\"\n";

    /// What a table of one GPU of each of two hosts should reach, and what limits it.
    fn expected(hosts: [&str; 2]) -> (f64, String) {
        let device = |rank: usize| {
            format!(
                "#  Rank  {rank} Group  0 Pid 4{rank} on {} device {rank} [0x1b] NVIDIA H100 80GB HBM3\n",
                hosts[rank]
            )
        };
        let text = format!(
            "# nThread 1 nGpus 1 minBytes 268435456 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n{}{}\
             #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             \u{20}  268435456      67108864     float     sum      -1   5700.0   47.09   47.09      0   5700.0   47.09   47.09      0\n\
             \u{20} 1073741824     268435456     float     sum      -1  22400.0   47.93   47.93      0  22400.0   47.93   47.93      0\n",
            device(0),
            device(1)
        );
        let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
        let cluster = cluster::parse(CLUSTER).expect("a cluster");
        let expected = crate::diagnose_on(&run, Some(&cluster)).expected.expect("a prediction");
        (expected.busbw.0, expected.bottleneck)
    }

    /// A domain of NVLink is as wide as its hosts, however few of their GPUs take part, and these have their own NICs.
    #[test]
    fn one_gpu_of_each_of_two_hosts_is_not_joined_by_nvlink() {
        let (across, limit) = expected(["gpu-a", "gpu-b"]);
        assert!(across < 60.0 && !limit.contains("NVLink"), "{across} {limit}");
        let (within, limit) = expected(["gpu-a", "gpu-a"]);
        assert!(within > 100.0 && limit.contains("NVLink"), "{within} {limit}");
    }
}
