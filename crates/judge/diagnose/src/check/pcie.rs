//! The way between devices and memory: links, access control, IOMMU, NUMA.

use super::area_report::{AreaReport, listed};
use busbw_model::node::{Bridge, GpuDevice, PciFunction};
use busbw_model::{Code, NodeFacts, PcieLink};

/// A device on PCIe: its name, its function, the rate of its ports in Gbit/s.
struct Device<'a> {
    name: String,
    function: &'a PciFunction,
    ports_gbps: f64,
    is_gpu: bool,
    is_partial: bool,
    /// The widest link of another GPU of its kind.
    alike: Option<u32>,
}

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    let devices = devices(node);
    if devices.is_empty() {
        report.skip("links", "no GPU and no RDMA device on PCIe");
    }
    for device in &devices {
        link(device, report);
    }
    acs(&node.bridges, report);
    if !node.pcie_errors.is_empty() {
        let remedy = "The link loses packets, and transfers are repeated or fail. Reseat the card, check riser and power, update the firmware: `sudo dmesg -T | grep -i aer`";
        let detail = format!("uncorrected at {}", listed(&node.pcie_errors));
        report.warn("PCIe errors", detail, Some(Code::PcieDegraded), remedy);
    }
    if !devices.is_empty() {
        iommu(&devices, report);
        numa(&devices, report);
    }
}

fn devices(node: &NodeFacts) -> Vec<Device<'_>> {
    let gpus = &node.gpu.devices;
    let alike = |gpu: &GpuDevice| {
        let others = gpus.iter().filter(|other| node.partial && other.index != gpu.index && other.name == gpu.name);
        others.filter_map(|other| Some(other.pci.link?.width)).max()
    };
    let gpus = gpus.iter().map(|gpu| Device {
        name: format!("GPU {}", gpu.index),
        function: &gpu.pci,
        ports_gbps: 0.0,
        is_gpu: true,
        is_partial: node.partial,
        alike: alike(gpu),
    });
    let nics = node.rdma.iter().filter_map(|nic| {
        let active = nic.ports.iter().filter(|port| port.state == "ACTIVE");
        let ports_gbps = active.filter_map(|port| port.rate_gbps).sum();
        Some(Device {
            name: nic.name.clone(),
            function: nic.pci.as_ref()?,
            ports_gbps,
            is_gpu: false,
            is_partial: node.partial,
            alike: None,
        })
    });
    gpus.chain(nics).collect()
}

fn shown(link: &PcieLink) -> String {
    format!("{} GT/s x{}", link.speed_gts, link.width)
}

/// A link below what both ends can do did not come up as it should; one below what only the device can do sits in a slot that
/// has no more. GPUs lower the speed of their link while idle.
fn link(device: &Device, report: &mut AreaReport) {
    const ITEM: &str = "link";
    let Device { name, function, .. } = device;
    let report = report.about(name);
    const REMEDY: &str = "The link came up with fewer lanes or a lower speed than both ends have: reseat the card, check riser and bifurcation in the BIOS: `sudo lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'`";
    let detail = |link| format!("{} at {}", shown(link), function.address).trim_end_matches(" at ").to_string();
    // Where nothing tells what a GPU could do, others of its kind show it.
    let shown_by_others = || Some(PcieLink { width: device.alike?, ..function.link.filter(|link| !link.downgraded)? });
    let most = function.most.or_else(shown_by_others);
    let (now, most) = match (&function.link, &most) {
        (Some(now), Some(most)) => (now, most),
        (Some(now), None) if now.downgraded => {
            return report.warn(ITEM, detail(now) + ", downgraded", Some(Code::PcieDegraded), REMEDY);
        }
        _ => return report.skip(ITEM, "the kernel does not tell, as with virtual functions"),
    };
    let detail = detail(now);
    let slot = function.slot.as_ref().and_then(|slot| slot.most.as_ref());
    let is_slow = |most: &PcieLink| now.width < most.width || (!device.is_gpu && now.speed_gts < most.speed_gts);
    let needed = device.ports_gbps / 8.0;
    let starves = needed > now.gb_per_s();
    // lspci's output may lack the slot; then nothing is known about it.
    let both = slot.map_or(!device.is_partial, &is_slow);
    if is_slow(most) && both {
        report.fail(ITEM, format!("{detail}, {} is possible", shown(most)), Some(Code::PcieDegraded), REMEDY);
    } else if starves {
        let remedy = "Move the card to a slot with more lanes; until then its ports cannot reach their rate";
        let detail = format!("{detail} is {:.1} GB/s, its ports need {needed:.1}", now.gb_per_s());
        report.fail(ITEM, detail, Some(Code::PcieDegraded), remedy);
    } else if is_slow(most) {
        let remedy = match slot {
            Some(_) => "The slot has less than the card could use: move the card if its ports or the GPU need more",
            None => REMEDY,
        };
        report.warn(ITEM, format!("{detail}, the card could do {}", shown(most)), Some(Code::PcieDegraded), remedy);
    } else if device.is_partial && now.speed_gts < most.speed_gts {
        // A node that was looked at whole has nothing else that a slow link would show; here it is all there is.
        let why = format!(
            "at {} of {} GT/s; is the GPU idle? Idle GPUs lower the speed: look while it works: `nvidia-smi -q | grep -A 5 'PCIe Gen'`",
            now.speed_gts, most.speed_gts
        );
        report.skip(ITEM, why);
    } else {
        report.ok(ITEM, shown(now));
    }
}

