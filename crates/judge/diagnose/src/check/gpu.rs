//! GPUs: there, healthy, joined.

use super::area_report::{AreaReport, listed};
use crate::xid::{CLEAN_UP, Fault, fault, meaning};
use busbw_model::node::{FabricState, GpuDevice, GpuTest, Known, XidLine};
use busbw_model::{Code, NodeFacts, Outcome};
use busbw_predict::cluster::joined_by_nvlink;
use std::collections::BTreeSet;

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    if count(node, report) {
        match &node.gpu.nvml {
            Known::Unknown(why) if !is_amd(&node.gpu.devices) => report.skip("state of GPUs", why),
            _ => {}
        }
        persistence(&node.gpu.devices, report);
    }
    sensors(&node.gpu.devices, report);
    slowdowns(&node.gpu.devices, report);
    power(&node.gpu.devices, report);
    ecc(&node.gpu.devices, report);
    recovery(&node.gpu.devices, report);
    nvlink(node, report);
    link_errors(&node.gpu.devices, report);
    fabric(node, report);
    mig(&node.gpu.devices, report);
    diagnostic(&node.gpu.diagnostic, report);
    if !node.gpu.devices.is_empty() || node.xids.get().is_some_and(|xids| !xids.is_empty()) {
        xids(node, report);
    }
    peers(node, report);
}

/// Whether there are GPUs to look at.
fn count(node: &NodeFacts, report: &mut AreaReport) -> bool {
    const DRIVER: &str = "Install NVIDIA's driver, or start it and read why it does not come up: `sudo modprobe nvidia; sudo dmesg | grep NVRM`";
    const LOST: &str = "A GPU that is on PCIe and not in the driver's list has failed or fallen off the bus: `sudo dmesg | grep -E 'NVRM|Xid'`; power the node off and on";
    let gpu = &node.gpu;
    let there = gpu.devices.len();
    let driver = gpu.driver.as_deref().map_or(String::new(), |driver| format!(", driver {driver}"));
    match gpu.on_the_bus.map_or(there, |count| count as usize) {
        0 if there == 0 => report.skip("GPUs", "no NVIDIA GPU on PCIe"),
        on_the_bus if there == 0 => {
            report.fail(
                "GPUs",
                format!("{on_the_bus} on PCIe, none in the driver's list{driver}"),
                Some(Code::GpuError),
                DRIVER,
            );
        }
        on_the_bus if there < on_the_bus => {
            let detail = format!("{there} of the {on_the_bus} on PCIe{driver}");
            report.fail("GPUs", detail, Some(Code::GpuError), LOST);
        }
        _ => report.ok("GPUs", format!("{there} × {}{driver}", gpu.devices[0].name)),
    }
    there > 0
}

/// Names of the GPUs that something holds of.
fn named(devices: &[GpuDevice], is: impl Fn(&GpuDevice) -> bool) -> Vec<String> {
    devices.iter().filter(|gpu| is(gpu)).map(|gpu| format!("GPU {}", gpu.index)).collect()
}

fn persistence(devices: &[GpuDevice], report: &mut AreaReport) {
    let off = named(devices, |gpu| gpu.persistence == Some(false));
    if !off.is_empty() {
        let remedy = "Keep the driver loaded, so that runs do not wait for the GPUs to start: `sudo systemctl enable --now nvidia-persistenced` or `sudo nvidia-smi -pm 1`";
        report.warn("persistence", format!("off: {}", listed(&off)), None, remedy);
    } else if devices.iter().all(|gpu| gpu.persistence == Some(true)) {
        report.ok("persistence", "on");
    }
}

fn is_amd(devices: &[GpuDevice]) -> bool {
    devices.iter().any(|gpu| gpu.name.starts_with("AMD"))
}

