//! Sockets that are all there is, and may carry more.

use super::Draft;
use crate::case::{Case, Network, network_of};
use busbw_model::{Code, Evidence, Finding, Severity};

/// Communicators over sockets where no RDMA is in sight.
pub fn rule(case: &Case) -> Vec<Finding> {
    let Some(comm) =
        case.run.communicators.iter().find(|comm| network_of(comm) == Some(Network::Socket) && comm.nnodes != Some(1))
    else {
        return Vec::new();
    };
    let settings = ["NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"].map(|name| case.run.nccl.env_value(name));
    let tuned = settings.iter().flatten().next();
    if case.has_rdma() && tuned.is_none() {
        return Vec::new();
    }
    let draft = Draft {
        code: Code::SocketTuning,
        severity: if tuned.is_some() { Severity::Warning } else { Severity::Info },
        confidence: 0.45,
        title: "Traffic between nodes goes over sockets, whose number can be set".into(),
        explanation: "Over TCP, NCCL uses NCCL_SOCKET_NTHREADS threads with NCCL_NSOCKS_PERTHREAD sockets each for a connection, by default one \
                      of each on most machines. One flow is bound to a core, and clouds cap it; several carry more, but threads take CPU from \
                      the program, and NCCL waits for the slowest socket."
            .into(),
    };
    let transport = comm.transports.iter().find(|t| t.kind.is_network()).and_then(|t| case.run.line(t.first));
    let mut evidence: Vec<Evidence> = transport.map(|line| Evidence::noted(line, "a socket")).into_iter().collect();
    evidence.extend(tuned.map(|setting| Evidence::noted(setting.source.clone(), "set here")));
    vec![draft.finding(
        evidence,
        &[
            "Measure the link with one flow and with several: `iperf3 -c OTHER_NODE -P 1`, `-P 16`",
            "Find the best pair on the real workload: `export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4` (the product may not exceed 64)",
        ],
    )]
}
