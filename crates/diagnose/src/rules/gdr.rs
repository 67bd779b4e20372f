//! GPUDirect RDMA that connections do not use.

use super::Draft;
use crate::case::{Case, Network, network_of};
use busbw_model::{Code, Communicator, Evidence, Finding, GdrUse, Nic, Node, Severity, TransportKind};

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
fn built_for_it(case: &Case, comm: &Communicator) -> bool {
    let hosts = comm.hosts(case.run);
    let gpus = comm.nranks.unwrap_or(0) / comm.nnodes.unwrap_or(1).max(1);
    let direct = |nic: &&Nic| matches!(nic.link.as_deref(), Some("IB" | "RoCE")) && !nic.name.starts_with("hfi1");
    let nics = |node: &Node| node.nics.iter().filter(direct).count() as u32;
    let of_comm = case.run.nodes.iter().filter(|node| hosts.contains(&node.host.as_str()));
    gpus >= 4 && of_comm.map(nics).min().is_some_and(|nics| nics * 2 >= gpus)
}

fn without_gdr(case: &Case, comm: &Communicator) -> Option<Finding> {
    let is_plain = |kind: &TransportKind, gdr: bool| matches!(kind, TransportKind::Net(_)) && !gdr;
    let transport = comm.transports.iter().find(|t| is_plain(&t.kind, t.gdr))?;
    let (confidence, title) = match comm.gdr()? {
        GdrUse::All => return None,
        GdrUse::None => (0.7, "Connections between nodes use RDMA without GPUDirect"),
        GdrUse::Mixed => (0.45, "Some connections between nodes use RDMA without GPUDirect"),
    };
    // Where it is no fault, no run loses by it: only a machine built for it, or a run that failed, has a warning.
    let none = comm.gdr() == Some(GdrUse::None);
    let weighs = built_for_it(case, comm) || !comm.came_up();
    let severity = if none && weighs && case.tests.is_empty() { Severity::Warning } else { Severity::Info };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_built_for_it_are_slow_without() {
        let nics = |name: &str, count: usize| (0..count).map(|i| format!("[{i}]{name}_{i}:1/IB ")).collect::<String>();
        let cases = [
            (nics("mlx5", 4), 8, Severity::Warning),
            (nics("mlx5", 1), 8, Severity::Info),
            (nics("hfi1", 4), 8, Severity::Info),
            (nics("mlx5", 1), 2, Severity::Info),
        ];
        for (list, ranks, severity) in cases {
            let of_rank = |rank: u32| {
                let (half, next) = (ranks / 2, (rank + 1) % ranks);
                let via = if rank / half == next / half { "P2P/CUMEM" } else { "NET/IB/0" };
                format!(
                    "gpu-{h}:{rank}:{rank} [0] NCCL INFO NET/IB : Using {list}[RO]; OOB eth0:10.0.0.{h}<0>\n\
                     gpu-{h}:{rank}:{rank} [0] NCCL INFO comm 0x1{rank} rank {rank} nranks {ranks} cudaDev 0 busId 1000 commId 0x7 - Init COMPLETE\n\
                     gpu-{h}:{rank}:{rank} [0] NCCL INFO Channel 00/0 : {rank}[0] -> {next}[0] [send] via {via}\n",
                    h = rank / half,
                )
            };
            let log: String = (0..ranks).map(of_rank).collect();
            let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("a log");
            let found = rule(&Case::new(&run));
            assert_eq!(found.first().map(|finding| finding.severity), Some(severity), "{list} for {ranks} ranks");
        }
    }
}
