//! NICs that NCCL lists and no connection uses.

use super::found;
use crate::case::Case;
use crate::interfaces::LocalInterface;
use busbw_model::{ChannelSet, Communicator, Edge, Evidence, Finding, NetworkLine, Nic, TransportKind};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Communicators over several nodes whose connections use fewer NICs than their hosts list.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.run.communicators.iter().find_map(|comm| idle(case, comm)).into_iter().collect()
}

fn idle(case: &Case, comm: &Communicator) -> Option<Finding> {
    let of_network =
        |edge: &&Edge| comm.transports.get(usize::from(edge.transport)).is_some_and(|t| t.kind.is_network());
    let network = comm.transports.iter().find_map(|t| match (&t.kind, t.nic) {
        (TransportKind::Net(name), Some(_)) => Some(name.as_str()),
        _ => None,
    })?;
    let used: BTreeSet<u32> = comm.transports.iter().filter(|t| t.kind.is_network()).filter_map(|t| t.nic).collect();
    let (line, listed) = listed(case, comm, if network.starts_with("IB") { "IB" } else { network })?;
    // Which NICs the ranks use that log nothing is not known: one rank, or one per host, says too little. A number beyond the list is that of a device that NCCL fuses of
    // several (`NET/IB : Made virtual device [9] name=mlx5_1+mlx5_2`, 2.25 and later).
    let fused = used.iter().any(|nic| *nic as usize >= listed);
    let tellers: BTreeSet<u32> = comm.edges.iter().filter(of_network).map(Edge::teller).collect();
    let hosts: BTreeSet<u32> = tellers.iter().filter_map(|rank| comm.node_of(*rank)).collect();
    let several = hosts.len() > 1 && tellers.len() > hosts.len();
    // Each ring leaves a host: where one has no connection over the network, the log ends before it.
    let connected = comm.edges.iter().filter(of_network).fold(ChannelSet::default(), |mut all, edge| {
        all.add(edge.channels);
        all
    });
    let is_cut = comm.channels.keys().any(|channel| !connected.has(*channel));
    if !comm.all_told() && !several || fused || is_cut || comm.edges.iter().filter(of_network).count() < 2 {
        return None;
    }
    // A GPU or two of a node need no more than a NIC each, and PXN chooses among near ones.
    let gpus = comm.nranks.unwrap_or(0) / comm.nnodes.unwrap_or(1).max(1);
    let few = used.len() == 1 || used.len() * 2 < listed;
    let enough = !few || used.len() >= listed || (gpus > 0 && used.len() as u32 >= gpus);
    if listed < 2 || enough {
        return None;
    }
    let in_use = used.iter().map(|nic| format!("{network}/{nic}")).collect::<Vec<_>>().join(", ");
    let words: [(&str, &dyn Display); 4] =
        [("listed", &listed), ("used", &used.len()), ("network", &network), ("in_use", &in_use)];
    let first = comm.transports.iter().find(|t| t.kind.is_network()).and_then(|t| case.run.line(t.first));
    let mut evidence = vec![Evidence::noted(line.source.clone(), "what NCCL found")];
    evidence.extend(first.map(|line| Evidence::noted(line, "what it uses")));
    Some(found("nic.idle", &words, evidence))
}

/// The longest list of a host of the communicator.
fn listed<'a>(case: &'a Case, comm: &Communicator, network: &str) -> Option<(&'a NetworkLine, usize)> {
    let hosts = comm.hosts(&case.run.nodes);
    let of_comm =
        |line: &&NetworkLine| line.host.as_deref().is_some_and(|host| hosts.is_empty() || hosts.contains(&host));
    let lists = case.run.nccl.networks.iter().filter(|line| line.network == network).filter(of_comm);
    let leads_out = |nic: &&Nic| LocalInterface::of(&nic.name, nic.address.as_deref()).is_none();
    let count =
        |nics: &[Nic]| nics.iter().filter(leads_out).filter_map(|nic| nic.index).collect::<BTreeSet<u32>>().len();
    lists.map(|line| (line, count(line.listed()))).max_by_key(|(_, count)| *count)
}
