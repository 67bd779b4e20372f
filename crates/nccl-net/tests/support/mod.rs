//! What the tests share: the plugin as NCCL finds it, and a C compiler.

#![allow(dead_code, reason = "no test needs all of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Why a test cannot run here.
pub struct Skip(String);

impl Skip {
    /// Says so on standard error, past the capture of test output, because a skipped test passes.
    pub fn say(self) {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        // A lost message is no reason to fail.
        let _ = writeln!(std::io::stderr(), "skipped {test}: {}", self.0);
    }
}

/// The library of this build. Cargo puts what a test depends on beside the test.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().expect("the test knows its file");
    let library = own.with_file_name("libnccl_net_busbw.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

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
    folder: TempDir,
}

impl C {
    pub fn compiler() -> Result<Self, Skip> {
        let found = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
        if found {
            Ok(C { folder: tempfile::tempdir().expect("a folder for programs") })
        } else {
            Err(Skip("there is no C compiler (cc)".into()))
        }
    }

    /// A program from files of `tests/c`.
    pub fn compile(&self, name: &str, files: &[&str]) -> PathBuf {
        let program = self.folder.path().join(name);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let output = Command::new("cc")
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
