//! GPUDirect RDMA that connections do not use.

use super::found;
use crate::case::{Case, Network, network_of};
use busbw_model::{Communicator, Evidence, Finding, GdrUse, Nic, Node, Severity, TransportKind};

/// Plugins over RDMA that could use it: aws-ofi-nccl on EFA and Slingshot names itself so.
const PLUGINS: [&str; 3] = ["Libfabric", "OFI", "EFA"];

/// RDMA connections without `/GDRDMA`.
pub fn rule(case: &Case) -> Vec<Finding> {
    let named = |kind: &TransportKind| match kind {
        TransportKind::Net(name) => PLUGINS.iter().any(|plugin| name.contains(plugin)),
        _ => false,
    };
    let over_rdma = |comm: &&Communicator| match network_of(comm) {
        Some(Network::Plugin) => comm.transports.iter().any(|transport| named(&transport.kind)),
        network => network == Some(Network::Rdma),
    };
    case.run.communicators.iter().filter(over_rdma).find_map(|comm| without_gdr(case, comm)).into_iter().collect()
}

/// Whether the machines have a NIC of InfiniBand or RoCE beside every second GPU at least, as those have that are built for
/// GPUDirect RDMA. Omni-Path (`hfi1`) has a way of its own (PSM).
pub(super) fn built_for_it(case: &Case, comm: &Communicator) -> bool {
    let hosts = comm.hosts(&case.run.nodes);
    let gpus = comm.nranks.unwrap_or(0) / comm.nnodes.unwrap_or(1).max(1);
    let direct = |nic: &&Nic| matches!(nic.link.as_deref(), Some("IB" | "RoCE")) && !nic.name.starts_with("hfi1");
    let nics = |node: &Node| node.nics.iter().filter(direct).count() as u32;
    let of_comm = case.run.nodes.iter().filter(|node| hosts.contains(&node.host.as_str()));
    gpus >= 4 && of_comm.map(nics).min().is_some_and(|nics| nics * 2 >= gpus)
}

fn without_gdr(case: &Case, comm: &Communicator) -> Option<Finding> {
    let is_plain = |kind: &TransportKind, gdr: bool| matches!(kind, TransportKind::Net(_)) && !gdr;
    let transport = comm.transports.iter().find(|t| is_plain(&t.kind, t.gdr))?;
    let id = match comm.gdr()? {
        GdrUse::All => return None,
        GdrUse::None => "gdr.none",
        GdrUse::Mixed => "gdr.some",
    };
    // Without GPUDirect a run need not be slower: warn only if the machine is built for it and all connections are told.
    let none = comm.gdr() == Some(GdrUse::None);
    let weighs = built_for_it(case, comm) && comm.came_up();
    let severity = if none && weighs && case.tests.is_empty() { Severity::Warning } else { Severity::Info };
    let mut evidence: Vec<Evidence> =
        case.run.line(transport.first).map(|line| Evidence::noted(line, "no /GDRDMA")).into_iter().collect();
    evidence.extend(case.run.nccl.gpu_direct.iter().take(2).map(|line| Evidence::new(line.clone())));
    Some(Finding { severity, if_slow: weighs, ..found(id, &[], evidence) })
}
