//! What an NCCL topology XML shows.

use super::host::HostClues;
use super::matrix::MOST_DEVICES;
use crate::cluster::CpuVendor;
use crate::cluster::facts::LinkKind;
use crate::cluster::hardware::Pcie;
use busbw_model::{GBps, PathType, PciSpot, XmlCpu, XmlNet, XmlNic, XmlPci, XmlTopology};
use std::collections::BTreeSet;

/// Reads the XML. A fused topology of several hosts is read for its first.
pub(super) fn clues(xml: &XmlTopology) -> HostClues {
    let first = xml.cpus.first().and_then(|cpu| cpu.host_hash.as_deref());
    let of_first = |cpu: &XmlCpu| cpu.host_hash.as_deref() == first;
    let cpus: Vec<&XmlCpu> = xml.cpus.iter().filter(|cpu| of_first(cpu)).collect();
    let spots: Vec<PciSpot> = xml.spots().into_iter().filter(|spot| of_first(&xml.cpus[spot.cpu])).collect();
    let gpus: Vec<&PciSpot> = spots.iter().filter(|spot| spot.device.is_gpu()).take(MOST_DEVICES).collect();
    let nics: Vec<&PciSpot> = spots.iter().filter(|spot| spot.device.is_nic()).take(MOST_DEVICES).collect();
    let loose: Vec<&XmlNic> = cpus.iter().flat_map(|cpu| &cpu.nics).collect();
    let nets: Vec<&XmlNet> =
        nics.iter().flat_map(|spot| &spot.device.nics).chain(loose).flat_map(|nic| &nic.nets).collect();
    // NICs directly below a CPU reach GPUs over its host bridge at best.
    let over_cpu = cpus.iter().any(|cpu| !cpu.nics.is_empty()).then_some(PathType::Phb);
    let places = nics.iter().filter_map(|nic| gpus.iter().map(|gpu| nic.path(gpu)).min());
    let nic_count = if nets.is_empty() { nics.len() } else { nets.len() };
    let speed = nets.iter().filter_map(|net| net.speed_mbps).filter(|mbps| *mbps > 0).max();
    let gdr: Vec<bool> = nets.iter().filter_map(|net| net.gdr).collect();
    HostClues {
        gpus: gpus.len(),
        product: None,
        capability: gpus.iter().filter_map(|spot| spot.device.gpu.as_ref()?.sm).max(),
        nvlinks: gpus.iter().map(|spot| nvlinks(spot.device)).max().filter(|links| *links > 0),
        kind: kind(&gpus),
        path: worst_pair(&gpus),
        gpu_pcie: gpus.iter().filter_map(|spot| pcie(spot.device)).next(),
        nics: (nic_count > 0).then_some(nic_count),
        nic_rate: speed.map(|mbps| GBps(mbps as f64 / 8000.0)),
        place: places.chain(over_cpu).max(),
        nic_pcie: nics.iter().filter_map(|spot| pcie(spot.device)).next(),
        gpu_direct: if gdr.is_empty() { None } else { Some(gdr.iter().any(|gdr| *gdr)) },
        cpu: cpus.iter().find_map(|cpu| vendor(cpu)),
        // NUMA nodes, of which a socket may have several; one alone may be all that a guest sees.
        sockets: (cpus.len() > 1).then_some(2),
    }
}

fn worst_pair(gpus: &[&PciSpot]) -> Option<PathType> {
    let pairs = gpus.iter().enumerate().flat_map(|(at, a)| gpus[at + 1..].iter().map(|b| a.path(b)));
    pairs.max()
}

fn nvlinks(pci: &XmlPci) -> u32 {
    pci.gpu.iter().flat_map(|gpu| &gpu.nvlinks).map(|(_, count)| *count).fold(0, u32::saturating_add)
}

/// NVLinks end at other GPUs or at switches, whose bus id NCCL writes as `fffffff:ffff:ff`.
fn kind(gpus: &[&PciSpot]) -> Option<LinkKind> {
    let ids: BTreeSet<&str> = gpus.iter().map(|spot| spot.device.bus_id.as_str()).collect();
    let mut targets = gpus.iter().filter_map(|spot| spot.device.gpu.as_ref()).flat_map(|gpu| &gpu.nvlinks).peekable();
    targets.peek()?;
    let peers: usize = targets.clone().filter(|(target, _)| ids.contains(target.as_str())).count();
    Some(match peers {
        0 => LinkKind::NvSwitch,
        // Each of several GPUs has one NVLink neighbour at most: bridges.
        _ if gpus.len() > 2 && peers <= gpus.len() => LinkKind::Bridge,
        _ => LinkKind::Mesh,
    })
}

/// GT/s per lane: 8 for generation 3.
fn pcie(pci: &XmlPci) -> Option<Pcie> {
    let generation = match pci.link_speed_gts? {
        speed if speed < 2.6 => 1,
        speed if speed < 5.1 => 2,
        speed if speed < 8.1 => 3,
        speed if speed < 16.1 => 4,
        speed if speed < 32.1 => 5,
        _ => 6,
    };
    let lanes = u8::try_from(pci.link_width?).ok().filter(|lanes| (1..=32).contains(lanes))?;
    Some(Pcie { generation, lanes })
}

fn vendor(cpu: &XmlCpu) -> Option<CpuVendor> {
    match (cpu.arch.as_deref(), cpu.vendor.as_deref()) {
        (Some(arch), _) if arch.starts_with("arm") || arch.starts_with("aarch") => Some(CpuVendor::Arm),
        (Some(arch), _) if arch.starts_with("ppc") => Some(CpuVendor::Power),
        (_, Some("GenuineIntel")) => Some(CpuVendor::Intel),
        (_, Some("AuthenticAMD")) => Some(CpuVendor::Amd),
        _ => None,
    }
}
