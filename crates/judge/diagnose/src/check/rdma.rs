//! RDMA devices: there, alike, chosen, and joined with GPU memory.

use super::area_report::{AreaReport, listed};
use super::ports::{self, HCAS};
use busbw_model::node::{HcaList, Known, RdmaDevice};
use busbw_model::{Code, LinkLayer, NodeFacts, counted};

/// Kernels from this one on let NICs reach GPU memory by dma-buf (5.12; NCCL's documentation asks for it as well).
const DMA_BUF_SINCE: (u32, u32) = (5, 12);

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    subnet(node, report);
    if node.rdma.is_empty() {
        report.skip("devices", "no RDMA device (/sys/class/infiniband is empty): NCCL uses TCP sockets between nodes");
        return chosen(node, report);
    }
    let names: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    report.ok("devices", format!("{}: {}", names.len(), listed(&names)));
    ports::check(node, report);
    chosen(node, report);
    firmware(&node.rdma, report);
    driver(&node.rdma, report);
    gpu_direct(node, report);
}

/// What tools of the subnet found, by the stages of ibdiagnet. Counters add up over months, and firmware that differs stops nobody: these are notes.
fn subnet(node: &NodeFacts, report: &mut AreaReport) {
    const ITEM: &str = "subnet";
    const LINKS: [&str; 3] = ["Links Check", "Speed / Width checks", "Phy Diagnostic (Plugin)"];
    const MANAGEMENT: [&str; 3] = ["Discovery", "Lids Check", "Subnet Manager"];
    const REMEDY: &str = "Every link and its fault is in ibdiagnet's log: `grep -E '^-E-' /var/tmp/ibdiagnet2/ibdiagnet2.log`, or `iblinkinfo | grep 'Could be'`; reseat or change the cable of a link that is slow or narrow, see that one subnet manager is master: `sudo sminfo`; see which counters rise under load: `sudo ibqueryerrors -k` resets them, `sudo ibqueryerrors` an hour later shows who counts";
    let failed: Vec<(&str, u64)> = node
        .subnet
        .iter()
        .filter(|(_, errors)| **errors > 0)
        .map(|(stage, errors)| (stage.as_str(), *errors))
        .collect();
    let has = |stages: &[&str]| failed.iter().any(|(stage, _)| stages.contains(stage));
    let each: Vec<String> = failed.iter().map(|(stage, errors)| format!("{errors} in {stage}")).collect();
    let detail = format!("errors: {}", listed(&each));
    match () {
        () if node.subnet.is_empty() => {}
        () if has(&MANAGEMENT) => report.fail(ITEM, detail, Some(Code::IbTransportError), REMEDY),
        () if has(&LINKS) => report.warn(ITEM, detail, Some(Code::NicRate), REMEDY),
        () if !failed.is_empty() => report.warn(ITEM, detail, None, REMEDY),
        () => report.ok(ITEM, format!("{} without an error", counted(node.subnet.len(), "check"))),
    }
}

fn chosen(node: &NodeFacts, report: &mut AreaReport) {
    let Some(list) = node.environment.get(HCAS) else { return };
    let absent = absent(node);
    if absent.is_empty() {
        return if !node.rdma.is_empty() {
            report.ok(HCAS, list)
        };
    }
    let there: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    let remedy = match &there[..] {
        [] => format!(
            "Load the driver of the RDMA devices (`lspci | grep -i mellanox`), or `unset {HCAS}` where there are none"
        ),
        _ => format!("Name devices that are there: {}; or `unset {HCAS}`", listed(&there)),
    };
    report.fail(HCAS, format!("{list}: no device {}", listed(&absent)), Some(Code::NetSocketFallback), remedy);
}

/// What NCCL_IB_HCA names and is not there.
pub(super) fn absent(node: &NodeFacts) -> Vec<&str> {
    let Some(list) = node.environment.get(HCAS).map(|value| HcaList::parse(value)) else { return Vec::new() };
    let is_there = |name: &&str| node.rdma.iter().any(|device| list.is_of(name, &device.name));
    let names = list.names.iter().map(|(name, _)| *name).filter(|_| !list.excludes);
    names.filter(|name| !is_there(name)).collect()
}

