//! The clusters that a table may have been measured on: as described, or all that fit what the run shows.

use crate::UserFacts;
use crate::case::{Case, Test};
use crate::rules::environment;
use busbw_model::{Communicator, EnvOrigin, EnvSetting, NodeFacts, Run, Transport, TransportKind, counted};
use busbw_predict::cluster::{GpuLinks, MachineHints};
use busbw_predict::{Cluster, cluster};

/// The clusters, the most usual first. None when neither description nor run tells the ranks.
pub(super) fn of(case: &Case, test: &Test, given: &UserFacts) -> Vec<Cluster> {
    let Some(ranks) = test.table.nranks.map(|ranks| ranks as usize) else { return Vec::new() };
    let mut clusters = match given.cluster {
        Some(cluster) => described(cluster, ranks, test.nodes).into_iter().collect(),
        None => supposed(case, test, given, ranks),
    };
    let log = &case.run.nccl;
    set(&mut clusters, log.env.iter().filter(|setting| log.holds(setting, test.table.place)));
    clusters
}

/// The same machines with nothing that holds them back: without the variables that do, and without sockets where their NICs are known.
/// None where nothing does.
pub(super) fn unhindered(
    case: &Case,
    test: &Test,
    given: &UserFacts,
    hindering: &[&EnvSetting],
    on_sockets: bool,
) -> Vec<Cluster> {
    let Some(ranks) = test.table.nranks.map(|ranks| ranks as usize).filter(|_| given.cluster.is_none()) else {
        return Vec::new();
    };
    if hindering.is_empty() && !on_sockets {
        return Vec::new();
    }
    let mut run = part(case.run, test);
    run.nccl.env.retain(|setting| !hindering.contains(&setting));
    if hindering.iter().any(|setting| setting.name == "NCCL_IB_HCA") {
        // NCCL lists what the variable left.
        run.nodes.iter_mut().for_each(|node| node.nics.clear());
    }
    // What the log shows of the network is as the variables made it.
    if on_sockets || hindering.iter().any(|setting| !environment::CHOICES.contains(&setting.name.as_str())) {
        run.nccl.networks.clear();
        // Yet no variable gives GPUs a way to reach each other that they do not have.
        let direct = |edge: &Transport| matches!(edge.kind, TransportKind::P2p(_));
        run.communicators.iter_mut().for_each(|comm| comm.transports.retain(direct));
    }
    let mut clusters = cluster::hypotheses(&run, &hints(case.run, test, given, ranks));
    set(&mut clusters, run.nccl.env.iter());
    clusters
}

/// Those of the variables that hold a machine back which are of the table's own run; of other inputs as well where there is no other table.
pub(super) fn own<'a>(case: &Case<'a>, test: &Test, hindering: &[&'a EnvSetting]) -> Vec<&'a EnvSetting> {
    let (log, place, is_only) = (&case.run.nccl, test.table.place, case.run.tables.len() == 1);
    let beside = |setting: &EnvSetting| is_only && setting.source.place.input != place.input;
    hindering.iter().copied().filter(|setting| log.holds(setting, place) || beside(setting)).collect()
}

fn set<'a>(clusters: &mut [Cluster], settings: impl Iterator<Item = &'a EnvSetting>) {
    for setting in settings {
        for cluster in clusters.iter_mut() {
            if !cluster.environment.contains_key(&setting.name) || setting.origin == EnvOrigin::NcclLog {
                cluster.environment.insert(setting.name.clone(), setting.value.clone());
            }
        }
    }
}

/// `2 nodes of 8 NVIDIA H20`.
pub(super) fn words(cluster: &Cluster) -> String {
    let Cluster { nodes, gpus_per_node, gpu, .. } = cluster;
    format!("{} of {gpus_per_node} {}", counted(*nodes, "node"), gpu.name)
}

fn described(cluster: &Cluster, ranks: usize, nodes: Option<u32>) -> Option<Cluster> {
    let mut cluster = cluster.clone();
    if cluster.ranks() != ranks {
        resize(&mut cluster, ranks, nodes)?;
    }
    Some(cluster)
}

