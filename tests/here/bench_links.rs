//! busbw under the names of nccl-tests' programs: what a script finds that calls `all_reduce_perf`.

use crate::here::bench_launchers::{SWEEP, assert_one_table, this_host};
use crate::support::command::BUSBW;
use crate::support::fakes::Fakes;
use crate::support::lab::mpirun_openmpi;
use crate::support::process::{Ended, LIMIT, run};
use crate::support::skip::{needed, programs};
use crate::support::table::ranks;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The programs of nccl-tests 2.19.6 (its `src/*.cu`).
const PROGRAMS: [&str; 11] = [
    "all_gather_perf",
    "all_reduce_perf",
    "alltoall_perf",
    "alltoallv_perf",
    "broadcast_perf",
    "gather_perf",
    "hypercube_perf",
    "reduce_perf",
    "reduce_scatter_perf",
    "scatter_perf",
    "sendrecv_perf",
];
const QUICK: [&str; 8] = ["-b", "64", "-e", "64", "-n", "1", "-w", "0"];
const CORES: &str = "# busbw: this measures CPU cores, not GPUs: ";

/// A folder for programs.
struct Bin(TempDir);

impl Bin {
    fn new() -> Self {
        Bin(tempfile::tempdir().expect("a new folder"))
    }

    fn link(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        symlink(BUSBW, &path).expect("a link");
        path
    }
}

/// A command that finds no GPU, whatever this machine has.
fn on_cores(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.env("CUDA_VISIBLE_DEVICES", "").env_remove("BUSBW_BACKEND");
    command
}

fn ended_well(command: Command) -> Ended {
    let ended = run(command, LIMIT);
    assert!(ended.status.success(), "{ended:?}");
    ended
}

fn lines_about_cores(ended: &Ended) -> usize {
    ended.stderr.lines().filter(|line| line.starts_with(CORES)).count()
}

#[test]
fn every_name_starts_its_ranks() {
    let bin = Bin::new();
    for name in PROGRAMS {
        let mut command = on_cores(bin.link(name));
        command.args(["--np", "2"]).args(QUICK);
        let ended = ended_well(command);
        assert!(ended.stdout.contains(&format!("# Collective test starting: {name}\n")), "{}", ended.stdout);
        assert!(ranks(&ended.stdout, 2).is_some(), "{}", ended.stdout);
    }
}

/// The file's own name is that of another program than the one that is called.
#[test]
fn a_copy_is_like_a_link() {
    let bin = Bin::new();
    let copy = bin.0.path().join("all_gather_perf");
    std::fs::copy(BUSBW, &copy).expect("a copy");
    symlink(&copy, bin.0.path().join("sendrecv_perf")).expect("a link");
    for name in ["all_gather_perf", "sendrecv_perf"] {
        let mut command = on_cores(bin.0.path().join(name));
        let file = bin.0.path().join(format!("{name}.json"));
        command.args(["--np", "2"]).args(QUICK).arg("-J").arg(&file);
        let ended = ended_well(command);
        assert!(ended.stdout.contains(&format!("# Collective test starting: {name}\n")), "{}", ended.stdout);
        let json: Value = serde_json::from_slice(&std::fs::read(&file).expect("the JSON")).expect("JSON");
        assert_eq!((&json["args"][0], &json["config"]["backend"]), (&name.into(), &"cpu".into()));
    }
}

#[test]
fn the_command_line_for_other_hosts_runs() {
    needed!(programs(&["mpirun.openmpi"]));
    let link = Bin::new();
    let mut command = on_cores(link.link("all_reduce_perf"));
    command.args(["--hosts", "localhost:2", "--dry-run"]).args(SWEEP);
    let printed = ended_well(command);
    assert_eq!(printed.stderr, "", "what is found here says nothing of other hosts");
    let mut shell = on_cores("sh".into());
    shell.args(["-c", printed.stdout.trim()]);
    let oversubscribe =
        [("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")];
    assert_one_table(
        &run(
            {
                shell.envs(oversubscribe);
                shell
            },
            LIMIT,
        ),
        &[this_host().as_str(); 2],
    );
    let mut command = on_cores(link.link("all_gather_perf"));
    command.args(["--hosts", "localhost:2"]).args(QUICK);
    let ended = ended_well(command);
    assert!(ended.stdout.contains("# Collective test starting: all_gather_perf\n"), "{}", ended.stdout);
    assert_eq!(lines_about_cores(&ended), 1, "{}", ended.stderr);
}

