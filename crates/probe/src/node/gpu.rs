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

/// Whether NVIDIA's fabric manager runs, where there are NVSwitches for it.
pub(super) fn fabric_manager(root: &Root) -> Option<String> {
    if functions(root, &["0x0680"]).is_empty() {
        return None;
    }
    // The kernel keeps 15 letters of a process's name.
    let runs = root.list("/proc").iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())).any(|process| {
        root.value(&format!("/proc/{process}/comm")).is_some_and(|name| name.starts_with("nv-fabricmanag"))
    });
    Some(if runs { "running" } else { "not running" }.to_owned())
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
}
