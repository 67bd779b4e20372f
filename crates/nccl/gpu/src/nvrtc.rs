//! NVRTC: compiles kernels for the GPU that is there.

use crate::find::{LibraryNames, Lookup, Opened};
use crate::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

const WANTED: LibraryNames = LibraryNames {
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"],
    variable: "NVRTC_LIBRARY",
    homes: &["CUDA_HOME", "CUDA_PATH"],
    folders: &["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/opt/nvidia/hpc_sdk/Linux_*/*/cuda/lib64"],
    packages: &["nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib", "nvidia/cu12/lib", "torch/lib"],
    remedy: "install the CUDA toolkit or PyTorch (pip install nvidia-cuda-nvrtc-cu12), or name it with NVRTC_LIBRARY",
};

type Code = c_int;
type Program = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        struct Api {
            $($field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Api {
            fn of(library: &Opened) -> Result<Self> {
                // SAFETY: the types are those of nvrtc.h.
                unsafe { Ok(Api { $($field: library.required($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    version = "nvrtcVersion": fn(*mut c_int, *mut c_int);
    architecture_count = "nvrtcGetNumSupportedArchs": fn(*mut c_int);
    architectures = "nvrtcGetSupportedArchs": fn(*mut c_int);
    create = "nvrtcCreateProgram": fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char,
        *const *const c_char);
    destroy = "nvrtcDestroyProgram": fn(*mut Program);
    compile = "nvrtcCompileProgram": fn(Program, c_int, *const *const c_char);
    log_size = "nvrtcGetProgramLogSize": fn(Program, *mut usize);
    log = "nvrtcGetProgramLog": fn(Program, *mut c_char);
    ptx_size = "nvrtcGetPTXSize": fn(Program, *mut usize);
    ptx = "nvrtcGetPTX": fn(Program, *mut c_char);
    cubin_size = "nvrtcGetCUBINSize": fn(Program, *mut usize);
    cubin = "nvrtcGetCUBIN": fn(Program, *mut c_char);
}

/// The compiler.
pub struct Nvrtc {
    api: Api,
    library: Opened,
    version: (i32, i32),
    /// Architectures that it knows, ascending: 90 for compute capability 9.0.
    architectures: Vec<i32>,
}

/// What code is compiled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code of exactly this architecture, which every driver of the same CUDA generation runs.
    Cubin(i32),
    /// PTX of this architecture, which the driver compiles on: for GPUs that are newer than the compiler.
    Ptx(i32),
}

impl Nvrtc {
    /// Opens the compiler.
    pub fn open(variable: Lookup<'_>) -> Result<Self> {
        let library = WANTED.open(None, variable)?;
        let api = Api::of(&library)?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the pointers are to values that live through the calls; the list has as many places as it is asked for.
        let architectures = unsafe {
            checked((api.version)(&mut major, &mut minor), "nvrtcVersion")?;
            checked((api.architecture_count)(&mut count), "nvrtcGetNumSupportedArchs")?;
            let mut architectures = vec![0; count.max(0) as usize];
            checked((api.architectures)(architectures.as_mut_ptr()), "nvrtcGetSupportedArchs")?;
            architectures
        };
        Ok(Nvrtc { api, library, version: (major, minor), architectures })
    }

    /// Its version: (12, 9).
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// The architectures that it knows, ascending: 90 for compute capability 9.0.
    pub fn architectures(&self) -> &[i32] {
        &self.architectures
    }

    /// What to compile to for a GPU of this compute capability; `None` when it is too old for this compiler.
    pub fn target(&self, capability: (i32, i32)) -> Option<Target> {
        let own = capability.0 * 10 + capability.1;
        if self.architectures.contains(&own) {
            return Some(Target::Cubin(own));
        }
        self.architectures.iter().copied().filter(|known| *known < own).max().map(Target::Ptx)
    }

    /// Compiles `source`, with names defined as numbers.
    pub fn compile(&self, source: &CStr, target: Target, defined: &[(&str, u64)]) -> Result<Vec<u8>> {
        let mut options = vec![match target {
            Target::Cubin(architecture) => format!("--gpu-architecture=sm_{architecture}"),
            Target::Ptx(architecture) => format!("--gpu-architecture=compute_{architecture}"),
        }];
        options.extend(defined.iter().map(|(name, value)| format!("-D{name}={value}")));
        let options: Vec<CString> = options.into_iter().filter_map(|option| CString::new(option).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Source { api: &self.api, raw: std::ptr::null_mut() };
        // SAFETY: texts end with 0 and live through the calls; there are no headers.
        unsafe {
            let (name, none) = (c"busbw.cu".as_ptr(), std::ptr::null());
            let code = (self.api.create)(&mut program.raw, source.as_ptr(), name, 0, none, none);
            checked(code, "nvrtcCreateProgram")?;
            if (self.api.compile)(program.raw, pointers.len() as c_int, pointers.as_ptr()) != 0 {
                return Err(Error::Compile(program.log()));
            }
            match target {
                Target::Cubin(_) => program.output(self.api.cubin_size, self.api.cubin),
                Target::Ptx(_) => program.output(self.api.ptx_size, self.api.ptx),
            }
        }
    }
}

/// A program of NVRTC.
struct Source<'a> {
    api: &'a Api,
    raw: Program,
}

impl Source<'_> {
    /// # Safety
    /// The functions are those of one output of a program.
    unsafe fn output(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Code,
        read: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: both functions take this program; the vector has as many bytes as the first one says.
        unsafe {
            checked(size(self.raw, &mut bytes), "the size of NVRTC's output")?;
            let mut output = vec![0u8; bytes];
            checked(read(self.raw, output.as_mut_ptr().cast()), "NVRTC's output")?;
            Ok(output)
        }
    }

    fn log(&self) -> String {
        // SAFETY: the functions are those of the log.
        let log = unsafe { self.output(self.api.log_size, self.api.log) }.unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        text.trim_end_matches('\0').split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Source<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; null where it was not created, which the call refuses.
        unsafe { (self.api.destroy)(&mut self.raw) };
    }
}

fn checked(code: Code, call: &str) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::Compile(format!("{call} fails with nvrtcResult {code}"))) }
}