#[test]
fn cores_are_named_once_for_a_job_and_only_where_a_gpu_was_meant() {
    let link = Bin::new();
    let link = link.link("all_reduce_perf");
    for (np, variable, told) in [("1", None, 1), ("3", None, 1), ("2", Some("cpu"), 0)] {
        let mut command = on_cores(link.clone());
        command.args(["--np", np]).args(QUICK).envs(variable.map(|value| ("BUSBW_BACKEND", value)));
        let ended = ended_well(command);
        assert_eq!(lines_about_cores(&ended), told, "{np} {variable:?}: {}", ended.stderr);
    }
    let mut command = on_cores(BUSBW.into());
    command.args(["bench", "all_reduce"]).args(QUICK);
    assert_eq!(lines_about_cores(&ended_well(command)), 0);
    let mut command = needed!(mpirun_openmpi(3));
    command.env("CUDA_VISIBLE_DEVICES", "").arg(&link).args(QUICK);
    let ended = ended_well(command);
    assert_eq!(lines_about_cores(&ended), 1, "{}", ended.stderr);
}

#[test]
fn a_gpu_that_is_there_is_measured_or_the_run_fails() {
    let (fakes, link) = (needed!(Fakes::newest()), Bin::new());
    let link = link.link("all_reduce_perf");
    let on_gpus = |gpus, variables: &[(&str, &str)], words: &str| {
        let mut command = Command::new(&link);
        command.args(QUICK).args(words.split_whitespace()).env_remove("BUSBW_BACKEND");
        fakes.use_in(&mut command, gpus);
        run(
            {
                command.envs(variables.iter().copied());
                command
            },
            LIMIT,
        )
    };
    for words in ["-g 2", "--np 2", "-t 2 -R 1"] {
        let file = fakes.file(&format!("link{}.json", words.replace(' ', "")));
        let ended = on_gpus(2, &[], &format!("{words} -J {}", file.display()));
        assert!(ended.status.success() && ended.stderr.is_empty(), "{words}: {ended:?}");
        assert!(ended.stdout.contains("Fake GPU"), "{}", ended.stdout);
        let json: Value = serde_json::from_slice(&std::fs::read(&file).expect("the JSON")).expect("JSON");
        assert_eq!(json["config"]["backend"], "nccl", "{words}");
    }
    let none = on_gpus(0, &[], "");
    assert!(none.status.success() && none.stderr.contains("the CUDA driver finds no GPU"), "{none:?}");
    for (gpus, variables, words, status, says) in [
        (1, &[("FAKE_CUDA_INIT", "802")][..], "", 2, "does not start (CUDA_ERROR_FAKE)"),
        (1, &[("NCCL_LIBRARY", "/no/such/libnccl.so.2")], "", 2, "libnccl.so.2 cannot be opened"),
        (0, &[("BUSBW_BACKEND", "nccl")], "", 77, "the CUDA driver finds no GPU"),
        (0, &[], "-R 1", 2, "-R,--local_register 1: is for GPUs and needs --backend nccl"),
        (1, &[("BUSBW_BACKEND", "gpu")], "", 2, "BUSBW_BACKEND=gpu: choose auto, cpu or nccl"),
    ] {
        let ended = on_gpus(gpus, variables, words);
        assert_eq!(ended.status.code(), Some(status), "{variables:?} {words}: {ended:?}");
        assert!(ended.stderr.contains(says) && !ended.stdout.contains("time"), "{variables:?} {words}: {ended:?}");
    }
}

/// As in nccl-tests, `-T` limits a test that gets on as well as one that hangs.
#[test]
fn a_test_that_takes_too_long_ends_the_job() {
    let (fakes, link) = (needed!(Fakes::newest()), Bin::new());
    let link = link.link("all_reduce_perf");
    for (gpus, words) in [(0, "--np 2"), (0, "-t 2"), (2, "-g 2")] {
        let mut command = Command::new(&link);
        command.args("-b 256K -e 256K -n 100000000 -c 0 -T 1".split(' ')).args(words.split(' '));
        fakes.use_in(&mut command, gpus);
        let ended = run(command, LIMIT);
        assert_eq!(ended.status.code(), Some(1), "{words}: {ended:?}");
        let says = "iterations of 262144 bytes, out of place: not done after 1 s (-T)";
        assert!(ended.stderr.contains(says), "{words}: {}", ended.stderr);
    }
    let mut command = on_cores(link);
    command.args(["--np", "2", "-T", "100"]).args(QUICK);
    ended_well(command);
}

#[test]
fn what_is_done_otherwise_is_told_once() {
    let link = Bin::new();
    let mut command = on_cores(link.link("all_reduce_perf"));
    command.args(["--np", "2", "-e", "1K", "-n", "1", "-V", "200"]).env("BUSBW_BACKEND", "cpu");
    let ended = ended_well(command);
    assert!(ended.stdout.contains(" minBytes 1024 maxBytes 1024 "), "{}", ended.stdout);
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(
        told,
        [
            "# busbw: minBytes is 1024, as -e: it is below -b's default of 32M",
            "# busbw: device_cta_count (-V) is 16, its default: 200 is not between 1 and 128",
        ]
    );
}
