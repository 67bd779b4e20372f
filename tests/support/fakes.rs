//! Fakes of NCCL, the CUDA driver and NVRTC, built from tests/fakes by the C compiler that is there.

use super::shared::Shared;
use super::skip::{Skip, c_compiler, root_folder};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// The version that has all of it.
pub const NEWEST: &str = "23007";

/// A folder with the three libraries, for the library path.
pub struct Fakes {
    folder: TempDir,
}

impl Fakes {
    /// Builds the libraries; NCCL's is of `version` (`22707`), with further definitions.
    ///
    /// # Panics
    /// The compiler does not take them.
    pub fn build(version: &str, definitions: &[&str]) -> Result<Self, Skip> {
        let compiler = c_compiler()?;
        let folder = tempfile::tempdir().expect("a folder for the libraries");
        let build = |library: &str, source: &str, more: &[String]| {
            let fakes = root_folder().join("tests/fakes");
            let mut command = Command::new(&compiler);
            command.current_dir(folder.path()).args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-w"]);
            command.args(["-DBLOCK=1024", "-DSTARTS=8192"]).arg("-I").arg(&fakes);
            command.arg("-I").arg(root_folder().join("crates/run/bench/src/backend/nccl"));
            command.args(["-x", "c"]).arg(fakes.join(source)).args(["-x", "none", "-o", library]);
            let output =
                command.arg(format!("-Wl,-soname,{library}")).args(more).output().expect("the compiler starts");
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        build("libcuda.so.1", "fake_cuda.c", &[]);
        build("libnvrtc.so.12", "fake_nvrtc.c", &[]);
        let mut more = vec![format!("-DFAKE_VERSION={version}"), "-L.".into(), "-l:libcuda.so.1".into(), "-lm".into()];
        more.extend(definitions.iter().map(|definition| format!("-D{definition}")));
        build("libnccl.so.2", "fake_nccl.c", &more);
        Ok(Fakes { folder })
    }

    /// The newest version, built once for the tests that run at the same time.
    pub fn newest() -> Result<Arc<Fakes>, Skip> {
        static NEWEST_FAKES: Shared<Fakes> = Shared::new();
        NEWEST_FAKES.get(|| Fakes::build(NEWEST, &[]))
    }

    /// Where they are.
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
        for variable in ["NCCL_LIBRARY", "NVRTC_LIBRARY", "CUDA_DRIVER_LIBRARY", "NCCL_HOSTID", "CUDA_VISIBLE_DEVICES"]
        {
            command.env_remove(variable);
        }
    }
}
