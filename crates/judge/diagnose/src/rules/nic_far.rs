//! GPUs whose NICs are all behind the CPU.

use super::found;
use crate::case::Case;
use busbw_model::{DeviceKind, Evidence, Finding, InputKind, PathType, Severity, TopoMatrix};

/// Matrices in which no GPU has a NIC below its own PCIe switch.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.run.topo_matrices.iter().find_map(|matrix| far(case, matrix)).into_iter().collect()
}

fn far(case: &Case, matrix: &TopoMatrix) -> Option<Finding> {
    let names = |kind| matrix.of_kind(kind).map(|d| d.name.as_str()).collect::<Vec<_>>();
    let (gpus, nics) = (names(DeviceKind::Gpu), names(DeviceKind::Nic));
    let nearest = gpus.iter().flat_map(|gpu| nics.iter().filter_map(|nic| matrix.path(gpu, nic))).min()?;
    let confidence = match nearest {
        PathType::Sys => 0.8,
        PathType::Node => 0.7,
        PathType::Phb => 0.6,
        _ => return None,
    };
    // A topology matrix alone is not a reason for a finding.
    let asked = case.run.inputs.iter().any(|i| i.kinds.iter().any(|k| *k != InputKind::TopoMatrix));
    let direct = case.run.communicators.iter().any(|comm| comm.transports.iter().any(|transport| transport.gdr));
    let id = if direct { "nic.far.direct" } else { "nic.far.copied" };
    let severity = if asked { Severity::Warning } else { Severity::Info };
    let evidence = vec![Evidence::noted(case.line_of(matrix), "the matrix")];
    Some(Finding { severity, confidence, ..found(id, &[("nearest", &nearest)], evidence) })
}
