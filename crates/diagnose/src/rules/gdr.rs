//! GPUDirect RDMA that connections do not use.

use super::Draft;
use crate::case::{Case, Network, network_of};
use busbw_model::{Code, Communicator, Evidence, Finding, GdrUse, Severity, TransportKind};

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

fn without_gdr(case: &Case, comm: &Communicator) -> Option<Finding> {
    let is_plain = |kind: &TransportKind, gdr: bool| matches!(kind, TransportKind::Net(_)) && !gdr;
    let transport = comm.transports.iter().find(|t| is_plain(&t.kind, t.gdr))?;
    let (confidence, title) = match comm.gdr()? {
        GdrUse::All => return None,
        GdrUse::None => (0.7, "Connections between nodes use RDMA without GPUDirect"),
        GdrUse::Mixed => (0.45, "Some connections between nodes use RDMA without GPUDirect"),
    };
    let severity = if confidence > 0.5 { Severity::Warning } else { Severity::Info };
    let draft = Draft {
        code: Code::GdrDisabled,
        severity,
        confidence,
        title: title.to_string(),
        explanation: "Connections whose line ends in `/GDRDMA` let the NIC read and write GPU memory; these do not, so every byte is \
                      copied through host memory. Either the kernel module is missing, or NCCL finds GPU and NIC too far apart, or a \
                      variable forbids it. Where GPU and NIC do not share a PCIe switch this can be the faster way."
            .into(),
    };
    let mut evidence: Vec<Evidence> =
        case.run.line(transport.first).map(|line| Evidence::noted(line, "no /GDRDMA")).into_iter().collect();
    evidence.extend(case.run.nccl.gpu_direct.iter().take(2).map(|line| Evidence::new(line.clone())));
    Some(draft.finding(
        evidence,
        &[
            "See whether the module is loaded and registered: `lsmod | grep peermem; cat /sys/kernel/mm/memory_peers/nv_mem/version`",
            "See the distances between GPUs and NICs: `nvidia-smi topo -m`",
            "Let NCCL say why: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH` and look for `GPU Direct RDMA`",
        ],
    ))
}
