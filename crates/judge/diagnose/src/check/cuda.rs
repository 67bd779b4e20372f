//! CUDA and NCCL: which versions there are, and whether they fit.

use super::sheet::{Sheet, listed};
use busbw_model::node::Library;
use busbw_model::{Code, NodeFacts};

pub(super) fn check(node: &NodeFacts, sheet: &mut Sheet) {
    let driver = node.gpu.cuda_driver.as_deref();
    if let Some(version) = driver {
        sheet.ok("CUDA driver", format!("runs programs of CUDA {version} and older"));
    }
    toolkits(node, sheet);
    nccl(node, sheet);
    for library in &node.nccl {
        fits(library, driver, sheet);
    }
}

fn toolkits(node: &NodeFacts, sheet: &mut Sheet) {
    for toolkit in &node.cuda {
        let Some(version) = &toolkit.version else { continue };
        let detail = format!("{version} in {}", toolkit.path);
        if node.gpu.cuda_driver.as_deref().is_some_and(|driver| major(version) > major(driver)) {
            let remedy = "Programs built with it do not run on this driver: install a newer driver, or build with an older toolkit";
            sheet.warn("CUDA toolkit", detail, Some(Code::VersionMismatch), remedy);
        } else {
            sheet.ok("CUDA toolkit", detail);
        }
    }
}

fn nccl(node: &NodeFacts, sheet: &mut Sheet) {
    let shown =
        |library: &Library| format!("{} ({})", library.version.as_deref().unwrap_or("version unknown"), library.path);
    let mut versions: Vec<_> = node.nccl.iter().filter_map(|library| library.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    let all: Vec<String> = node.nccl.iter().map(shown).collect();
    match versions.len() {
        _ if all.is_empty() => {
            sheet.skip("NCCL", "no libnccl.so.2 where the loader and Python look; frameworks may carry their own")
        }
        0 | 1 => sheet.ok("NCCL", listed(&all)),
        _ => {
            let remedy = "Ranks that load different versions cannot connect; see which version a program loads, and remove the others: `ldd $(command -v all_reduce_perf) | grep nccl; echo $LD_LIBRARY_PATH`";
            sheet.warn("NCCL", listed(&all), Some(Code::VersionMismatch), remedy);
        }
    }
}

/// Within a major version a driver runs what newer toolkits of it built (CUDA's minor version compatibility).
fn fits(library: &Library, driver: Option<&str>, sheet: &mut Sheet) {
    let (Some(built), Some(driver)) = (library.cuda.as_deref(), driver) else { return };
    let detail = format!("built for CUDA {built}, the driver runs {driver} ({})", library.path);
    if major(built) > major(driver) {
        let remedy = "Take the build of NCCL for the driver's CUDA, or update the driver";
        sheet.fail("NCCL and driver", detail, Some(Code::VersionMismatch), remedy);
    } else {
        sheet.ok("NCCL and driver", detail);
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}
