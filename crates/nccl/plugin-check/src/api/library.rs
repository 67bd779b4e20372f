//! Opening a plugin: which versions of the interface a file exports, and the table of one.

use super::calls::Calls;
use busbw_model::NO_LIBRARIES;
use busbw_nccl_abi::net::*;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char};
use std::path::Path;

/// The versions that are known here, the newest first, as NCCL looks for them.
const VERSIONS: [u8; 7] = [12, 11, 10, 9, 8, 7, 6];

/// What was found in a file.
pub(super) struct Found {
    pub calls: Calls,
    pub network: String,
    pub version: u8,
    pub versions: Vec<u8>,
}

/// Opens a file and finds `version` in it, or else the newest. The library stays loaded until the process ends: its threads
/// may outlive any handle.
pub(super) fn open(path: &Path, version: Option<u8>) -> Result<Found, String> {
    if let Some(reason) = NO_LIBRARIES {
        return Err(format!("cannot be loaded: {reason}"));
    }
    // SAFETY: loading runs the library's initialisers. That is what is to be tried, in a process made for it.
    let library = unsafe { Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let library = library.map_err(|error| format!("cannot be loaded: {}", loader_says(&error)))?;
    let library: &'static Library = Box::leak(Box::new(library));
    let versions: Vec<u8> =
        VERSIONS.into_iter().filter(|version| exported::<u8>(library, *version).is_some()).collect();
    let chosen = match version {
        Some(version) if versions.contains(&version) => version,
        Some(version) => return Err(format!("does not export ncclNetPlugin_v{version}{}", instead(&versions))),
        None => *versions.first().ok_or(
            "is no net plugin: it exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12 (NCCL 2.13 and later load these)",
        )?,
    };
    let missing = || format!("does not export ncclNetPlugin_v{chosen}");
    let (calls, name) = table(library, chosen).ok_or_else(missing)?;
    if name.is_null() {
        return Err(format!("has no name in ncclNetPlugin_v{chosen}"));
    }
    // SAFETY: NCCL asks for a text that ends in a zero and lives as long as the library.
    let network = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    Ok(Found { calls, network, version: chosen, versions })
}

/// What dlerror told, which names the file and the reason; libloading's own words name neither.
fn loader_says(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn instead(versions: &[u8]) -> String {
    match versions {
        [] => "; it is no net plugin".into(),
        versions => {
            let names: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
            format!("; it exports {}", names.join(", "))
        }
    }
}

fn table(library: &'static Library, version: u8) -> Option<(Calls, *const c_char)> {
    macro_rules! of {
        ($table:ty) => {
            exported::<$table>(library, version).map(|table| (Calls::from(table), table.name))
        };
    }
    match version {
        6 => of!(NetV6),
        7 => of!(NetV7),
        8 => of!(NetV8),
        9 => of!(NetV9),
        10 => of!(NetV10),
        11 => of!(NetV11),
        12 => of!(NetV12),
        _ => None,
    }
}

fn exported<T>(library: &'static Library, version: u8) -> Option<&'static T> {
    // SAFETY: NCCL's rule for plugins is that this symbol is the table of this version; a table is never changed.
    let symbol = unsafe { library.get::<*const T>(format!("ncclNetPlugin_v{version}\0").as_bytes()) }.ok()?;
    // SAFETY: as above; the library stays loaded.
    unsafe { symbol.into_raw().cast::<T>().as_ref() }
}