fn acs(bridges: &[Bridge], report: &mut AreaReport) {
    const ITEM: &str = "ACS";
    let on: Vec<&Bridge> = bridges.iter().filter(|bridge| bridge.acs_redirects.get() == Some(&true)).collect();
    let unread = bridges.iter().filter_map(|bridge| bridge.acs_redirects.why()).next();
    if !on.is_empty() {
        let above = |bridge: &Bridge| match bridge.above.as_slice() {
            [] => bridge.address.clone(),
            devices => format!("{} above {}", bridge.address, listed(devices)),
        };
        let names: Vec<String> = on.iter().map(|bridge| above(bridge)).collect();
        let detail = format!("redirects at {}", listed(&names));
        let remedy = "Requests between devices below these bridges go up to the CPU and back. Turn ACS off in the BIOS, or until the next boot with `sudo setpci -s BRIDGE ECAP_ACS+0x6.w=0000` (in a virtual machine: on its host)";
        if on.iter().any(|bridge| bridge.above.iter().any(|name| name.starts_with("GPU"))) {
            report.fail(ITEM, detail, Some(Code::PcieAcs), remedy);
        } else {
            report.warn(ITEM, detail, Some(Code::PcieAcs), remedy);
        }
    } else if let Some(why) = unread {
        report.skip(ITEM, why);
    } else if !bridges.is_empty() {
        report.ok(ITEM, format!("off on the {} bridges above GPUs and NICs", bridges.len()));
    }
}

/// Types of the kernel's `/sys/kernel/iommu_groups/*/type`: `identity` passes addresses through, `DMA` and `DMA-FQ` translate.
fn iommu(devices: &[Device], report: &mut AreaReport) {
    let translated = |device: &&Device| device.function.iommu.as_deref().is_some_and(|kind| kind.starts_with("DMA"));
    let names: Vec<&str> = devices.iter().filter(translated).map(|device| device.name.as_str()).collect();
    if !names.is_empty() {
        let remedy = "Let it pass addresses of the host's own devices through: add `iommu=pt` (on Arm `iommu.passthrough=1`) to the kernel's command line and reboot";
        report.warn("IOMMU", format!("translates for {}", listed(&names)), Some(Code::PcieAcs), remedy);
    } else if devices.iter().any(|device| device.function.iommu.is_some()) {
        report.ok("IOMMU", "passes addresses through");
    } else {
        report.ok("IOMMU", "none");
    }
}

fn numa(devices: &[Device], report: &mut AreaReport) {
    let of = |gpu: bool| -> Vec<(&str, u32)> {
        let those = devices.iter().filter(|device| device.is_gpu == gpu);
        those.filter_map(|device| Some((device.name.as_str(), device.function.numa_node?))).collect()
    };
    let (gpus, nics) = (of(true), of(false));
    let far: Vec<&str> =
        gpus.iter().filter(|(_, node)| !nics.iter().any(|(_, other)| other == node)).map(|(name, _)| *name).collect();
    if !far.is_empty() && !nics.is_empty() {
        let remedy = "Data of these GPUs crosses the link between the CPUs. Spread the NICs over the NUMA nodes, or let NCCL go through a GPU near a NIC (PXN): `nvidia-smi topo -m`";
        return report.warn("NUMA", format!("no NIC on the node of {}", listed(&far)), Some(Code::NicFar), remedy);
    }
    let each: Vec<String> = nics.iter().chain(&gpus).map(|(name, node)| format!("{name} on {node}")).collect();
    if !each.is_empty() {
        report.ok("NUMA", listed(&each));
    }
}
