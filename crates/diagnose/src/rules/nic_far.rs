//! GPUs whose NICs are all behind the CPU.

use super::Draft;
use crate::case::Case;
use busbw_model::{Code, DeviceKind, Evidence, Finding, InputKind, PathType, Severity, TopoMatrix};

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
    // A matrix alone is no complaint.
    let asked = case.run.inputs.iter().any(|i| i.kinds.iter().any(|k| *k != InputKind::TopoMatrix));
    let direct = case.run.communicators.iter().any(|comm| comm.transports.iter().any(|transport| transport.gdr));
    let (gdr, try_gdr) = match direct {
        true => (
            "GPUDirect RDMA is in use all the same, which may be slower than through host memory at such distances.",
            "See whether host memory is faster, and measure: `export NCCL_NET_GDR_LEVEL=PHB`",
        ),
        false => (
            "NCCL leaves GPUDirect RDMA off at such distances.",
            "Try GPUDirect RDMA all the same and measure: `export NCCL_NET_GDR_LEVEL=SYS`",
        ),
    };
    let draft = Draft {
        code: Code::NicFar,
        severity: if asked { Severity::Warning } else { Severity::Info },
        confidence,
        title: format!("No GPU has a NIC nearer than {nearest}: traffic between nodes passes the CPU"),
        explanation: format!(
            "Between a GPU and a NIC below one PCIe switch (PIX, PXB) data goes straight. Over a host bridge (PHB), between host \
                      bridges (NODE) and above all between CPUs (SYS) it passes the CPU, which many CPUs do slowly: some 16 GB/s of a \
                      200G NIC behind a host bridge, a few GB/s across sockets. {gdr}"
        ),
    };
    Some(draft.finding(
        vec![Evidence::noted(case.line_of(matrix), "the matrix")],
        &[
            "Move the NIC to a slot below the GPUs' PCIe switch, or at least to the GPUs' socket",
            try_gdr,
            "On AMD EPYC, try NPS=4 (NUMA nodes per socket) in the BIOS; bind ranks to the NIC's NUMA node",
        ],
    ))
}