/// What fits the table's own input, and what was told beside it.
fn supposed(case: &Case, test: &Test, given: &UserFacts, ranks: usize) -> Vec<Cluster> {
    let told = hints(case.run, test, given, ranks);
    match case.run.tables.len() {
        0 | 1 => cluster::hypotheses(case.run, &told),
        _ => cluster::hypotheses(&part(case.run, test), &told),
    }
}

fn hints(run: &Run, test: &Test, given: &UserFacts, ranks: usize) -> MachineHints {
    MachineHints {
        ranks,
        nodes: test.nodes.map(|nodes| nodes as usize),
        gpus_per_node: given.gpus_per_node.or_else(|| gpus_seen(run, test)),
        gpu: given.gpu.clone(),
        nics: given.nics,
    }
}

/// The GPUs of a host, where `nvidia-smi` and the like show as many on each. One alone may be a part of what is there.
fn gpus_seen(run: &Run, test: &Test) -> Option<usize> {
    let hosts = test.table.hosts();
    let machines = run.machines.iter().filter(|machine| machine.may_be_of(&hosts));
    let mut counts = machines.map(|machine| machine.gpu.devices.len()).filter(|count| *count > 0);
    let first = counts.next().filter(|first| *first > 1)?;
    counts.all(|count| count == first).then_some(first)
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
    part.communicators.extend(test.comm.map(outline));
    let hosts = test.table.hosts();
    part.nodes =
        run.nodes.iter().filter(|node| hosts.is_empty() || hosts.contains(&node.host.as_str())).cloned().collect();
    // Warnings and the like are many and say nothing of the machine.
    let log = &run.nccl;
    part.nccl.versions = log.versions.clone();
    part.nccl.env = log.env.iter().filter(|setting| log.holds(setting, test.table.place)).cloned().collect();
    part.nccl.networks = log.networks.iter().filter(|line| line.source.place.input == input).cloned().collect();
    part.nccl.patterns = log.patterns.iter().filter(|pattern| pattern.source.place.input == input).cloned().collect();
    part.topo_matrices = run.topo_matrices.clone();
    part.topo_xmls = run.topo_xmls.clone();
    // Facts of a machine are many; its ports tell which network it has, and its GPUs which machine it is.
    let parts = |machine: &NodeFacts| NodeFacts {
        host: machine.host.clone(),
        rdma: machine.rdma.clone(),
        gpu: machine.gpu.clone(),
        ..NodeFacts::default()
    };
    part.machines = run.machines.iter().filter(|machine| machine.may_be_of(&hosts)).map(parts).collect();
    part
}

/// What a cluster is derived from. Edges and trees, most of a large log, are left out: transports show what connects the ranks, and
/// one tree that there are trees.
fn outline(comm: &Communicator) -> Communicator {
    Communicator {
        nranks: comm.nranks,
        nnodes: comm.nnodes,
        ranks: comm.ranks.clone(),
        channels: comm.channels.clone(),
        trees: comm.trees.first().cloned().into_iter().collect(),
        transports: comm.transports.clone(),
        nvls: comm.nvls,
        ..Communicator::default()
    }
}

#[cfg(test)]
mod tests {
    use super::described;
    use busbw_predict::cluster;

    /// A domain of NVLink is as wide as its hosts, however few of their GPUs take part, and these have their own NICs.
    #[test]
    fn one_gpu_of_each_of_two_hosts_is_not_joined_by_nvlink() {
        let whole =
            cluster::parse("nodes = 2\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"NVSwitch\"\nnics_per_node = 8\n")
                .expect("a cluster");
        let shape = |nodes| {
            let part = described(&whole, 2, Some(nodes)).expect("a part of it");
            (part.domains(), part.nics.map(|nics| nics.count))
        };
        assert_eq!((shape(2), shape(1)), ((2, Some(1)), (1, Some(2))));
    }
}
