//! GPUs of a node that talk through host memory although NVLink joins them.

use super::found;
use crate::case::Case;
use busbw_model::{Communicator, Evidence, Finding, TransportKind};

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
    let evidence =
        case.run.line(shared.first).map(|line| Evidence::noted(line, "through host memory")).into_iter().collect();
    Some(found(if nvlink { "p2p.nvlink-idle" } else { "p2p.host-memory" }, &[], evidence))
}