/// A GPU whose sensors do not answer, beside others that do, hangs or has fallen off the bus.
fn sensors(devices: &[GpuDevice], report: &mut AreaReport) {
    const ITEM: &str = "sensors";
    const REMEDY: &str = "See what its driver says, then reset the GPU or reboot the node: `sudo dmesg | grep amdgpu; sudo amd-smi reset -G`";
    const OF_NVIDIA: &str = "See what its driver says, then reset the GPU or power the node off and on: `sudo dmesg | grep -E 'NVRM|Xid'; sudo nvidia-smi --gpu-reset -i N`; do not use the node meanwhile";
    if !is_amd(devices) {
        for gpu in devices.iter().filter(|gpu| gpu.readable == Some(false)) {
            let report = report.about(format!("GPU {}", gpu.index));
            report.fail(ITEM, "do not answer: nothing of the GPU can be read", Some(Code::GpuError), OF_NVIDIA);
        }
        return;
    }
    let one_answers = devices.iter().any(|gpu| gpu.readable == Some(true));
    for (gpu, readable) in devices.iter().filter_map(|gpu| Some((gpu, gpu.readable?))) {
        let report = report.about(format!("GPU {}", gpu.index));
        match readable {
            true => report.ok(ITEM, "temperature and clocks can be read"),
            false if one_answers => {
                report.warn(ITEM, "report no temperature and no clocks", Some(Code::GpuError), REMEDY)
            }
            false => report.skip(ITEM, "of no GPU can be read: does the driver work? `sudo dmesg | grep amdgpu`"),
        }
    }
}

/// Heat, or a lack of power, that slows GPUs down; the cap on power that each has slows them down as well, and rightly.
fn slowdowns(devices: &[GpuDevice], report: &mut AreaReport) {
    const REMEDY: &str = "Check cooling and power supply (fans, inlets, neighbours, cables): `nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`; do not use the node meanwhile";
    for (gpu, reasons) in devices.iter().filter_map(|gpu| Some((gpu, gpu.slowdowns.as_deref()?))) {
        let report = report.about(format!("GPU {}", gpu.index));
        match reasons {
            [] => report.ok("clocks", "no slowdown by heat or lack of power"),
            reasons => report.warn("clocks", listed(reasons), Some(Code::StragglerNode), REMEDY),
        }
    }
}

/// What DCGM's own tests found.
fn diagnostic(tests: &[GpuTest], report: &mut AreaReport) {
    const ITEM: &str = "DCGM's diagnostic";
    /// What it says of the host's settings costs no GPU anything.
    const SETTINGS: [&str; 5] =
        ["Environment Variables", "Graphics Processes", "Persistence Mode", "Permissions and OS Blocks", "Denylist"];
    const REMEDY: &str = "Drain the node, and run the failed test again with its details: `dcgmi diag -r 3 -v`, and see the GPU's history: `dmesg -T | grep -iE 'xid|nvrm'; nvidia-smi -q -d ECC,TEMPERATURE,ROW_REMAPPER`; a GPU that fails twice needs a reset, or service";
    let with = |outcome| tests.iter().filter(move |test| test.outcome == outcome);
    let is_of_gpu = |test: &&GpuTest| !SETTINGS.contains(&test.name.as_str());
    let (failed, warned) = (with(Outcome::Fail), with(Outcome::Warn).filter(is_of_gpu));
    let passed = with(Outcome::Ok).count();
    let told = |test: &GpuTest| {
        let on = if test.on.is_empty() { String::new() } else { format!(" on {}", listed(&test.on)) };
        let said = if test.said.is_empty() { String::new() } else { format!(" ({})", test.said) };
        format!("{}{on}{said}", test.name)
    };
    let (failed, warned): (Vec<_>, Vec<_>) = (failed.map(told).collect(), warned.map(told).collect());
    match (failed.is_empty(), warned.is_empty(), passed) {
        (false, ..) => report.fail(ITEM, format!("fails: {}", listed(&failed)), Some(Code::GpuError), REMEDY),
        (true, false, _) => report.warn(ITEM, format!("warns: {}", listed(&warned)), Some(Code::GpuError), REMEDY),
        (true, true, 1..) => report.ok(ITEM, format!("{passed} tests passed")),
        (true, true, 0) => {}
    }
}

