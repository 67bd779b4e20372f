//! What an NCCL topology XML tells.

use super::host::HostClues;
use super::matrix::MOST_DEVICES;
use crate::cluster::CpuVendor;
use crate::cluster::facts::LinkKind;
use crate::cluster::hardware::Pcie;
use busbw_model::{GBps, PathType, XmlCpu, XmlNet, XmlNic, XmlPci, XmlTopology};
use std::collections::BTreeSet;

/// Where a device hangs: the CPU, and the bridges above it from the top.
#[derive(Debug, Clone)]
struct Spot<'a> {
    cpu: usize,
    bridges: Vec<&'a str>,
    device: &'a XmlPci,
}

/// Reads the XML. A fused topology of several hosts is read for its first.
pub(super) fn clues(xml: &XmlTopology) -> HostClues {
    let first = xml.cpus.first().and_then(|cpu| cpu.host_hash.as_deref());
    let cpus: Vec<&XmlCpu> = xml.cpus.iter().filter(|cpu| cpu.host_hash.as_deref() == first).collect();
    let spots: Vec<Spot> = cpus.iter().enumerate().flat_map(|(index, cpu)| spots(index, &cpu.pcis)).collect();
    let gpus: Vec<&Spot> = spots.iter().filter(|spot| is_gpu(spot.device)).take(MOST_DEVICES).collect();
    let nics: Vec<&Spot> = spots.iter().filter(|spot| is_nic(spot.device)).take(MOST_DEVICES).collect();
    let loose: Vec<&XmlNic> = cpus.iter().flat_map(|cpu| &cpu.nics).collect();
    let nets: Vec<&XmlNet> =
        nics.iter().flat_map(|spot| &spot.device.nics).chain(loose).flat_map(|nic| &nic.nets).collect();
    // NICs directly below a CPU reach GPUs over its host bridge at best.
    let over_cpu = cpus.iter().any(|cpu| !cpu.nics.is_empty()).then_some(PathType::Phb);
    let places = nics.iter().filter_map(|nic| gpus.iter().map(|gpu| path(nic, gpu)).min());
    let nic_count = if nets.is_empty() { nics.len() } else { nets.len() };
    let speed = nets.iter().filter_map(|net| net.speed_mbps).filter(|mbps| *mbps > 0).max();
    let gdr: Vec<bool> = nets.iter().filter_map(|net| net.gdr).collect();
    HostClues {
        gpus: gpus.len(),
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

/// The devices below some bridges. The reader of the XML limits their depth.
fn spots<'a>(cpu: usize, pcis: &'a [XmlPci]) -> Vec<Spot<'a>> {
    let mut found = Vec::new();
    let mut next: Vec<(Vec<&'a str>, &'a XmlPci)> = pcis.iter().map(|pci| (Vec::new(), pci)).rev().collect();
    while let Some((bridges, pci)) = next.pop() {
        let below: Vec<&str> = bridges.iter().copied().chain([pci.bus_id.as_str()]).collect();
        next.extend(pci.children.iter().rev().map(|child| (below.clone(), child)));
        found.push(Spot { cpu, bridges, device: pci });
    }
    found
}

/// PCI classes: 0x0300 and 0x0302 are display controllers, 0x0200 and 0x0207 network controllers.
fn is_gpu(pci: &XmlPci) -> bool {
    pci.gpu.is_some() || pci.class.as_deref().is_some_and(|class| class.starts_with("0x03"))
}

fn is_nic(pci: &XmlPci) -> bool {
    !pci.nics.is_empty() || pci.class.as_deref().is_some_and(|class| class.starts_with("0x02"))
}

fn path(a: &Spot, b: &Spot) -> PathType {
    if a.cpu != b.cpu {
        return PathType::Sys;
    }
    let shared = a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| a == b).count();
    match (shared, a.bridges.len().max(b.bridges.len()) - shared) {
        (0, _) => PathType::Phb,
        (_, 0) => PathType::Pix,
        _ => PathType::Pxb,
    }
}

fn worst_pair(gpus: &[&Spot]) -> Option<PathType> {
    let pairs = gpus.iter().enumerate().flat_map(|(at, a)| gpus[at + 1..].iter().map(|b| path(a, b)));
    pairs.max()
}

fn nvlinks(pci: &XmlPci) -> u32 {
    pci.gpu.iter().flat_map(|gpu| &gpu.nvlinks).map(|(_, count)| *count).fold(0, u32::saturating_add)
}

/// NVLinks end at other GPUs or at switches, whose bus id NCCL writes as `fffffff:ffff:ff`.
fn kind(gpus: &[&Spot]) -> Option<LinkKind> {
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
