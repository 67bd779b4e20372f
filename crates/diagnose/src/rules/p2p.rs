//! GPUs of a node that talk through host memory although NVLink joins them.

use super::Draft;
use crate::case::Case;
use busbw_model::{Code, Communicator, Evidence, Finding, Severity, TransportKind};

/// Connections within a node that all go through shared memory.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.run.communicators.iter().find_map(|comm| through_host(case, comm)).into_iter().collect()
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
