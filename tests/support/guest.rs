//! The RDMA lab for tests: a small emulated machine with real RDMA devices (tests/lab/rdma-guest), or the reason why not.

use super::lab::{script, take_turn};
use super::skip::{Skip, programs, root_folder};
use std::path::Path;
use std::process::{Command, Stdio};

/// How long the guest may run, in seconds. Everything in it is emulated, and other tests want the cores as well.
const LIMIT_S: &str = "540";
/// What stands between a line's output and its exit status.
const END: &str = "==end-of-line==";
const PROGRAMS: [&str; 9] =
    ["qemu-system-x86_64", "busybox", "dash", "cpio", "modprobe", "setpriv", "tc", "ibv_devinfo", "ib_write_bw"];

/// A machine with `rxe0` on 10.1.1.1 and, behind a cable, `rxe1` on 10.1.1.2. The head of tests/lab/rdma-guest says what
/// else it has.
pub struct Guest;

/// What one command did in the guest.
#[derive(Debug)]
pub struct Step {
    /// Its exit status.
    pub status: i32,
    /// What it printed.
    pub stdout: String,
    /// What it said on standard error.
    pub stderr: String,
}

impl Guest {
    /// Boots the guest and runs these lines for `sh` one after the other, each in a shell of its own: booting takes as long
    /// as most tests. `files` are carried along, programs with the libraries that they link, to the paths they have here.
    /// One guest at a time runs on the machine. It is gone afterwards, and when the test is killed.
    pub fn run<const N: usize>(files: &[&Path], lines: [&str; N]) -> Result<[Step; N], Skip> {
        let steps = Self::run_all(files, &lines)?;
        Ok(steps.try_into().expect("every line was run"))
    }

    /// [`Guest::run`] for lines that are counted when it runs.
    pub fn run_all(files: &[&Path], lines: &[&str]) -> Result<Vec<Step>, Skip> {
        programs(&PROGRAMS)?;
        kernel()?;
        let _turn = take_turn("guest");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(script("rdma-guest")).args(["--timeout", LIMIT_S]);
        for file in files {
            command.arg("--file").arg(file);
        }
        let output = command.arg("--").arg(marked(lines)).stdin(Stdio::null()).output().expect("the lab's script runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the guest ended with {}\n{stdout}\n{stderr}", output.status);
        let both = steps(&stdout).into_iter().zip(steps(&stderr));
        let steps = both.map(|((stdout, status), (stderr, _))| Step { status, stdout, stderr }).collect::<Vec<_>>();
        assert_eq!(steps.len(), lines.len(), "every line was run");
        Ok(steps)
    }
}

/// The lines as one script, which says where each ends, and how.
fn marked(lines: &[&str]) -> String {
    let marked = |line: &&str| format!("(\n{line}\n)\nended=\"{END}$?\"\necho \"$ended\"\necho \"$ended\" >&2\n");
    lines.iter().map(marked).collect()
}

/// What the lines printed, each with its exit status.
fn steps(output: &str) -> Vec<(String, i32)> {
    let mut parts = output.split(END);
    let mut text = parts.next().unwrap_or_default();
    let mut steps = Vec::new();
    for part in parts {
        let (status, next) = part.split_once('\n').unwrap_or((part, ""));
        steps.push((text.to_string(), status.trim().parse().expect("an exit status")));
        text = next;
    }
    steps
}

fn kernel() -> Result<(), Skip> {
    let has_kernel = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz-"))
    };
    let folders = [root_folder().join("target/guest/boot"), "/boot".into()];
    let found = folders.iter().any(|folder| has_kernel(folder));
    if found { Ok(()) } else { Err(Skip("no kernel to boot in a guest; make setup unpacks one".into())) }
}
