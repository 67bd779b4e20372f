//! GPUs: what NVIDIA's management library tells, else what the kernel does.

use super::{nvml, pci};
use crate::Root;
use busbw_model::node::{GpuDevice, GpuFacts, Known};

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";

pub(super) fn collect(root: &Root) -> GpuFacts {
    let on_the_bus = functions(root, &["0x0300", "0x0302"]);
    let asked = match root.is_live() {
        true => nvml::ask(),
        false => Err("a captured tree has no libraries to ask".to_owned()),
    };
    let mut facts = asked.unwrap_or_else(|why| GpuFacts { nvml: Known::Unknown(why), ..by_kernel(root) });
    for device in &mut facts.devices {
        if let Some(function) = pci::function(root, &format!("{DEVICES}/{}", device.pci.address)) {
            device.pci = function;
        }
    }
    facts.on_the_bus = (!on_the_bus.is_empty() || root.exists(DEVICES)).then_some(on_the_bus.len() as u32);
    let version = root.value("/proc/driver/nvidia/version");
    facts.open_module = version.as_ref().map(|text| text.contains("Open Kernel Module"));
    facts.driver = facts.driver.or_else(|| driver_version(version.as_deref()?));
    facts
}

/// Addresses of NVIDIA's PCI functions of these classes.
fn functions(root: &Root, classes: &[&str]) -> Vec<String> {
    let is = |address: &String| {
        let class = root.value(&format!("{DEVICES}/{address}/class")).unwrap_or_default();
        root.value(&format!("{DEVICES}/{address}/vendor")).as_deref() == Some(NVIDIA)
            && classes.iter().any(|wanted| class.starts_with(wanted))
    };
    root.list(DEVICES).into_iter().filter(is).collect()
}

/// `/proc/driver/nvidia/gpus/0000:17:00.0/information` has the model and the number.
fn by_kernel(root: &Root) -> GpuFacts {
    const GPUS: &str = "/proc/driver/nvidia/gpus";
    let mut devices: Vec<GpuDevice> = Vec::new();
    for address in root.list(GPUS) {
        let Some(text) = root.value(&format!("{GPUS}/{address}/information")) else { continue };
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        devices.push(GpuDevice {
            index: devices.len() as u32,
            name: field("Model").unwrap_or_default(),
            pci: busbw_model::node::PciFunction { address, ..Default::default() },
            ..GpuDevice::default()
        });
    }
    GpuFacts { devices, ..GpuFacts::default() }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 …`.
fn driver_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.split('.').count() >= 2
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Whether NVIDIA's fabric manager runs, where there are NVSwitches for it; `hidden` where not all processes of the host are
/// seen: in a container, with `hidepid`, in a captured tree without them.
pub(super) fn fabric_manager(root: &Root) -> Option<String> {
    if functions(root, &["0x0680"]).is_empty() {
        return None;
    }
    let mut processes = root.list("/proc");
    processes.retain(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let name = |process: &String| root.value(&format!("/proc/{process}/comm"));
    // The kernel keeps 15 letters of a process's name.
    let runs = processes.iter().filter_map(name).any(|name| name.starts_with("nv-fabricmanag"));
    let sees_all = if root.is_live() { sees_the_host(root) } else { !processes.is_empty() };
    let state = match runs {
        true => "running",
        false if sees_all => "not running",
        false => "hidden",
    };
    Some(state.to_owned())
}

/// Whether all processes of this machine are seen, its first one among them.
fn sees_the_host(root: &Root) -> bool {
    /// The first namespace of processes (`PROC_PID_INIT_INO` in the kernel's include/linux/proc_ns.h).
    const HOSTS: &str = "pid:[4026531836]";
    root.link_name("/proc/self/ns/pid").as_deref() == Some(HOSTS) && root.exists("/proc/1/comm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_says_its_version() {
        for (text, version) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", "550.54.15"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build", "570.86.10"),
        ] {
            assert_eq!(driver_version(text).as_deref(), Some(version));
        }
    }

    #[test]
    fn a_fabric_manager_is_missed_only_where_it_would_be_seen() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::captured(folder.path()).unwrap();
        assert_eq!(fabric_manager(&root), None);
        write("sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de\n");
        write("sys/bus/pci/devices/0000:05:00.0/class", "0x068000\n");
        assert_eq!(fabric_manager(&root).as_deref(), Some("hidden"));
        write("proc/1/comm", "systemd\n");
        assert_eq!(fabric_manager(&root).as_deref(), Some("not running"));
        write("proc/4711/comm", "nv-fabricmanage\n");
        assert_eq!(fabric_manager(&root).as_deref(), Some("running"));
    }
}
