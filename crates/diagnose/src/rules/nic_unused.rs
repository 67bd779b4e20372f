//! NICs that NCCL lists and no connection uses.

use super::Draft;
use crate::case::Case;
use crate::interfaces::Inner;
use busbw_model::{
    Code, Communicator, Edge, Evidence, Finding, NetworkLine, NetworkStatement, Nic, Severity, TransportKind,
};
use std::collections::BTreeSet;

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
    // Which NICs the ranks use that log nothing is not known: one rank, or one per host, tells too little. A number beyond the list is that of a device that NCCL fuses of
    // several (`NET/IB : Made virtual device [9] name=mlx5_1+mlx5_2`, 2.25 and later).
    let fused = used.iter().any(|nic| *nic as usize >= listed);
    let tellers: BTreeSet<u32> = comm.edges.iter().filter(of_network).map(Edge::teller).collect();
    let hosts: BTreeSet<u32> = tellers.iter().filter_map(|rank| comm.node_of(*rank)).collect();
    let several = hosts.len() > 1 && tellers.len() > hosts.len();
    if !comm.all_told() && !several || fused || comm.edges.iter().filter(of_network).count() < 2 {
        return None;
    }
    // A GPU or two of a node need no more than a NIC each, and PXN chooses among near ones.
    let gpus = comm.nranks.unwrap_or(0) / comm.nnodes.unwrap_or(1).max(1);
    let few = used.len() == 1 || used.len() * 2 < listed;
    let enough = !few || used.len() >= listed || (gpus > 0 && used.len() as u32 >= gpus);
    if listed < 2 || enough {
        return None;
    }
    let draft = Draft {
        code: Code::NicUnused,
        severity: Severity::Warning,
        confidence: 0.75,
        title: format!("NCCL found {listed} NICs and uses {}", used.len()),
        explanation: format!(
            "The log lists {listed} devices for {network}, and every connection between nodes goes through {}. A channel has one NIC; NICs \
             stay idle when the search finds no path that uses them, when they are far from all GPUs, or when there are fewer channels than NICs.",
            used.iter().map(|nic| format!("{network}/{nic}")).collect::<Vec<_>>().join(", ")
        ),
    };
    let first = comm.transports.iter().find(|t| t.kind.is_network()).and_then(|t| case.run.line(t.first));
    let mut evidence = vec![Evidence::noted(line.source.clone(), "what NCCL found")];
    evidence.extend(first.map(|line| Evidence::noted(line, "what it uses")));
    Some(draft.finding(
        evidence,
        &[
            "See what the search found: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH`",
            "Try more channels, and rings that change NICs: `export NCCL_MIN_NCHANNELS=4 NCCL_CROSS_NIC=1`",
            "Try a newer NCCL: the search of early versions kept all rings on the first interface",
        ],
    ))
}

/// The longest list of a host of the communicator.
fn listed<'a>(case: &'a Case, comm: &Communicator, network: &str) -> Option<(&'a NetworkLine, usize)> {
    let hosts: Vec<&str> = comm
        .ranks
        .values()
        .filter_map(|rank| case.run.nodes.get(rank.node? as usize))
        .map(|node| node.host.as_str())
        .collect();
    let of_comm =
        |line: &&NetworkLine| line.host.as_deref().is_some_and(|host| hosts.is_empty() || hosts.contains(&host));
    let lists = case.run.nccl.networks.iter().filter(|line| line.network == network).filter(of_comm);
    let leads_out = |nic: &&Nic| Inner::of(&nic.name, nic.address.as_deref()).is_none();
    let count =
        |nics: &[Nic]| nics.iter().filter(leads_out).filter_map(|nic| nic.index).collect::<BTreeSet<u32>>().len();
    lists
        .filter_map(|line| match &line.statement {
            NetworkStatement::Using(nics) => Some((line, count(nics))),
            _ => None,
        })
        .max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four ranks on two hosts with two NICs each; every rank logs what it sends, and those of `silent` nothing.
    fn found(network: &str, devices: &str, nic: u32, silent: &[u32]) -> Option<String> {
        let of_rank = |rank: u32| {
            let (host, next) = (format!("gpu-{}", rank / 2), (rank + 1) % 4);
            let says = |text: String| format!("{host}:{rank}:{rank} [{}] NCCL INFO {text}\n", rank % 2);
            let via = if rank.is_multiple_of(2) { "P2P/CUMEM".into() } else { format!("NET/{network}/{nic}") };
            let lines = [
                format!("NET/{network} : Using {devices}"),
                format!(
                    "ncclCommInitRank comm 0x1{rank} rank {rank} nranks 4 cudaDev 0 busId 1000 commId 0x7 - Init COMPLETE"
                ),
                format!("Channel 00/0 : {rank}[0] -> {next}[0] [send] via {via}"),
            ];
            lines.map(says).concat()
        };
        let log: String = (0..4).filter(|rank| !silent.contains(rank)).map(of_rank).collect();
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        rule(&Case::new(&run)).into_iter().next().map(|finding| finding.title)
    }

    #[test]
    fn a_nic_is_idle_only_where_every_rank_tells_what_it_uses() {
        let two = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>";
        let used = Some("NCCL found 2 NICs and uses 1".to_string());
        assert_eq!(found("IB", two, 0, &[]), used);
        assert_eq!(found("IB", two, 0, &[2]), None, "rank 2 says nothing");
        assert_eq!(found("IB", two, 2, &[]), None, "device 2 is fused from both");
        assert_eq!(found("Socket", "[0]eth0:10.0.0.1<0> [1]eth1:10.0.1.1<0>", 0, &[]), used);
        assert_eq!(found("Socket", "[0]eth0:10.0.0.1<0> [1]docker0:172.17.0.1<0>", 0, &[]), None);
    }
}
