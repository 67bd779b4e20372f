//! GPUs of a node that talk through host memory, or over the network, although NVLink joins them.

use super::Draft;
use crate::case::Case;
use busbw_model::{Code, Communicator, Edge, Evidence, Finding, NetworkStatement, Severity, TransportKind};
use std::collections::BTreeSet;

/// Connections within a node that all go through shared memory, or that go over the network.
pub fn rule(case: &Case) -> Vec<Finding> {
    let found = |comm| through_host(case, comm).or_else(|| over_network(case, comm));
    case.run.communicators.iter().find_map(found).into_iter().collect()
}

fn through_host(case: &Case, comm: &Communicator) -> Option<Finding> {
    let shared = comm.transports.iter().find(|t| t.kind == TransportKind::Shm)?;
    if comm.transports.iter().any(|t| matches!(t.kind, TransportKind::P2p(_))) || comm.nvls {
        return None;
    }
    let listed = case.lines.iter().any(|line| line.text.contains("Link 0:") && line.text.contains("GB/s"));
    let nvlink = case.has_nvlink() || listed;
    let draft = Draft {
        code: Code::P2pDisabled,
        severity: if nvlink { Severity::Warning } else { Severity::Info },
        confidence: if nvlink { 0.8 } else { 0.5 },
        title: if nvlink {
            "GPUs that NVLink joins talk through host memory".into()
        } else {
            "GPUs of the node talk through host memory".into()
        },
        explanation: "Within a node NCCL lets GPUs read each other's memory (`via P2P`); here every connection goes through shared host \
                      memory (`via SHM`). A variable forbids P2P, CUDA refuses it (consumer GPUs, IOMMU, containers), or the GPUs are \
                      joined only through the CPU, where host memory is often the better way."
            .into(),
    };
    let evidence =
        case.run.line(shared.first).map(|line| Evidence::noted(line, "through host memory")).into_iter().collect();
    Some(draft.finding(
        evidence,
        &[
            "Look for variables that forbid it: `env | grep -E 'NCCL_P2P'`; `unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL`",
            "Ask CUDA which pairs may talk: `nvidia-smi topo -p2p r`; see the NVLinks: `nvidia-smi nvlink -s`",
        ],
    ))
}

/// Ranks of one host whose connection leaves it though no variable closes the ways within: their processes share neither GPUs
/// nor memory.
fn over_network(case: &Case, comm: &Communicator) -> Option<Finding> {
    let closed = |name: &str| case.run.nccl.env_value(name).is_some_and(|set| set.value.trim() == "1");
    let leaves = |edge: &&Edge| {
        let transport = comm.transports.get(usize::from(edge.transport));
        let node = comm.node_of(edge.from);
        node.is_some() && node == comm.node_of(edge.to) && transport.is_some_and(|t| t.kind.is_network())
    };
    // With other ways beside it, lines of several communicators are mixed.
    let only_network = comm.transports.iter().all(|t| t.kind.is_network());
    let edge = comm.edges.iter().find(|edge| only_network && leaves(edge))?;
    let host = &case.run.nodes.get(comm.node_of(edge.from)? as usize)?.host;
    if ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"].into_iter().any(closed) || addresses(case, host).len() != 1 {
        return None;
    }
    let line = comm.transports.get(usize::from(edge.transport)).and_then(|t| case.run.line(t.first));
    let draft = Draft {
        code: Code::P2pDisabled,
        severity: if case.has_nvlink() { Severity::Warning } else { Severity::Info },
        confidence: 0.8,
        title: format!("Ranks {} and {} on {host} talk over the network", edge.from, edge.to),
        explanation: "NCCL found no way between two GPUs of one host but the network. Ranks in containers that see one GPU each cannot open \
                      each other's memory, and without a common /dev/shm they share no host memory either."
            .into(),
    };
    Some(draft.finding(
        line.map(|line| Evidence::noted(line, "within a host")).into_iter().collect(),
        &[
            "Show all GPUs of the host to every container, and let each rank choose its own: `docker run --gpus all --ipc=host …`; Kubernetes: one pod for all ranks of the host",
            "See that it worked: connections within the host say `via P2P` or `via SHM`",
        ],
    ))
}

/// Where a host's ranks wait for others: machines that share a name have several.
fn addresses<'a>(case: &'a Case, host: &str) -> BTreeSet<&'a str> {
    let lines = case.run.nccl.networks.iter().filter(|line| line.host.as_deref() == Some(host));
    let lists = lines.filter(|line| line.network == "Bootstrap").filter_map(|line| match &line.statement {
        NetworkStatement::Using(nics) => Some(nics),
        _ => None,
    });
    lists.flatten().filter_map(|nic| nic.address.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks with an address each on hosts of one name; a socket joins them.
    fn told(addresses: [&str; 2], setting: &str) -> Vec<Finding> {
        let of_rank = |rank: usize| {
            let says = |text: String| format!("node:{rank}:{rank} [0] NCCL INFO {text}\n");
            says(format!("Bootstrap : Using eth0:{}<0>", addresses[rank]))
                + &says(setting.into())
                + &says(format!("comm 0x{rank} rank {rank} nranks 2 cudaDev 0 busId {rank}000 - Init START"))
                + &says(format!("Channel 00 : {rank}[1] -> {}[0] [send] via NET/Socket/0", 1 - rank))
        };
        let log = of_rank(0) + &of_rank(1);
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
        rule(&Case::new(&run))
    }

    #[test]
    fn ranks_of_a_host_that_share_nothing_are_named() {
        let found = told(["10.0.0.1", "10.0.0.1"], "cudaDriverVersion 12040");
        assert!(found.iter().any(|f| f.title == "Ranks 0 and 1 on node talk over the network"), "{found:?}");
        assert_eq!(told(["10.0.0.1", "10.0.0.2"], "cudaDriverVersion 12040"), [], "two machines of one name");
        assert_eq!(
            told(["10.0.0.1", "10.0.0.1"], "NCCL_SHM_DISABLE set by environment to 1."),
            [],
            "a variable closes it"
        );
    }
}
