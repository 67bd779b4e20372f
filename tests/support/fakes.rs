//! Fakes of NCCL, the CUDA driver and NVRTC, or of RCCL and HIP, built from tests/fakes by the C compiler that is there.

use super::shared::Shared;
use super::skip::{Skip, c_compiler, root_folder};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// The version that has all of it.
pub const NEWEST: &str = "23007";

/// A folder with the libraries, for the library path.
pub struct Fakes {
    folder: TempDir,
}

impl Fakes {
    /// Builds the libraries; NCCL's is of `version` (`22707`), with further definitions.
    pub fn build(version: &str, definitions: &[&str]) -> Result<Self, Skip> {
        let more: Vec<String> = definitions.iter().map(|definition| format!("-D{definition}")).collect();
        let fakes = Self::built("libcuda.so.1", "libnccl.so.2", version, &more)?;
        fakes.compile("libnvrtc.so.12", "fake_nvrtc.c", &[])?;
        Ok(fakes)
    }

    /// AMD's instead: HIP, and RCCL of ROCm 6.3.
    pub fn of_amd() -> Result<Self, Skip> {
        Self::built("libamdhip64.so.6", "librccl.so.1", "22105", &["-includehip_names.h".into()])
    }

    fn built(driver: &str, nccl: &str, version: &str, more: &[String]) -> Result<Self, Skip> {
        let fakes = Fakes { folder: tempfile::tempdir().expect("a folder for the libraries") };
        fakes.compile(driver, "fake_cuda.c", more)?;
        let linked = [format!("-DFAKE_VERSION={version}"), "-L.".into(), format!("-l:{driver}"), "-lm".into()];
        fakes.compile(nccl, "fake_nccl.c", &[&linked, more].concat())?;
        Ok(fakes)
    }

    fn compile(&self, library: &str, source: &str, more: &[String]) -> Result<(), Skip> {
        let fakes = root_folder().join("tests/fakes");
        let mut command = Command::new(c_compiler()?);
        command.current_dir(self.folder()).args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-w"]);
        command.args(["-DBLOCK=1024", "-DSTARTS=8192"]).arg("-I").arg(&fakes);
        command.arg("-I").arg(root_folder().join("crates/run/bench/src/backend/nccl"));
        command.args(["-x", "c"]).arg(fakes.join(source)).args(["-x", "none", "-o", library]);
        let output = command.arg(format!("-Wl,-soname,{library}")).args(more).output().expect("the compiler starts");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// The newest version, built once for the tests that run at the same time.
    pub fn newest() -> Result<Arc<Fakes>, Skip> {
        static NEWEST_FAKES: Shared<Fakes> = Shared::new();
        NEWEST_FAKES.get(|| Fakes::build(NEWEST, &[]))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A library of them.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Lets a command find them, and `gpus` GPUs.
    pub fn use_in(&self, command: &mut Command, gpus: usize) {
        command.env("LD_LIBRARY_PATH", self.folder()).env("TMPDIR", self.folder()).env("FAKE_GPUS", gpus.to_string());
        for library in ["NCCL_LIBRARY", "NVRTC_LIBRARY", "CUDA_DRIVER_LIBRARY", "HIP_LIBRARY"] {
            command.env_remove(library);
        }
        for variable in ["NCCL_HOSTID", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCM_PATH"] {
            command.env_remove(variable);
        }
    }
}
