//! The links between the GPUs of a host, completed.

use super::{hardware_name, pcie_generation, vendor};
use crate::cluster::facts::{Facts, LinkKind};
use crate::cluster::hardware::{BoardWiring, Pcie};
use crate::cluster::{CpuVendor, Generation, GpuLinks, environment};
use busbw_model::{GBps, PathType};

pub(super) fn complete(facts: &Facts, notes: &mut Vec<String>) -> GpuLinks {
    let joins_hosts = environment::is_set(&facts.environment, "NCCL_MNNVL_ENABLE") != Some(false);
    let domain = facts.links.domain.or(facts.gpu.product.and_then(|model| model.domain)).filter(|_| joins_hosts);
    match kind(facts, domain, notes) {
        LinkKind::NvSwitch => {
            let domain = domain.unwrap_or(facts.gpus_per_node).max(facts.gpus_per_node);
            GpuLinks::NvSwitch { per_gpu: nvlink(facts, notes), domain, nvls: nvls(facts) }
        }
        LinkKind::Mesh => GpuLinks::NvLinkMesh { per_gpu: of_mesh(facts, nvlink(facts, notes)) },
        LinkKind::Bridge => bridged(facts, notes),
        LinkKind::Pcie => {
            GpuLinks::Pcie { per_gpu: pcie(facts, notes).rate(), peer_to_peer: peer_to_peer(facts, notes) }
        }
        LinkKind::Single => {
            let c2c = facts.gpu.product.and_then(|model| model.c2c());
            GpuLinks::Single { per_gpu: c2c.unwrap_or_else(|| pcie(facts, notes).rate()) }
        }
    }
}

fn kind(facts: &Facts, domain: Option<usize>, notes: &mut Vec<String>) -> LinkKind {
    let nvlink_off = direct_is_off(facts);
    match facts.links.kind {
        Some(kind @ (LinkKind::Pcie | LinkKind::Single)) => return kind,
        Some(kind) if !nvlink_off => return kind,
        _ => {}
    }
    if facts.gpus_per_node == 1 && domain.is_none() {
        return LinkKind::Single;
    }
    if nvlink_off {
        notes.push(
            "NCCL's variables turn P2P off, including NVLink, so GPUs exchange data through host memory.".to_string(),
        );
        return LinkKind::Pcie;
    }
    let wiring = facts.machine.and_then(|m| m.links).or(facts.gpu.product.map(|model| model.wiring));
    let board_of_four = facts.gpus_per_node == 4 && facts.gpu.product.is_some_and(|model| model.four_gpu_mesh);
    let (kind, words) = match wiring {
        Some(BoardWiring::NvSwitch) if board_of_four => (LinkKind::Mesh, "by NVLinks from GPU to GPU"),
        Some(BoardWiring::NvSwitch) => (LinkKind::NvSwitch, "by NVSwitches"),
        Some(BoardWiring::Mesh) => (LinkKind::Mesh, "by NVLinks from GPU to GPU"),
        Some(BoardWiring::Bridge) if !facts.gpu.product.is_some_and(|model| model.bridge_optional) => {
            (LinkKind::Bridge, "by NVLink bridges")
        }
        _ => (LinkKind::Pcie, "over PCIe"),
    };
    notes.push(format!("The GPUs of a host are connected {words}, usual for {}.", hardware_name(facts)));
    kind
}

/// What one GPU sends by NVLink, per direction.
fn nvlink(facts: &Facts, notes: &mut Vec<String>) -> GBps {
    if let Some(rate) = facts.links.nvlink {
        return rate;
    }
    let rate = match facts.gpu.product.and_then(|model| model.nvlink) {
        Some(nvlink) => nvlink.rate(),
        None => match facts.gpu.generation {
            Generation::Pascal => GBps(80.0),
            Generation::Volta | Generation::Turing => GBps(150.0),
            Generation::Ampere | Generation::Ada => GBps(300.0),
            Generation::Cdna | Generation::Hopper => GBps(450.0),
            Generation::Blackwell => GBps(900.0),
        },
    };
    notes.push(format!("NVLink of {} GB/s per GPU and direction, usual for {}.", rate.0, hardware_name(facts)));
    rate
}