/// A cap on power below that of another GPU of the kind, or far below the driver's own: it slows the GPU down under load, and the others wait for it.
fn power(devices: &[GpuDevice], report: &mut AreaReport) {
    const ITEM: &str = "power limit";
    const REMEDY: &str = "Set it back, or find out who set it (a script at boot, DCGM, a rack's power manager): `sudo nvidia-smi -i N -pl WATTS`; see `nvidia-smi -q -d POWER`";
    /// Data centres cap all of their GPUs by less.
    const FAR: f64 = 0.7;
    let limit = |gpu: &GpuDevice| gpu.power.as_ref().and_then(|power| power.watts);
    let mut sound = None;
    for (gpu, watts) in devices.iter().filter_map(|gpu| Some((gpu, limit(gpu)?))) {
        let alike = devices.iter().filter(|other| other.name == gpu.name).filter_map(limit);
        let most = alike.fold(watts, f64::max);
        let usual = gpu.power.as_ref().and_then(|power| power.default_watts).unwrap_or(most);
        let of = match () {
            () if watts < most * 0.99 => format!("{most:.0} W on others of its kind"),
            () if watts < usual * FAR => format!("{usual:.0} W by default"),
            () => {
                sound = Some(watts);
                continue;
            }
        };
        let report = report.about(format!("GPU {}", gpu.index));
        report.warn(ITEM, format!("{watts:.0} W, {of}"), Some(Code::StragglerNode), REMEDY);
    }
    if let Some(watts) = sound {
        report.ok(ITEM, format!("{watts:.0} W"));
    }
}

fn ecc(devices: &[GpuDevice], report: &mut AreaReport) {
    let has = |is: fn(&busbw_model::node::Ecc) -> bool| named(devices, |gpu| gpu.ecc.as_ref().is_some_and(is));
    let broken = has(|ecc| {
        ecc.uncorrected.is_some_and(|errors| errors > 0)
            || ecc.remapping_failed == Some(true)
            || ecc.sram_exceeded == Some(true)
    });
    let pending = has(|ecc| ecc.pending == Some(true));
    let off = has(|ecc| !ecc.enabled);
    let counts = if is_amd(devices) { "rocm-smi --showrasinfo" } else { "nvidia-smi -q -d ECC,ROW_REMAPPER" };
    if !broken.is_empty() {
        let remedy = format!("Take the node out of service and reset or replace the GPU: `{counts}`");
        report.fail("ECC", format!("memory errors: {}", listed(&broken)), Some(Code::GpuError), remedy);
    } else if !pending.is_empty() {
        let remedy = format!(
            "Faulty memory is replaced when the GPU is next reset: stop its programs, reset it or reboot, and look again: `{counts}`"
        );
        report.warn("ECC", format!("memory waits to be replaced: {}", listed(&pending)), Some(Code::GpuError), remedy);
    } else if !off.is_empty() {
        let remedy = "Without ECC, a flipped bit gets into every rank's sum unnoticed; turn it on, then reboot: `sudo nvidia-smi -e 1`";
        report.warn("ECC", format!("off: {}", listed(&off)), Some(Code::DataCorruption), remedy);
    } else if devices.iter().any(|gpu| gpu.ecc.is_some()) {
        report.ok("ECC", "on, no uncorrected error since the driver was loaded");
    }
}

/// What the driver asks for after a fault (`nvmlDeviceGetGpuRecoveryAction`…, NVML 570): without it, the GPU or what it does with others fails.
fn recovery(devices: &[GpuDevice], report: &mut AreaReport) {
    const REMEDY: &str = "Drain the node and do what the driver asks for: Reset, `sudo nvidia-smi --gpu-reset -i N`; Reboot, the host; Drain P2P, end what uses it with other GPUs; see why: `sudo dmesg | grep Xid; nvidia-smi -q | grep -A 1 -i recovery`";
    let asked = |gpu: &&GpuDevice| gpu.recovery.as_deref().is_some_and(|action| action != "None");
    for gpu in devices.iter().filter(asked) {
        let action = gpu.recovery.as_deref().unwrap_or_default();
        let report = report.about(format!("GPU {}", gpu.index));
        report.fail("recovery", format!("the driver asks for: {action}"), Some(Code::GpuError), REMEDY);
    }
    if devices.iter().any(|gpu| gpu.recovery.is_some()) && !devices.iter().any(|gpu| asked(&gpu)) {
        report.ok("recovery", "the driver asks for none");
    }
}