/// Firmware of each kind of card; equal cards should have equal firmware. Where no id tells boards apart, those of another network
/// may be others, each with its own.
fn firmware(devices: &[RdmaDevice], report: &mut AreaReport) {
    let kind = |device: &RdmaDevice| (device.hca_type.clone(), device.board.clone());
    let mut kinds: Vec<(Option<String>, Option<String>)> = devices.iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for of_kind in kinds {
        let alike: Vec<&RdmaDevice> = devices.iter().filter(|device| kind(device) == of_kind).collect();
        let mut versions: Vec<&str> = alike.iter().filter_map(|device| device.firmware.as_deref()).collect();
        versions.sort_unstable();
        versions.dedup();
        let named = of_kind.0.or(of_kind.1).map_or(String::new(), |kind| format!("{kind}: "));
        let differ = |a: &RdmaDevice, b: &RdmaDevice| {
            a.firmware.is_some() && b.firmware.is_some() && a.firmware != b.firmware && network(a) == network(b)
        };
        match versions.as_slice() {
            [] => {}
            [one] => report.ok("firmware", format!("{named}{one}")),
            several if !alike.iter().any(|a| alike.iter().any(|b| differ(a, b))) => {
                report.ok("firmware", format!("{named}{}, each of another network", listed(several)));
            }
            _ => {
                let each: Vec<String> =
                    alike.iter().map(|d| format!("{} {}", d.name, d.firmware.as_deref().unwrap_or("?"))).collect();
                let remedy = "Bring equal cards to one firmware: `sudo mlxfwmanager --online -u`";
                report.warn("firmware", format!("{named}{}", listed(&each)), Some(Code::VersionMismatch), remedy);
            }
        }
    }
}

/// The link layer and rate of a device's active port.
fn network(device: &RdmaDevice) -> Option<(Option<LinkLayer>, Option<f64>)> {
    let active = device.ports.iter().find(|port| port.state == "ACTIVE");
    active.map(|port| (port.link_layer, port.rate_gbps))
}

fn driver(devices: &[RdmaDevice], report: &mut AreaReport) {
    let mut drivers: Vec<String> = devices
        .iter()
        .filter_map(|device| {
            let version = device.driver_version.as_deref().unwrap_or("of the kernel");
            Some(format!("{} {version}", device.driver.as_deref()?))
        })
        .collect();
    drivers.sort_unstable();
    drivers.dedup();
    if !drivers.is_empty() {
        report.ok("driver", listed(&drivers));
    }
}

/// How NICs reach GPU memory: by a peer memory module, or by dma-buf of the open driver and a new kernel.
fn gpu_direct(node: &NodeFacts, report: &mut AreaReport) {
    const ITEM: &str = "GPUDirect RDMA";
    if node.gpu.devices.is_empty() {
        return report.skip(ITEM, "no GPU");
    }
    let modules = match &node.modules {
        Known::Known(modules) => modules,
        Known::Unknown(why) => return report.skip(ITEM, why),
    };
    if let Some(module) = modules.iter().find(|module| ["nvidia_peermem", "nv_peer_mem"].contains(&module.as_str())) {
        return report.ok(ITEM, format!("{module} is loaded"));
    }
    // `nvidia_peermem` joins the driver with the InfiniBand core's peer memory clients; EFA's own driver asks NVIDIA's itself.
    if node.rdma.iter().all(|device| device.driver.as_deref() == Some("efa")) {
        return report
            .skip(ITEM, "EFA's driver joins NICs and GPUs by itself: `cat /sys/class/infiniband/*/device/p2p`");
    }
    let kernel = node.kernel.as_deref().and_then(release);
    if node.gpu.open_module == Some(true) && kernel.is_some_and(|kernel| kernel >= DMA_BUF_SINCE) {
        return report.ok(ITEM, "by dma-buf: open kernel module of the driver, and a kernel that has it");
    }
    let remedy = "Load the module that joins driver and NICs, now and at boot: `sudo modprobe nvidia-peermem; echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf`";
    report.fail(ITEM, "neither nvidia_peermem nor dma-buf", Some(Code::GdrDisabled), remedy);
}

/// `5.15.0-107-generic` is 5.15.
fn release(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
