//! Runs that use sockets because there is no RDMA, and whose sockets could carry more.

use super::found;
use crate::case::{Case, Network, network_of};
use busbw_model::{Evidence, Finding, Severity};

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
    let severity = if tuned.is_some() { Severity::Warning } else { Severity::Info };
    let transport = comm.transports.iter().find(|t| t.kind.is_network()).and_then(|t| case.run.line(t.first));
    let mut evidence: Vec<Evidence> = transport.map(|line| Evidence::noted(line, "a socket")).into_iter().collect();
    evidence.extend(tuned.map(|setting| Evidence::noted(setting.source.clone(), "set here")));
    vec![Finding { severity, ..found("sockets.number", &[], evidence) }]
}
