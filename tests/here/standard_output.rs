//! A standard output that takes nothing is one line and status 2, whatever the command; a reader that has seen enough is
//! no error.

use crate::support::command::BUSBW;
use crate::support::process::{LIMIT, run};
use crate::support::skip::root_folder;
use std::io::Read as _;
use std::process::{Command, Output, Stdio};

/// Commands that print, and are soon done.
const COMMANDS: [&str; 18] = [
    "--help",
    "explain --help",
    "explain tests/data/runs/h20-2x8-tcp/run.log",
    "explain tests/data/runs/h20-2x8-tcp/run.log --json",
    "explain --code nic.rate",
    "compare tests/data/runs/h20-2x8-tcp/run.log tests/data/runs/h20-2x8-tcp/run.log",
    "predict tests/data/runs/h20-2x8-tcp/run.log",
    "simulate tests/data/runs/h20-2x8-tcp/run.log",
    "check",
    "bench all_reduce -b 8 -e 8 -n 1",
    "bench all_reduce --np 3 -b 8 -e 8 -n 1",
    "link --np 2 --tcp --seconds 0.05 --flows 1 --size 4K",
    "monitor --once -i 50ms",
    "monitor --list-alerts",
    "tune --dry-run --var NCCL_ALGO=Ring -- true",
    "rules list",
    "completions bash",
    "man",
];

/// A shell's command with its output where `redirection` says.
fn redirected(line: &str, redirection: &str) -> Command {
    let mut command = Command::new("sh");
    command.current_dir(root_folder()).args(["-c", &format!("exec \"$0\" {line} {redirection}"), BUSBW]);
    command
}

#[test]
fn a_closed_or_full_standard_output_is_one_line_and_status_2() {
    for line in COMMANDS {
        for (redirection, says) in [(">&-", "standard output is closed"), (">/dev/full", "No space left on device")] {
            let ended = run(redirected(line, redirection), LIMIT);
            assert_eq!(ended.status.code(), Some(2), "{line} {redirection}: {ended:?}");
            let told: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("busbw: ")).collect();
            assert!(told.len() == 1 && told[0].contains(says), "{line} {redirection}: {ended:?}");
        }
    }
}

/// With the answer in a file, nobody misses it.
#[test]
fn a_closed_standard_output_does_not_matter_where_nothing_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("explain tests/data/runs/h20-2x8-tcp/run.log -o {}", folder.path().join("answer").display());
    assert_eq!(run(redirected(&line, ">&-"), LIMIT).status.code(), Some(1));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for line in COMMANDS {
        let mut command = redirected(line, "");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell starts");
        // As `head -c 1` does.
        let mut byte = [0; 1];
        child.stdout.take().expect("a pipe").read_exact(&mut byte).expect("something is printed");
        let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.code().is_some_and(|code| code < 2), "{line}: {status} {stderr}");
        assert!(!stderr.contains("Broken pipe") && !stderr.contains("panicked"), "{line}: {stderr}");
    }
}
