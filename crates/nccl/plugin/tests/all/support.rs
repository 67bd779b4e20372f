//! What the tests share: an environment without settings, and a C compiler.

use crate::skip::{Skip, c_compiler};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Without the settings of whoever runs the tests.
pub fn clean(command: &mut Command) {
    for name in [
        "NCCL_SOCKET_FAMILY",
        "NCCL_SOCKET_NTHREADS",
        "NCCL_NSOCKS_PERTHREAD",
        "BUSBW_NET_CHECKSUM",
        "BUSBW_NET_TIMEOUT",
    ] {
        command.env_remove(name);
    }
}

/// A C compiler, and where it puts programs.
pub struct C {
    compiler: PathBuf,
    folder: TempDir,
}

impl C {
    pub fn compiler() -> Result<Self, Skip> {
        Ok(C { compiler: c_compiler()?, folder: tempfile::tempdir().expect("a folder for programs") })
    }

    /// A program from files of `tests/c`.
    pub fn compile(&self, name: &str, files: &[&str]) -> PathBuf {
        let program = self.folder.path().join(name);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let output = Command::new(&self.compiler)
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .args(files.iter().map(|file| sources.join(file)))
            .arg("-ldl")
            .output()
            .expect("the compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }
}