/// Errors that a link did not mend by sending again.
fn link_errors(devices: &[GpuDevice], report: &mut AreaReport) {
    let (item, remedy) = match is_amd(devices) {
        true => (
            "XGMI errors",
            "Look again under load, and at the driver's log: `rocm-smi --showxgmierr; sudo dmesg | grep -i xgmi`; have the board checked where they come back",
        ),
        false => (
            "NVLink errors",
            "See the links and their errors: `nvidia-smi nvlink -e; sudo dmesg | grep Xid`; reset the GPUs, then have the board checked",
        ),
    };
    let with = named(devices, |gpu| gpu.link_errors.is_some_and(|errors| errors > 0));
    if !with.is_empty() {
        report.warn(item, listed(&with), Some(Code::NvlinkFabric), remedy);
    } else if devices.iter().any(|gpu| gpu.link_errors.is_some()) {
        report.ok(item, "none");
    }
}

fn nvlink(node: &NodeFacts, report: &mut AreaReport) {
    let devices = &node.gpu.devices;
    let (item, remedy) = match is_amd(devices) {
        true => (
            "XGMI",
            "See the links, their errors, and the driver's log: `rocm-smi --showtopo; rocm-smi --showxgmierr; sudo dmesg | grep -i xgmi`; reset the GPUs, then have the board checked",
        ),
        false => (
            "NVLink",
            "See the links and their errors: `nvidia-smi nvlink -s; nvidia-smi nvlink -e`; restart the fabric manager, reset the GPUs, then have the board checked",
        ),
    };
    let up = |gpu: &GpuDevice| gpu.nvlinks.iter().filter(|link| link.active).count();
    let Some(most) = devices.iter().map(up).max().filter(|_| devices.iter().any(|gpu| !gpu.nvlinks.is_empty())) else {
        return;
    };
    // A GPU without any link up does not tell how many it has.
    let of = |gpu: &GpuDevice| if up(gpu) == 0 { most.max(gpu.nvlinks.len()) } else { gpu.nvlinks.len() };
    // A card on PCIe joins others by a bridge: beside a pair with one, it may have none.
    let may_be_without =
        |gpu: &GpuDevice| most > 0 && up(gpu) == 0 && !gpu.name.is_empty() && !joined_by_nvlink(&gpu.name);
    let short: Vec<String> = devices
        .iter()
        .filter(|gpu| up(gpu) < gpu.nvlinks.len() && !may_be_without(gpu))
        .map(|gpu| format!("GPU {}: {} of {}", gpu.index, up(gpu), of(gpu)))
        .collect();
    let on_board = || devices.len() > 1 && devices.iter().all(|gpu| joined_by_nvlink(&gpu.name));
    if short.is_empty() {
        let rate = devices.iter().flat_map(|gpu| &gpu.nvlinks).find_map(|link| link.rate_gbs);
        let rate = rate.map_or(String::new(), |rate| format!(" of {rate} GB/s"));
        report.ok(item, format!("{most} links{rate} up per GPU"));
    } else if devices.len() == 1 && most == 0 {
        report.skip(item, format!("{most} links up, and no other GPU to join"));
    } else if !node.is_joined_by_nvlink() && !on_board() {
        report.skip(item, "no link is up on any GPU, which is right where no bridge joins them");
    } else {
        report.fail(item, format!("links up: {}", listed(&short)), Some(Code::NvlinkFabric), remedy);
    }
}

fn fabric(node: &NodeFacts, report: &mut AreaReport) {
    const REMEDY: &str = "Start it, in the driver's own version: `sudo systemctl enable --now nvidia-fabricmanager`; its log: `journalctl -u nvidia-fabricmanager`";
    match node.fabric_manager.as_deref() {
        Some("running") => report.ok("fabric manager", "running"),
        Some("not running") => report.fail("fabric manager", "not running", Some(Code::NvlinkFabric), REMEDY),
        Some(_) => report.skip(
            "fabric manager",
            "the host's processes are not seen from here: look there, `systemctl status nvidia-fabricmanager`",
        ),
        None => {}
    }
    let is_joined =
        |gpu: &GpuDevice| gpu.fabric.as_ref().is_none_or(|fabric| fabric.state == "completed" && fabric.succeeded);
    let is_unsound = |gpu: &GpuDevice| gpu.fabric.as_ref().is_some_and(|fabric| fabric.state == FabricState::UNHEALTHY);
    let unsound = named(&node.gpu.devices, is_unsound);
    let apart = named(&node.gpu.devices, |gpu| !is_joined(gpu) && !is_unsound(gpu));
    if !unsound.is_empty() {
        let remedy = "See its links and their errors: `nvidia-smi nvlink -s; nvidia-smi nvlink -e`, and `journalctl -u nvidia-fabricmanager`; reset the GPUs, then have the board checked";
        report.fail("NVLink fabric", format!("not sound: {}", listed(&unsound)), Some(Code::NvlinkFabric), remedy);
    } else if !apart.is_empty() {
        report.fail("NVLink fabric", format!("not joined: {}", listed(&apart)), Some(Code::NvlinkFabric), REMEDY);
    } else if node.gpu.devices.iter().any(|gpu| gpu.fabric.is_some()) {
        report.ok("NVLink fabric", "joined by all GPUs");
    }
}

