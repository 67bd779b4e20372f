//! The NICs of a host, completed.

use super::pcie_generation;
use crate::cluster::facts::{Facts, StatedTransport};
use crate::cluster::hardware::{MachineProduct, Pcie};
use crate::cluster::{Generation, GpuLinks, NetTransport, Nics, environment};
use busbw_model::{GBps, PathType};
use std::collections::BTreeMap;

/// Completes the NICs; `None` where there is no network.
pub(super) fn complete(facts: &Facts, links: &GpuLinks, one_domain: bool, notes: &mut Vec<String>) -> Option<Nics> {
    let machine = facts.machine;
    let transport = match facts.network.transport {
        StatedTransport::None => return None,
        StatedTransport::Is(transport) => transport,
        StatedTransport::Unknown if one_domain && facts.network.count.is_none() => return None,
        StatedTransport::Unknown => {
            let transport = machine.and_then(|machine| machine.transport).unwrap_or(NetTransport::InfiniBand);
            notes.push(format!("Network: {}.", transport.name()));
            transport
        }
    };
    let count = facts.network.count.or(machine.and_then(|machine| machine.nics)).unwrap_or_else(|| {
        notes.push(format!("{} NICs per host, one per GPU.", facts.gpus_per_node));
        facts.gpus_per_node
    });
    let rate = facts.network.rate.or(machine.and_then(|machine| machine.nic_rate())).unwrap_or_else(|| {
        let rate = usual_nic(facts);
        notes.push(format!("NICs of {} Gbit/s, usual with these GPUs.", rate.gbit_per_s()));
        rate
    });
    let place = place(facts, links, count, notes);
    Some(Nics {
        count,
        rate,
        transport,
        flow_limit: facts.network.flow_limit.or_else(|| flow_limit(facts, transport, notes)),
        gpu_direct: gpu_direct(facts, transport, place, notes),
        place: place.path,
        pcie: nic_pcie(facts, rate),
    })
}

/// The NIC that is sold with such GPUs: EDR, HDR, NDR, and XDR where the GPU has PCIe 6.0.
pub(in crate::cluster) fn usual_nic(facts: &Facts) -> GBps {
    let newest = facts.gpu.product.is_some_and(|model| model.pcie().generation >= 6);
    GBps(match facts.gpu.generation {
        Generation::Pascal | Generation::Volta | Generation::Turing => 12.5,
        Generation::Ampere | Generation::Ada => 25.0,
        Generation::Blackwell if newest => 100.0,
        Generation::Cdna if facts.gpu.product.is_some_and(|model| model.pcie().generation < 5) => 25.0,
        Generation::Cdna | Generation::Hopper | Generation::Blackwell => 50.0,
    })
}

/// A path, and whether it was assumed.
#[derive(Clone, Copy)]
struct NicPlace {
    path: PathType,
    assumed: bool,
}

fn place(facts: &Facts, links: &GpuLinks, count: usize, notes: &mut Vec<String>) -> NicPlace {
    let stated = facts.network.place.or(facts.machine.and_then(|machine| machine.place()));
    if let Some(path) = stated {
        return NicPlace { path, assumed: false };
    }
    let on_board = matches!(links, GpuLinks::NvSwitch { .. } | GpuLinks::NvLinkMesh { .. });
    let path = if facts.gpu.product.is_some_and(|model| model.c2c().is_some()) {
        PathType::Phb
    } else if on_board && 2 * count >= facts.gpus_per_node {
        PathType::Pix
    } else {
        PathType::Node
    };
    notes.push(format!("Path from a NIC to its nearest GPU: {path}."));
    NicPlace { path, assumed: true }
}

