//! Interfaces that NCCL lists for its sockets and that lead nowhere.

use super::Draft;
use crate::case::Case;
use crate::interfaces::is_inner;
use busbw_model::{Code, Evidence, Finding, NetworkStatement, Nic, Severity};

/// Lists of several interfaces with one that cannot reach another node, or with nothing else.
pub fn rule(case: &Case) -> Vec<Finding> {
    if case.run.communicators.iter().all(|comm| comm.nnodes == Some(1)) && !case.run.communicators.is_empty() {
        return Vec::new();
    }
    let lists = case.run.nccl.networks.iter().filter_map(|line| match &line.statement {
        NetworkStatement::Using(nics) if matches!(line.network.as_str(), "Socket" | "Bootstrap") => Some((line, nics)),
        _ => None,
    });
    let chosen = |name: &str| {
        case.run.nccl.env_value("NCCL_SOCKET_IFNAME").is_some_and(|set| {
            set.value
                .split(',')
                .any(|part| name.starts_with(part.trim_start_matches('=').trim_matches('"')) && !part.is_empty())
        })
    };
    let misleading = |nic: &&Nic| !chosen(&nic.name) && why(nic).is_some();
    let found = lists.filter_map(|(line, nics)| nics.iter().find(misleading).map(|nic| (line, nic, nics.len())));
    let Some((line, nic, count)) = found.max_by_key(|(.., count)| *count) else { return Vec::new() };
    let why = why(nic).unwrap_or_default();
    let draft = Draft {
        code: Code::NetWrongInterface,
        severity: Severity::Warning,
        confidence: if count > 1 { 0.92 } else { 0.75 },
        title: format!("NCCL uses {}, {why}", nic.name),
        explanation: format!(
            "NCCL takes every interface that is up, or those that NCCL_SOCKET_IFNAME names, and spreads connections over them. {} is {why}: \
             a peer on another node cannot be reached through it, and connections fail or hang.",
            nic.name
        ),
    };
    vec![draft.finding(
        vec![Evidence::noted(line.source.clone(), format!("{}: {why}", nic.name))],
        &[
            "List the interfaces with their addresses: `ip -brief address`",
            "Name the one that all nodes share: `export NCCL_SOCKET_IFNAME=eth0` (or exclude others: `export NCCL_SOCKET_IFNAME=^docker,lo,veth,virbr`)",
        ],
    )]
}

/// Why an interface leads to no other node.
fn why(nic: &Nic) -> Option<&'static str> {
    let address = nic.address.as_deref().unwrap_or_default();
    if is_inner(&nic.name) {
        return Some("an interface of containers or virtual machines on one host");
    }
    (address.starts_with("169.254.") && nic.name != "lo").then_some("an interface with a link-local address")
}
