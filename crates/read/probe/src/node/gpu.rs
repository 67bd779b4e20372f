//! GPUs: from NVIDIA's management library, from AMD's program, or from the kernel.

use super::{nvml, pci};
use crate::{Program, Root};
use busbw_model::node::{GpuDevice, GpuFacts, Known};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// AMD's programs and what to ask them. `--showxgmierr` is left out: it counts errors since it was read last. rocm-smi says nothing of
/// a GPU's place in the table that it prints without flags, and prints no table with any.
const OF_AMD: [(&str, &[&[&str]]); 2] = [
    (
        "rocm-smi",
        &[&[], &["--showproductname", "--showbus", "--showrasinfo", "all", "--showtopotype", "--showtopoaccess"]],
    ),
    ("amd-smi", &[&[]]),
];
/// A program for GPUs that hang may hang, too.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn collect(root: &Root) -> GpuFacts {
    let on_the_bus = functions(root, &["0x0300", "0x0302"]);
    let asked = match root.is_live() {
        true => nvml::ask(),
        false => Err("a captured tree has no libraries to ask".to_owned()),
    };
    let mut facts = asked.unwrap_or_else(|why| GpuFacts { nvml: Known::Unknown(why), ..without_nvml(root) });
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

fn without_nvml(root: &Root) -> GpuFacts {
    let of_nvidia = by_kernel(root);
    if of_nvidia.devices.is_empty() && root.is_live() { of_amd(find) } else { of_nvidia }
}

/// Where a program is: by the PATH, or where ROCm puts it.
fn find(name: &str) -> Option<PathBuf> {
    let of_rocm = Path::new("/opt/rocm/bin").join(name);
    Program::find(name).or_else(|| of_rocm.is_file().then_some(of_rocm))
}

/// AMD's GPUs, as the first program says that is there and knows one.
fn of_amd(find: impl Fn(&str) -> Option<PathBuf>) -> GpuFacts {
    let asked = OF_AMD.iter().filter_map(|(name, calls)| Some((find(name)?, calls)));
    let mut told = asked.map(|(program, calls)| {
        let ended = calls.iter().filter_map(|flags| Program::new(&program, *flags, PATIENCE).run().ok());
        let text = ended.flat_map(|ended| ended.output).collect();
        let read = busbw_ingest::read(
            &[busbw_ingest::Source::Bytes(program.display().to_string(), text)],
            &Default::default(),
        );
        read.ok().and_then(|run| Some(run.machines.into_iter().next()?.gpu)).unwrap_or_default()
    });
    told.find(|facts| !facts.devices.is_empty()).unwrap_or_default()
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

    /// Programs that print what the real ones did, in the tests of `ingest`.
    #[test]
    fn gpus_of_amd_are_asked_by_the_program_that_knows_them() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, script: &str| {
            let path = folder.path().join(name);
            crate::script::executable(&path, &format!("#!/bin/sh\n{script}\n"));
        };
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ingest/tests/data/host");
        let find = |name: &str| Some(folder.path().join(name)).filter(|path| path.exists());
        let names = || -> Vec<(String, String)> {
            of_amd(find).devices.into_iter().map(|gpu| (gpu.name, gpu.pci.address)).collect()
        };
        assert_eq!(names(), []);
        write("rocm-smi", "echo 'ERROR: no driver' >&2; exit 2");
        assert_eq!(names(), []);
        write("amd-smi", &format!("cat {}", data.join("amd-smi.txt").display()));
        assert_eq!(names(), [("AMD Instinct MI300X VF".to_owned(), "0000:83:00.0".to_owned())]);
        let table = format!("cat {}", data.join("amd.txt").display());
        let more = "printf 'GPU[%s]\\t\\t: PCI Bus: 0000:%s:00.0\\n' 0 2A 1 5D";
        write("rocm-smi", &format!("if [ $# = 0 ]; then {table}; else {more}; fi"));
        let [first, second] = ["0000:2a:00.0", "0000:5d:00.0"].map(str::to_owned);
        assert_eq!(names(), [("AMD Instinct MI300X".to_owned(), first), ("AMD".to_owned(), second)]);
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
