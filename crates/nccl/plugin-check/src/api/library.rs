//! Opening a plugin's file: which versions of an interface it exports, and the table of one.

use super::calls::Calls;
use busbw_model::NO_LIBRARIES;
use busbw_nccl_abi::net::*;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char};
use std::path::Path;

/// A table that NCCL looks for in a plugin: the start of its name, and the versions that are known here, the newest first, as NCCL looks
/// for them.
pub(super) struct Table {
    pub symbol: &'static str,
    pub versions: &'static [u8],
}

pub(super) const NETWORK: Table = Table { symbol: "ncclNetPlugin_v", versions: &[12, 11, 10, 9, 8, 7, 6] };
pub(super) const TUNER: Table = Table { symbol: "ncclTunerPlugin_v", versions: &[6, 5, 4, 3, 2] };
pub(super) const PROFILER: Table = Table { symbol: "ncclProfiler_v", versions: &[6, 5, 4, 3, 2, 1] };

/// A network that was found in a file.
pub(super) struct Network {
    pub calls: Calls,
    pub name: String,
    pub version: u8,
    pub versions: Vec<u8>,
}

/// Loads a file. It stays loaded until the process ends: its threads may outlive any handle.
pub(super) fn load(path: &Path) -> Result<&'static Library, String> {
    if let Some(reason) = NO_LIBRARIES {
        return Err(format!("cannot be loaded: {reason}"));
    }
    // SAFETY: loading runs the library's initialisers. That is what is to be tried, in a process made for it.
    let library = unsafe { Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let library = library.map_err(|error| format!("cannot be loaded: {}", loader_says(&error)))?;
    Ok(Box::leak(Box::new(library)))
}

/// Closes a file, as NCCL does after a process's last communicator (`ncclClosePluginLib`). Nothing of it may be used after that.
pub(super) fn close(library: &'static Library) {
    // SAFETY: `load` made it and leaked it, and who calls this drops what came of it.
    let library = unsafe { std::ptr::read(library) };
    // What cannot be closed stays, as in NCCL.
    let _ = library.close();
}

/// What dlerror told, which names the file and the reason; libloading's own words name neither.
fn loader_says(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Table {
    /// The version that is asked for, or the newest that the file exports.
    pub fn chosen(&self, library: &'static Library, version: Option<u8>) -> Result<u8, String> {
        let found = version.or_else(|| self.versions_of(library).first().copied());
        found.ok_or_else(|| format!("exports no {}", self.symbol))
    }

    /// The versions that a file exports, the newest first.
    pub fn versions_of(&self, library: &'static Library) -> Vec<u8> {
        let exports = |version: &u8| self.exported::<u8>(library, *version).is_some();
        self.versions.iter().copied().filter(exports).collect()
    }

    /// The table of a version. `T` is what it looks like from its first byte on.
    pub fn exported<T>(&self, library: &'static Library, version: u8) -> Option<&'static T> {
        // SAFETY: NCCL's rule for plugins is that this symbol is the table of this version; a table is never changed.
        let symbol = unsafe { library.get::<*const T>(format!("{}{version}\0", self.symbol).as_bytes()) }.ok()?;
        // SAFETY: as above; the library stays loaded.
        unsafe { symbol.into_raw().cast::<T>().as_ref() }
    }

    /// The plugin's name in a version's table, which every table begins with.
    pub fn name(&self, library: &'static Library, version: u8) -> Option<String> {
        text(*self.exported::<*const c_char>(library, version)?)
    }
}

/// A text of the plugin's.
pub(super) fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: NCCL asks plugins for texts that end in a zero and live as long as the library.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The network of a file by `version`, or else the newest.
pub(super) fn network(library: &'static Library, version: Option<u8>) -> Result<Network, String> {
    let versions = NETWORK.versions_of(library);
    let chosen = match version {
        Some(version) if versions.contains(&version) => version,
        Some(version) => return Err(format!("does not export ncclNetPlugin_v{version}{}", instead(&versions))),
        None => *versions.first().ok_or("exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12")?,
    };
    let calls = calls(library, chosen).ok_or_else(|| format!("does not export ncclNetPlugin_v{chosen}"))?;
    let name = NETWORK.name(library, chosen).ok_or_else(|| format!("has no name in ncclNetPlugin_v{chosen}"))?;
    Ok(Network { calls, name, version: chosen, versions })
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

fn calls(library: &'static Library, version: u8) -> Option<Calls> {
    macro_rules! of {
        ($table:ty) => {
            NETWORK.exported::<$table>(library, version).map(Calls::from)
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
