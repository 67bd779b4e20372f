//! The clusters that a table may have been measured on: as described, or all that fit what the run tells.

use crate::Given;
use crate::case::{Case, Test};
use busbw_model::{EnvOrigin, Run};
use busbw_predict::cluster::{GpuLinks, Told};
use busbw_predict::{Cluster, cluster};

/// The clusters, the most usual first. None when neither description nor run tells the ranks.
pub(super) fn of(case: &Case, test: &Test, given: &Given) -> Vec<Cluster> {
    let Some(ranks) = test.table.nranks.map(|ranks| ranks as usize) else { return Vec::new() };
    let mut clusters = match given.cluster {
        Some(cluster) => described(cluster, ranks, test.nodes).into_iter().collect(),
        None => supposed(case, test, given, ranks),
    };
    for setting in case.run.nccl.env.iter().filter(|env| env.source.place.input == test.table.place.input) {
        for cluster in &mut clusters {
            if !cluster.environment.contains_key(&setting.name) || setting.origin == EnvOrigin::NcclLog {
                cluster.environment.insert(setting.name.clone(), setting.value.clone());
            }
        }
    }
    clusters
}

/// `2 nodes of 8 NVIDIA H20`.
pub(super) fn words(cluster: &Cluster) -> String {
    let Cluster { nodes, gpus_per_node, gpu, .. } = cluster;
    let plural = if *nodes == 1 { "node" } else { "nodes" };
    format!("{nodes} {plural} of {gpus_per_node} {}", gpu.name)
}

fn described(cluster: &Cluster, ranks: usize, nodes: Option<u32>) -> Option<Cluster> {
    let mut cluster = cluster.clone();
    if cluster.ranks() != ranks {
        resize(&mut cluster, ranks, nodes)?;
    }
    Some(cluster)
}

/// What fits the table's own input, and what was told beside it.
fn supposed(case: &Case, test: &Test, given: &Given, ranks: usize) -> Vec<Cluster> {
    let told = Told {
        ranks,
        nodes: test.nodes.map(|nodes| nodes as usize),
        gpus_per_node: given.gpus_per_node,
        gpu: given.gpu.clone(),
        nics: given.nics,
    };
    match case.run.tables.len() {
        0 | 1 => cluster::hypotheses(case.run, &told),
        _ => cluster::hypotheses(&part(case.run, test), &told),
    }
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
