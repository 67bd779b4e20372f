//! CUDA and NCCL: which versions there are, and whether they fit.

use super::area_report::{AreaReport, listed};
use crate::known_faults::{advise, situation::Situation};
use busbw_model::node::Library;
use busbw_model::{Code, Exposure, KnownFault, NodeFacts};

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    let driver = node.gpu.cuda_driver.as_deref();
    if let Some(version) = driver {
        report.ok("CUDA driver", format!("runs programs of CUDA {version} and older"));
    }
    toolkits(node, report);
    nccl(node, report);
    known_faults(node, report);
    for library in &node.nccl {
        fits(library, driver, report);
    }
}

fn toolkits(node: &NodeFacts, report: &mut AreaReport) {
    for toolkit in &node.cuda {
        let Some(version) = &toolkit.version else { continue };
        let detail = format!("{version} in {}", toolkit.path);
        if node.gpu.cuda_driver.as_deref().is_some_and(|driver| major(version) > major(driver)) {
            let remedy = "Programs built with it do not run on this driver: install a newer driver, or build with an older toolkit";
            report.warn("CUDA toolkit", detail, Some(Code::VersionMismatch), remedy);
        } else {
            report.ok("CUDA toolkit", detail);
        }
    }
}

fn nccl(node: &NodeFacts, report: &mut AreaReport) {
    let shown =
        |library: &Library| format!("{} ({})", library.version.as_deref().unwrap_or("version unknown"), library.path);
    let mut versions: Vec<_> = node.nccl.iter().filter_map(|library| library.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    let all: Vec<String> = node.nccl.iter().map(shown).collect();
    match versions.len() {
        _ if all.is_empty() => {
            report.skip("NCCL", "no libnccl.so.2 where the loader and Python look; frameworks may carry their own")
        }
        0 | 1 => report.ok("NCCL", listed(&all)),
        _ => {
            let remedy = "Ranks that load different versions cannot connect; see which version a program loads, and remove the others: `ldd $(command -v all_reduce_perf) | grep nccl; echo $LD_LIBRARY_PATH`";
            report.warn("NCCL", listed(&all), Some(Code::VersionMismatch), remedy);
        }
    }
}

/// The item that names known faults.
pub(crate) const KNOWN_FAULTS: &str = "known faults";

/// Hangs and wrong results that the versions here are known for, on such a machine. Faults that every machine would have, or of which
/// nobody knows since when there are some, are left to `busbw advise`.
fn known_faults(node: &NodeFacts, report: &mut AreaReport) {
    let faults = report.known_faults();
    let advised = advise(&Situation::of_machine(node), faults);
    let of_this_machine = |fault: &&KnownFault| {
        faults.iter().any(|known| known.id == fault.id && known.first.is_some() && !known.when.words().is_empty())
    };
    let grave = advised.of(Exposure::CanHitYou).filter(|fault| fault.consequence.is_grave()).filter(of_this_machine);
    for fault in grave {
        let releases: Vec<String> = fault.fixed.iter().map(ToString::to_string).collect();
        let cure = match releases.as_slice() {
            [] => fault.workaround.clone().unwrap_or_default(),
            releases => format!("Install {} {}", fault.component.title(), releases.join(" or ")),
        };
        let detail = format!("{} {}: {}", fault.component.title(), fault.version, fault.title);
        report.warn(KNOWN_FAULTS, detail, Some(Code::VersionMismatch), format!("{cure}; see `busbw advise`"));
    }
}

/// Within a major version a driver runs what newer toolkits of it built (CUDA's minor version compatibility).
fn fits(library: &Library, driver: Option<&str>, report: &mut AreaReport) {
    let (Some(built), Some(driver)) = (library.cuda.as_deref(), driver) else { return };
    let detail = format!("built for CUDA {built}, the driver runs {driver} ({})", library.path);
    if major(built) > major(driver) {
        let remedy = "Take the build of NCCL for the driver's CUDA, or update the driver";
        report.fail("NCCL and driver", detail, Some(Code::VersionMismatch), remedy);
    } else {
        report.ok("NCCL and driver", detail);
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}
