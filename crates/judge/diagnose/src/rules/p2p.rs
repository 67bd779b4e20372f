//! GPUs of a node that talk through host memory, or over the network, although NVLink joins them.

use super::found;
use crate::case::Case;
use busbw_model::{Communicator, Edge, Evidence, Finding, NetworkLine, Severity, TransportKind};
use std::collections::BTreeSet;
use std::fmt::Display;

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
    let evidence =
        case.run.line(shared.first).map(|line| Evidence::noted(line, "through host memory")).into_iter().collect();
    Some(found(if nvlink { "p2p.nvlink-idle" } else { "p2p.host-memory" }, &[], evidence))
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
    let words: [(&str, &dyn Display); 3] = [("from", &edge.from), ("to", &edge.to), ("host", host)];
    let severity = if case.has_nvlink() { Severity::Warning } else { Severity::Info };
    let evidence = line.map(|line| Evidence::noted(line, "within a host")).into_iter().collect();
    Some(Finding { severity, ..found("p2p.over-network", &words, evidence) })
}

/// Where a host's ranks wait for others: machines that share a name have several.
fn addresses<'a>(case: &'a Case, host: &str) -> BTreeSet<&'a str> {
    let lines = case.run.nccl.networks.iter().filter(|line| line.host.as_deref() == Some(host));
    let listed = lines.filter(|line| line.network == "Bootstrap").flat_map(NetworkLine::listed);
    listed.filter_map(|nic| nic.address.as_deref()).collect()
}