fn mig(devices: &[GpuDevice], report: &mut AreaReport) {
    let cut = named(devices, |gpu| gpu.mig == Some(true));
    if !cut.is_empty() {
        let remedy =
            "GPUs that are cut into instances cannot use NVLink or each other's memory: `sudo nvidia-smi -mig 0`";
        report.warn("MIG", format!("on: {}", listed(&cut)), Some(Code::P2pDisabled), remedy);
    }
}

fn xids(node: &NodeFacts, report: &mut AreaReport) {
    let xids = match &node.xids {
        Known::Unknown(why) => return report.skip("Xid", why),
        Known::Known(xids) if xids.is_empty() => return report.ok("Xid", "none in the kernel's log"),
        Known::Known(xids) => xids,
    };
    // What a program leaves that somebody ends; behind another error of its GPU, it belongs to that.
    let is_clean_up =
        |xid: &XidLine| xid.code == CLEAN_UP && xids.iter().all(|one| one.pci != xid.pci || one.code == CLEAN_UP);
    if xids.iter().all(is_clean_up) {
        return report.ok("Xid", format!("none but {CLEAN_UP}, which a program leaves that was ended"));
    }
    let of = |wanted: fn(&XidLine) -> bool| -> Vec<String> {
        let mut told: Vec<String> =
            xids.iter().filter(|xid| wanted(xid)).map(|xid| format!("{} at {}", xid.code, xid.pci)).collect();
        told.dedup();
        told
    };
    let hardware = of(|xid| !matches!(fault(xid.code), Fault::Program | Fault::Noted));
    if hardware.is_empty() {
        let remedy = match xids.iter().any(|xid| fault(xid.code) == Fault::Noted) {
            true => {
                "Memory that was replaced counts after a reset of the GPU: `nvidia-smi -q -d ECC,ROW_REMAPPER; sudo nvidia-smi --gpu-reset`"
            }
            false => {
                "A program on the GPU faulted; see which, and run it under compute-sanitizer: `sudo dmesg | grep Xid`"
            }
        };
        return report.warn("Xid", listed(&of(|_| true)), Some(Code::GpuError), remedy);
    }
    let nvlink = xids.iter().any(|xid| fault(xid.code) == Fault::NvLink);
    let code = if nvlink { Code::NvlinkFabric } else { Code::GpuError };
    let mut advice: BTreeSet<&str> = xids.iter().filter_map(|xid| meaning(xid.code)).collect();
    if advice.is_empty() {
        advice.insert(
            "Look the number up in NVIDIA's list of Xid errors, then reset the GPU or take the node out of service",
        );
    }
    let advice = advice.into_iter().collect::<Vec<_>>().join(". ");
    let remedy = format!("{advice}. See all: `sudo dmesg | grep Xid; nvidia-smi -q -d ECC,ROW_REMAPPER`");
    report.fail("Xid", listed(&hardware), Some(code), remedy);
}

fn peers(node: &NodeFacts, report: &mut AreaReport) {
    let peers = &node.gpu.peers;
    let refused: Vec<String> = peers
        .iter()
        .filter(|peer| peer.status != "OK")
        .map(|peer| format!("{}→{} {}", peer.from, peer.to, peer.status))
        .collect();
    if !refused.is_empty() {
        let remedy = "Data between these GPUs goes through host memory. CNS: the chipset or a virtual machine forbids it, see ACS and IOMMU below; GNS: these GPUs cannot: `nvidia-smi topo -p2p r`";
        report.warn("P2P", listed(&refused), Some(Code::P2pDisabled), remedy);
    } else if !peers.is_empty() {
        report.ok("P2P", "every GPU may read every other's memory");
    }
}