/// Whether NICs reach GPU memory. NCCL lets them up to PXB, and at any distance where the GPU hangs on the processor by
/// NVLink-C2C (`ncclTopoCheckGdr` in `src/graph/paths.cc` of NCCL 2.30).
fn gpu_direct(facts: &Facts, transport: NetTransport, place: NicPlace, notes: &mut Vec<String>) -> bool {
    if let Some(stated) = facts.network.gpu_direct {
        return stated && transport != NetTransport::Tcp;
    }
    let possible = transport != NetTransport::Tcp
        && facts.gpu.product.is_none_or(|model| model.gpu_direct)
        && facts.machine.and_then(|machine| machine.gpu_direct) != Some(false)
        && environment::is_set(&facts.environment, "NCCL_IB_CUDA_SUPPORT") != Some(false);
    let by_c2c = facts.gpu.product.is_some_and(|model| model.c2c().is_some());
    let level = ["NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"].iter().find_map(|name| facts.environment.get(*name));
    let level = level.and_then(|level| environment::level(level));
    if !possible || level == Some(PathType::Same) {
        return false;
    }
    if by_c2c {
        return true;
    }
    // What a machine should reach is asked for one that is set up well, so an assumed path is no reason against it.
    if place.assumed {
        notes.push("GPUDirect RDMA is on.".to_string());
        return true;
    }
    // Centres with Slingshot set NCCL_NET_GDR_LEVEL=PHB for everybody: docs.isambard.ac.uk (env_vars.sh), docs.cscs.ch (NCCL),
    // NERSC's module nccl (NERSC/podman-hpc issue 136).
    let usual = if transport == NetTransport::Slingshot { PathType::Phb } else { PathType::Pxb };
    let near = place.path <= level.unwrap_or(usual);
    if !near {
        notes.push(format!("GPUDirect RDMA is off: NCCL does not use it over a path of {}.", place.path));
    }
    near
}

/// What PCIe carries between a NIC and its GPU: the slower of both ends.
fn nic_pcie(facts: &Facts, rate: GBps) -> GBps {
    let stated = facts.network.pcie.or(facts.machine.and_then(|machine| machine.nic_pcie()));
    let of_generation = Pcie { generation: pcie_generation(facts.gpu.generation), lanes: 16 };
    let gpu = facts.links.pcie.or(facts.gpu.product.map(|model| model.pcie())).unwrap_or(of_generation);
    let nic = stated.unwrap_or(Pcie { generation: usual_generation(rate).max(gpu.generation.min(4)), lanes: 16 });
    GBps(nic.rate().0.min(gpu.rate().0))
}

/// The PCIe generation of a NIC that is sold for a rate: ConnectX-5 has 3.0, ConnectX-6 4.0, ConnectX-7 5.0, ConnectX-8 6.0.
fn usual_generation(rate: GBps) -> u8 {
    match rate.gbit_per_s() {
        ..=100.0 => 3,
        ..=200.0 => 4,
        ..=400.0 => 5,
        _ => 6,
    }
}

/// Sets the sockets per connection that NCCL itself opens in some clouds, where variables do not say otherwise: threads and
/// sockets of each (`ncclNetSocketGetNsockNthread` in `src/transport/net_socket.cc` of NCCL 2.30).
pub(super) fn open_sockets(
    machine: Option<&MachineProduct>,
    environment: &mut BTreeMap<String, String>,
    notes: &mut Vec<String>,
) {
    const CLOUDS: [(&str, &str, &str); 2] = [("AWS", "2", "8"), ("GCP", "4", "1")];
    let of_cloud = |machine: &MachineProduct| CLOUDS.into_iter().find(|(cloud, ..)| machine.name.starts_with(cloud));
    let Some((cloud, threads, sockets)) = machine.and_then(of_cloud) else { return };
    for (name, value) in [("NCCL_SOCKET_NTHREADS", threads), ("NCCL_NSOCKS_PERTHREAD", sockets)] {
        if !environment.contains_key(name) {
            environment.insert(name.to_string(), value.to_string());
            notes.push(format!("{name}={value}, NCCL's own choice on {cloud}."));
        }
    }
}

/// A TCP flow on AWS outside a cluster placement group carries 5 Gbit/s
/// (<https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html>).
fn flow_limit(facts: &Facts, transport: NetTransport, notes: &mut Vec<String>) -> Option<GBps> {
    let aws = facts.machine.is_some_and(|machine| machine.name.starts_with("AWS"));
    if transport != NetTransport::Tcp || !aws {
        return None;
    }
    notes.push("5 Gbit/s per TCP flow, as on AWS outside a cluster placement group.".to_string());
    Some(GBps(0.625))
}
