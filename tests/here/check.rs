//! `busbw check` of this machine, and under its launchers.

use crate::check::check;
use crate::support::command::BUSBW;
use crate::support::lab::mpirun_openmpi;
use crate::support::process::{LIMIT, Running, run, signal};
use crate::support::script::executable;
use crate::support::skip::{needed, programs};
use std::process::Command;

/// Whatever this machine has or lacks: a table with every area, and no word of trouble.
#[test]
fn this_machine_is_checked() {
    let ended = check(&[]);
    assert!(matches!(ended.status.code(), Some(0 | 1)) && ended.stderr.is_empty(), "{ended:?}");
    for area in ["GPU", "CUDA and NCCL", "RDMA", "PCIe", "Network interfaces", "Limits", "MPI and ssh", "Environment"] {
        assert!(ended.stdout.lines().any(|line| line == area), "{area}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\u{1b}'));
}

/// A launcher with a process group of its own does not hear a Ctrl-C, and ends with busbw all the same.
#[test]
fn an_interrupted_check_leaves_no_launcher_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, begun) = (folder.path().join("mpirun"), folder.path().join("begun"));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'mpirun (Open MPI) 5.0.3'\ntouch {}\nexec sleep 1000\n",
        begun.display()
    );
    executable(&program, &script);
    let mut command = Command::new(BUSBW);
    command.args(["check", "--hosts", "localhost"]).env_remove("SLURM_JOB_ID");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    let mut running = Running::start(command);
    running.retry(LIMIT, "launcher", || begun.exists().then_some(()));
    signal(running.id(), "INT");
    running.ended(LIMIT);
    running.gone("sleep", LIMIT);
}

/// Several ranks of a host are one witness.
#[test]
fn a_host_is_told_once() {
    let ended = run(needed!(mpirun_openmpi(3)).args([BUSBW, "check", "--json"]), LIMIT);
    let answer = ended.json();
    assert_eq!(answer["hosts"].as_array().map(Vec::len), Some(1), "{ended:?}");
    assert_eq!(answer["differences"].as_array().map(Vec::len), Some(0), "{ended:?}");
}

/// Nothing is started for it, and ssh is not to blame.
#[test]
fn a_name_that_does_not_resolve_is_told_as_such() {
    needed!(programs(&["mpirun"]));
    let ended = check(&["nowhere.invalid", "--json"]);
    let answer = ended.json();
    let hello = &answer["items"][0];
    assert_eq!(hello["detail"], "the name does not resolve here", "{answer:#}");
    assert!(hello["remedy"].as_str().is_some_and(|remedy| remedy.starts_with("Correct the name")), "{hello}");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}
