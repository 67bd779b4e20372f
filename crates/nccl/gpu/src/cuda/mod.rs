//! The CUDA driver, or AMD's with the same functions (HIP): devices, and on them contexts, memory, streams, kernels and graphs, each given back when dropped.

mod api;
mod device;
mod memory;
mod module;
mod stream;

pub use device::{Context, Device};
pub use memory::{DeviceMemory, PinnedMemory};
pub use module::{Function, Module};
pub use stream::{Event, Graph, Stream};

use crate::find::{LibraryNames, Lookup, Opened};
use crate::{Error, Result};
use api::{Api, Code, NO_DEVICE, hip_name};
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

/// Whose GPUs there are: which driver is opened, and which library of collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    /// What is NVIDIA's, or its counterpart of AMD's.
    pub fn either<T>(self, nvidia: T, amd: T) -> T {
        match self {
            Vendor::Nvidia => nvidia,
            Vendor::Amd => amd,
        }
    }
}

const CUDA: LibraryNames = LibraryNames {
    names: &["libcuda.so.1", "libcuda.so"],
    variable: "CUDA_DRIVER_LIBRARY",
    homes: &[],
    folders: &["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/local/cuda*/compat", "/run/opengl-driver/lib"],
    packages: &[],
    remedy: "it comes with NVIDIA's driver (AMD's is libamdhip64.so, of ROCm, which is not here either): run this on a machine \
             with a GPU where nvidia-smi or rocm-smi works (in a container: --gpus all), or without --backend nccl, on cores",
};

const HIP: LibraryNames = LibraryNames {
    names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
    variable: "HIP_LIBRARY",
    homes: &["ROCM_PATH"],
    folders: &["/opt/rocm/lib", "/opt/rocm*/lib"],
    packages: &["torch/lib"],
    remedy: "it comes with ROCm: run this on a machine with a GPU where rocm-smi works (in a container: --device /dev/kfd \
             --device /dev/dri), or without --backend nccl, on cores",
};

/// The driver, ready for use.
pub struct Cuda {
    api: Api,
    vendor: Vendor,
    library: Opened,
    version: i32,
}

impl Cuda {
    /// Opens the driver and starts it: NVIDIA's, or AMD's where that is missing or finds no GPU.
    pub fn open(variable: Lookup<'_>) -> Result<Arc<Self>> {
        match Cuda::of(Vendor::Nvidia, variable) {
            Err(nvidia) if nvidia.is_missing() => match Cuda::of(Vendor::Amd, variable) {
                Err(Error::Missing { .. } | Error::Static { .. }) => Err(nvidia),
                amd => amd,
            },
            nvidia => nvidia,
        }
    }

    fn of(vendor: Vendor, variable: Lookup<'_>) -> Result<Arc<Self>> {
        let library = vendor.either(CUDA, HIP).open(None, variable)?;
        let cuda = Cuda { api: Api::of(&library, vendor)?, vendor, library, version: 0 };
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
        let driver = self.vendor.either("CUDA", "HIP");
        let tool = self.vendor.either("nvidia-smi", "rocm-smi");
        match error {
            Error::Cuda { code: NO_DEVICE, .. } => Error::NoGpu(format!(
                "the {driver} driver finds no GPU: check {tool} and {driver}_VISIBLE_DEVICES (in a container: {}), or leave out \
                 --backend nccl to measure on cores",
                self.vendor.either("--gpus all", "--device /dev/kfd --device /dev/dri")
            )),
            Error::Cuda { name, .. } => Error::Driver(format!(
                "the {driver} driver {} does not start ({name}): check {tool}, or leave out --backend nccl to measure on cores",
                self.library.path().display()
            )),
            other => other,
        }
    }

    pub fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// The driver's version of CUDA: 12.8 as (12, 8); AMD's of HIP. CUDA tells 12080, HIP 60342131 for 6.3 (`HIP_VERSION`).
    pub fn version(&self) -> (i32, i32) {
        match self.vendor {
            Vendor::Nvidia => (self.version / 1000, self.version % 1000 / 10),
            Vendor::Amd => (self.version / 10_000_000, self.version / 100_000 % 100),
        }
    }

    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Every GPU that this process may use (`CUDA_VISIBLE_DEVICES`).
    pub fn devices(self: &Arc<Self>) -> Result<Vec<Device>> {
        let mut count = 0;
        // SAFETY: the pointer is to a value that lives through the call.
        let counted = self.checked("cuDeviceGetCount", unsafe { (self.api.device_count)(&mut count) });
        counted.map_err(|error| self.no_gpu(error))?;
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
        let call = self.vendor.either(call, hip_name(call));
        let name = told(self.api.error_name).unwrap_or_else(|| format!("error {code}"));
        let description = told(self.api.error_string).map_or(String::new(), |text| format!(": {text}"));
        Err(Error::Cuda { call, name, description, code })
    }
}
