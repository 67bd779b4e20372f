//! `busbw tune` on several hosts and on a real Slurm.

use crate::here::tune::{Stage, best, json, launched, rank, seen, tune_a};
use crate::support::lab::{NetLab, SlurmLab};
use crate::support::process::{LIMIT, Running, run, signal};
use crate::support::skip::{needed, programs};
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn open_mpi_hands_settings_on_to_the_ranks_of_every_host() {
    needed!(programs(&["mpirun.openmpi"]));
    let hosts = needed!(NetLab::up(2, &[]));
    let stage = Stage::new();
    let rank = rank(&stage, "$(uname -n)", "$OMPI_COMM_WORLD_RANK");
    let answer = json(launched(tune_a(&stage), &hosts.mpirun(1), &rank));
    assert_eq!(answer["best"]["settings"], serde_json::json!({"A": "1"}), "{answer}");
    for host in ["h1", "h2"] {
        assert_eq!(seen(&stage, host), ["1", "2", "3", "default"]);
    }
    let lines = fs::read_to_string(stage.path("store/commands.txt")).unwrap();
    assert!(lines.contains("netlab exec 1 mpirun.openmpi -x 'A=1' --host "), "{lines}");
}

/// `salloc … busbw tune … -- srun …`: every trial is a step on both nodes of the one allocation.
#[test]
fn srun_runs_trials_inside_an_allocation() {
    let lab = needed!(SlurmLab::up(2));
    let stage = Stage::new();
    let rank = rank(&stage, "$SLURMD_NODENAME-of-$SLURM_JOB_ID", "$SLURM_PROCID");
    let tune = launched(tune_a(&stage), &lab.srun(&["--ntasks-per-node=1"]), &rank);
    let mut salloc = lab.with(Command::new("salloc"));
    salloc.envs(tune.get_envs().filter_map(|(name, value)| Some((name, value?))));
    salloc
        .current_dir(stage.folder.path())
        .args(["--quiet", "--nodes=2"])
        .arg(tune.get_program())
        .args(tune.get_args());
    let answer = json(salloc);
    assert_eq!(answer["best"]["settings"], serde_json::json!({"A": "1"}), "{answer}");
    let files = fs::read_dir(stage.folder.path().join("counts")).unwrap().flatten();
    let mut places: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    places.sort();
    let [first, second] = places.as_slice() else { panic!("two nodes of one job: {places:?}") };
    assert_eq!(first.replace("node1", "node2"), *second);
    for place in &places {
        assert_eq!(seen(&stage, place), ["1", "2", "3", "default"]);
    }
}

/// The report's sweep as Slurm jobs on two nodes, four at a time. busbw is killed while jobs are in the queue, and a node's daemon
/// with it; both come back, and the same command finishes without a job too many.
#[test]
fn slurm_jobs_survive_the_death_of_busbw_and_of_a_nodes_daemon() {
    let lab = needed!(SlurmLab::up(2));
    let stage = Stage::new();
    let template = stage.path("job.sh");
    fs::write(&template, "#!/bin/bash\n#SBATCH --ntasks-per-node=1\nexport PREPARED=yes\n{run}").unwrap();
    let flags =
        ["--json", "report.toml", "--slurm", "--partition", "gpu", "--nodes", "1", "--time", "5", "--jobs", "4"];
    let command = || lab.with(stage.tune(&[&flags[..], &["--template", &template, "--no-default"]].concat()));
    let mut running = Running::start(command());
    running.retry(LIMIT, "some trials", || (stage.runs() >= 3).then_some(()));
    signal(running.id(), "KILL");
    lab.kill_daemon("node2");
    running.ended(LIMIT);
    lab.start_daemon("node2");
    let answer = json(command());
    assert_eq!(best(&answer), ("8", "2"), "{answer}");
    let settings = answer["settings"].as_array().unwrap();
    assert_eq!((settings.len(), settings.iter().filter(|setting| setting["mean"].is_number()).count()), (11, 11));
    assert_eq!(
        settings[10]["settings"],
        serde_json::json!({"NCCL_SOCKET_NTHREADS": "1", "NCCL_NSOCKS_PERTHREAD": "1"})
    );
    assert!(answer["trials"]["ran"].as_u64().unwrap() < 33, "{answer}");
    let script = fs::read_to_string(stage.folder.path().join("store/round-1-setting-1/job.sh")).unwrap();
    assert!(script.contains("PREPARED=yes") && script.contains("export NCCL_SOCKET_NTHREADS="), "{script}");
}

/// What a cancelled job leaves says nothing of its setting, though the job is in the queue for as long as it takes to end.
#[test]
fn a_sweep_of_slurm_jobs_that_was_interrupted_counts_no_failure() {
    let lab = needed!(SlurmLab::up(1));
    let stage = Stage::new();
    let gate = stage.path("gate");
    let script = format!("trap '' TERM; echo run >> \"$COUNTS/all\"; [ -e {gate} ] || sleep 600");
    let command = || {
        let flags = ["--json", "--var", "A=1,2", "--no-default", "--rounds", "2", "--slurm", "--partition", "gpu"];
        let mut command = stage.busbw(&[&flags[..], &["--nodes", "1", "--time", "5", "--jobs", "1"]].concat());
        command.args(["--", "bash", "-c", &script]);
        lab.with(command)
    };
    let mut running = Running::start(command());
    running.retry(LIMIT, "the first trial", || (stage.runs() == 1).then_some(()));
    signal(running.id(), "INT");
    running.ended(LIMIT);
    fs::write(&gate, "").unwrap();
    let ended = run(command(), LIMIT);
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(answer["trials"]["failed"], 0, "{answer}\n{}", ended.stderr);
}

/// A queue is told with its reason, and a queue that is not there at once.
#[test]
fn a_sweep_that_waits_for_slurm_says_what_for() {
    let lab = needed!(SlurmLab::up(1));
    let stage = Stage::new();
    let command = || {
        let mut command = stage.busbw(&["--var", "A=1,2", "--slurm", "--nodes", "9"]);
        command.args(["--", "true"]);
        command
    };
    let mut running = Running::start(lab.with(command()));
    running.until_said(LIMIT, "the reason", |said| said.find("job 1: PENDING (Partition"));
    signal(running.id(), "INT");
    running.ended(LIMIT);
    drop(lab);
    let conf = stage.path("slurm.conf");
    fs::write(&conf, "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nAuthType=auth/none\n")
        .unwrap();
    let ended = run(command().env("SLURM_CONF", &conf), LIMIT);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("busbw: no Slurm controller answers ("), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}