/// Where each GPU of a board has as many links to each other, those to GPUs that take no part are idle (ROCm/rccl pull request
/// 1270 of MI300X; of A100 boards of four NVIDIA/nccl-tests issue 331, 72 GB/s between two).
fn of_mesh(facts: &Facts, all_links: GBps) -> GBps {
    let Some(model) = facts.gpu.product else { return all_links };
    let board = if model.four_gpu_mesh { 4 } else { model.board };
    let even = model.four_gpu_mesh
        || model.nvlink.is_some_and(|nvlink| (nvlink.links as usize).is_multiple_of((board - 1).max(1)));
    let counted = facts.links.kind.is_some() && facts.gpu.generation != Generation::Cdna;
    if !even || counted || facts.links.nvlink.is_some() || facts.gpus_per_node >= board {
        return all_links;
    }
    GBps(all_links.0 * (facts.gpus_per_node.max(2) - 1) as f64 / (board - 1) as f64)
}

/// Bridges join a few GPUs; a ring over more of them also crosses PCIe.
fn bridged(facts: &Facts, notes: &mut Vec<String>) -> GpuLinks {
    let joined = facts.gpu.product.map_or(2, |model| model.bridge_gpus);
    if facts.gpus_per_node <= joined {
        return GpuLinks::NvLinkMesh { per_gpu: nvlink(facts, notes) };
    }
    notes.push(format!(
        "An NVLink bridge connects {joined} GPUs, so traffic between all {} GPUs crosses PCIe.",
        facts.gpus_per_node
    ));
    GpuLinks::Pcie { per_gpu: pcie(facts, notes).rate(), peer_to_peer: peer_to_peer(facts, notes) }
}

fn pcie(facts: &Facts, notes: &mut Vec<String>) -> Pcie {
    if let Some(stated) = facts.links.pcie {
        return stated;
    }
    let pcie = match facts.gpu.product {
        Some(model) => model.pcie(),
        None => Pcie { generation: pcie_generation(facts.gpu.generation), lanes: 16 },
    };
    notes.push(format!("{pcie} per GPU, usual for {}.", hardware_name(facts)));
    pcie
}

/// Whether variables keep GPUs from reaching each other at all.
fn direct_is_off(facts: &Facts) -> bool {
    let level = facts.environment.get("NCCL_P2P_LEVEL").and_then(|level| environment::level(level));
    environment::is_set(&facts.environment, "NCCL_P2P_DISABLE") == Some(true) || level == Some(PathType::Same)
}

/// Whether GPUs reach each other over PCIe. NCCL uses that up to PXB, on AMD hosts with two GPUs at any distance
/// (`ncclTopoCheckP2p` in `src/graph/paths.cc` of NCCL 2.30).
fn peer_to_peer(facts: &Facts, notes: &mut Vec<String>) -> bool {
    let environment = &facts.environment;
    if direct_is_off(facts) {
        return false;
    }
    if let Some(stated) = facts.links.peer_to_peer {
        return stated;
    }
    let never = facts.gpu.product.is_some_and(|model| !model.peer_to_peer);
    if never || facts.machine.and_then(|machine| machine.peer_to_peer) == Some(false) {
        return false;
    }
    let amd_pair = facts.gpus_per_node <= 2 && vendor(facts) == CpuVendor::Amd;
    let default = if amd_pair { PathType::Sys } else { PathType::Pxb };
    let level = environment.get("NCCL_P2P_LEVEL").and_then(|level| environment::level(level)).unwrap_or(default);
    // What a machine should reach is asked for one that is set up well, so an unknown path is no reason against it.
    let Some(path) = facts.links.path else {
        notes.push("GPUs reach each other directly over PCIe (P2P), as on one PCIe switch.".to_string());
        return true;
    };
    path <= level
}

/// Whether the NVSwitches add: Hopper and later, among any GPUs of a board, from NCCL 2.17 on.
fn nvls(facts: &Facts) -> bool {
    let allowed = environment::is_set(&facts.environment, "NCCL_NVLS_ENABLE") != Some(false);
    let version = facts.nccl.is_none_or(|version| version >= (2, 17));
    facts.links.nvls.unwrap_or(true) && facts.gpu.generation >= Generation::Hopper && version && allowed
}
