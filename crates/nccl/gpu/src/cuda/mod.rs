//! The CUDA driver: devices, and on them contexts, memory, streams, kernels and graphs, each given back when dropped.

mod api;
mod device;
mod memory;
mod module;
mod stream;

pub use device::{Context, Device};
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::{Function, Module};
pub use stream::{Event, Graph, Stream};

use crate::find::{Lookup, Opened, Wanted};
use crate::{Error, Result};
use api::{Api, Code, NO_DEVICE};
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

const WANTED: Wanted = Wanted {
    names: &["libcuda.so.1", "libcuda.so"],
    variable: "CUDA_DRIVER_LIBRARY",
    homes: &[],
    folders: &["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/local/cuda*/compat", "/run/opengl-driver/lib"],
    packages: &[],
    remedy: "it comes with NVIDIA's driver: run this on a machine with a GPU where nvidia-smi works (in a container: \
             --gpus all), or without --backend nccl, on cores",
};

/// The driver, ready for use.
pub struct Cuda {
    api: Api,
    library: Opened,
    version: i32,
}

impl Cuda {
    /// Opens the driver and starts it.
    ///
    /// # Errors
    /// There is no driver, or no GPU that it can use.
    pub fn open(variable: Lookup<'_>) -> Result<Arc<Self>> {
        let library = WANTED.open(None, variable)?;
        let cuda = Cuda { api: Api::of(&library)?, library, version: 0 };
        // SAFETY: plain calls; the pointer is to a value that lives through the call.
        let (started, version) = unsafe {
            let mut version = 0;
            (
                cuda.checked("cuInit", (cuda.api.init)(0)),
                cuda.checked("cuDriverGetVersion", (cuda.api.driver_version)(&mut version)).map(|()| version),
            )
        };
        started.map_err(|error| cuda.no_gpu(error))?;
        Ok(Arc::new(Cuda { version: version?, ..cuda }))
    }

    fn no_gpu(&self, error: Error) -> Error {
        match error {
            Error::Cuda { code: NO_DEVICE, .. } => Error::NoGpu(
                "the CUDA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES (in a container: --gpus all), or \
                 leave out --backend nccl to measure on cores"
                    .into(),
            ),
            Error::Cuda { name, .. } => Error::Driver(format!(
                "the CUDA driver {} does not start ({name}): check nvidia-smi, or leave out --backend nccl to measure on cores",
                self.library.path().display()
            )),
            other => other,
        }
    }

    /// The driver's version of CUDA: 12.8 as (12, 8).
    pub fn version(&self) -> (i32, i32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Every GPU that this process may use (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    /// The driver's.
    pub fn devices(self: &Arc<Self>) -> Result<Vec<Device>> {
        let mut count = 0;
        // SAFETY: the pointer is to a value that lives through the call.
        self.checked("cuDeviceGetCount", unsafe { (self.api.device_count)(&mut count) })?;
        (0..count).map(|index| Device::new(Arc::clone(self), index)).collect()
    }

    fn checked(&self, call: &'static str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let told = |function: unsafe extern "C" fn(Code, *mut *const std::ffi::c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the driver's texts are constants of its own.
            unsafe {
                let known = function(code, &mut text) == 0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        let name = told(self.api.error_name).unwrap_or_else(|| format!("CUDA error {code}"));
        let description = told(self.api.error_string).map_or(String::new(), |text| format!(": {text}"));
        Err(Error::Cuda { call, name, description, code })
    }
}
