//! What a matrix of `nvidia-smi topo -m` tells.

use super::host::HostClues;
use crate::cluster::facts::LinkKind;
use busbw_model::{DeviceKind, PathType, TopoMatrix};

/// The most NVLinks that any GPU has (H100, B200).
const MOST_LINKS: u32 = 18;

/// More GPUs or NICs than any host has; pairs of all of them are looked at.
pub(super) const MOST_DEVICES: usize = 64;

pub(super) fn clues(matrix: &TopoMatrix) -> HostClues {
    let gpus: Vec<&str> = names(matrix, DeviceKind::Gpu);
    let pairs: Vec<PathType> =
        gpus.iter().enumerate().flat_map(|(at, a)| gpus[at + 1..].iter().filter_map(|b| matrix.path(a, b))).collect();
    let joined: Vec<u32> = pairs.iter().filter_map(|path| links(*path)).collect();
    let per_gpu = gpus.first().map(|gpu| links_of(matrix, gpu, &gpus));
    let all_joined = !joined.is_empty() && joined.len() == pairs.len();
    // More links than a GPU has cannot end at other GPUs.
    let switched = all_joined && (per_gpu > Some(MOST_LINKS) || joined.iter().all(|links| *links >= MOST_LINKS));
    let kind = match (switched, joined.is_empty(), gpus.len()) {
        (true, _, _) => Some(LinkKind::NvSwitch),
        (false, false, 2..) if all_joined || gpus.len() > 2 * joined_by_first(matrix, &gpus) => {
            Some(mesh_or_bridge(all_joined, &gpus))
        }
        (false, false, _) => Some(LinkKind::Mesh),
        (false, true, 2..) => Some(LinkKind::Pcie),
        (false, true, _) => None,
    };
    let nics: Vec<PathType> = names(matrix, DeviceKind::Nic)
        .iter()
        .filter_map(|nic| gpus.iter().filter_map(|gpu| matrix.path(nic, gpu)).min())
        .collect();
    // NICs beside GPUs are for their traffic; others are for storage and management.
    let near: Vec<PathType> = nics.iter().copied().filter(|path| *path <= PathType::Pxb).collect();
    let counted = if near.is_empty() { &nics } else { &near };
    HostClues {
        gpus: gpus.len(),
        nvlinks: if switched { joined.iter().max().copied() } else { per_gpu.filter(|links| *links > 0) },
        kind,
        path: pairs.iter().copied().filter(|path| links(*path).is_none()).max(),
        nics: (!counted.is_empty()).then_some(counted.len()),
        place: counted.iter().max().copied(),
        ..HostClues::default()
    }
}

fn names(matrix: &TopoMatrix, kind: DeviceKind) -> Vec<&str> {
    matrix.of_kind(kind).map(|device| device.name.as_str()).take(MOST_DEVICES).collect()
}

fn links(path: PathType) -> Option<u32> {
    if let PathType::NvLink(links) = path { Some(u32::from(links)) } else { None }
}

fn links_of(matrix: &TopoMatrix, gpu: &str, gpus: &[&str]) -> u32 {
    gpus.iter().filter(|other| **other != gpu).filter_map(|other| links(matrix.path(gpu, other)?)).sum()
}

/// Other GPUs that the first one reaches by NVLink.
fn joined_by_first(matrix: &TopoMatrix, gpus: &[&str]) -> usize {
    let Some((first, others)) = gpus.split_first() else { return 0 };
    others.iter().filter(|other| matrix.path(first, other).and_then(links).is_some()).count()
}

/// All pairs joined, or a cube mesh that joins half of them, is a mesh; a few joined in pairs are bridges.
fn mesh_or_bridge(all_joined: bool, gpus: &[&str]) -> LinkKind {
    if all_joined && gpus.len() > 2 { LinkKind::Mesh } else { LinkKind::Bridge }
}
