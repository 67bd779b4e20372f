//! Plateaus far below what the named GPUs reach, in tables without a log.

use super::Draft;
use crate::case::{Case, Test};
use crate::hardware::GpuKind;
use busbw_model::{Code, Collective, Evidence, Finding, Severity};

/// What one 100 Gbit/s port carries, GB/s.
const PORT_100G: f64 = 12.0;
/// What one 400 Gbit/s port carries, GB/s.
const PORT_400G: f64 = 48.0;

/// Tables of known GPUs that stay far below. The NICs are not known, so these are notes.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.tests.iter().filter(|t| t.curve.shows_bandwidth() && t.comm.is_none()).filter_map(slow).take(1).collect()
}

fn slow(test: &Test) -> Option<Finding> {
    let kind = GpuKind::of(test.gpu?)?;
    let all_to_all = matches!(test.table.collective, Some(Collective::AllToAll | Collective::AllToAllV));
    let plateau = test.curve.plateau.0;
    let draft = match test.nodes? {
        1 if all_to_all || test.table.nranks.is_none_or(|n| n < 2) => None,
        1 if !kind.nvlink && plateau < 10.0 => Some(through_host(plateau)),
        1 if kind.nvlink && plateau < 0.3 * kind.ring_gbs && test.table.nranks.is_some_and(|n| n >= 4) => {
            Some(below_nvlink(plateau, kind))
        }
        1 => None,
        nodes if all_to_all => slow_all_to_all(plateau, nodes, kind),
        _ if kind.rdma && plateau < PORT_100G && !like_sockets(test) => Some(below_a_port(plateau, kind)),
        _ => None,
    }?;
    Some(draft.finding(
        vec![Evidence::noted(test.curve.peak_row.source.clone(), "the best it reaches")],
        &[
            "Give the log as well: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV`; it names transports, NICs and distances",
            "Give the topology: `nvidia-smi topo -m`",
        ],
    ))
}

/// Latency as sockets have it: then the transport is the question, not the way to the NIC.
fn like_sockets(test: &Test) -> bool {
    test.curve.latency.is_some_and(|latency| latency.0 >= 60.0)
}

fn draft(code: Code, title: String, explanation: &str) -> Draft {
    Draft { code, severity: Severity::Info, confidence: 0.45, title, explanation: explanation.into() }
}

fn through_host(plateau: f64) -> Draft {
    draft(
        Code::P2pDisabled,
        format!("{plateau:.1} GB/s within a node is what GPUs reach through host memory"),
        "Such GPUs have no NVLink, and drivers do not let consumer GPUs read each other's memory over PCIe, so every byte is copied \
         through the host. With direct access over PCIe a ring reaches 10 to 25 GB/s.",
    )
}

fn below_nvlink(plateau: f64, kind: &GpuKind) -> Draft {
    draft(
        Code::P2pDisabled,
        format!("{plateau:.0} GB/s within a node, where NVLink of {} gives some {:.0}", kind.name, kind.ring_gbs),
        "GPUs of this kind are joined by NVLink in usual machines and reach several times as much. Direct access is off, or NVLinks are down.",
    )
}

fn below_a_port(plateau: f64, kind: &GpuKind) -> Draft {
    let code = if kind.nvlink { Code::GdrDisabled } else { Code::NicFar };
    draft(
        code,
        format!("{plateau:.1} GB/s between nodes is less than one 100G port carries"),
        "Machines with such GPUs have NICs of 100 Gbit/s and more. Less than one of them carries points to data that takes the way through \
         host memory: GPUDirect RDMA is off, the NIC hangs on the CPU or on another socket, or the GPUs of a node share one NIC.",
    )
}

/// On n nodes, (n-1)/n of the data crosses the network, so busbw is n/(n-1) times a GPU's share of the NICs.
fn slow_all_to_all(plateau: f64, nodes: u32, kind: &GpuKind) -> Option<Draft> {
    let port = if kind.ring_gbs > 300.0 { PORT_400G } else { PORT_100G };
    let reach = port * f64::from(nodes) / f64::from(nodes.saturating_sub(1).max(1));
    (kind.rdma && plateau < 0.65 * reach).then(|| {
        draft(
            Code::ChannelsTooFew,
            format!("All-to-all at {plateau:.0} GB/s: a NIC per GPU would allow some {reach:.0}"),
            "In an all-to-all each pair of ranks has few channels over the network, and these do not fill a fast NIC \
             (NCCL_NCHANNELS_PER_NET_PEER sets how many). Fewer NICs than GPUs, or NICs that are not near them, show in the same way.",
        )
    })
}
