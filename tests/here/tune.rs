//! `busbw tune` from end to end, on stand-ins for workloads whose time is known: here and on a real Slurm.

use crate::support::command::BUSBW;
use crate::support::lab::mpirun_mpich;
use crate::support::process::{Ended, LIMIT, Running, run, signal};
use crate::support::skip::{needed, root_folder};
use serde_json::Value;
use std::borrow::BorrowMut;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Prints the mean of the third field report for the two variables, with noise that follows from a count of its own runs.
/// The default is as slow as 1 x 1.
const WORKLOAD: &str = r#"
t=${NCCL_SOCKET_NTHREADS:-1}; s=${NCCL_NSOCKS_PERTHREAD:-1}
mean=$(awk -F, -v t="$t" -v s="$s" '$1 == t && $2 == s {print $4}' "$SWEEP")
count="$COUNTS/$t-$s"
echo run >> "$count"
runs=$(wc -l < "$count")
echo "runtime $(awk -v m="$mean" -v r="$runs" 'BEGIN {print m + 0.6 * ((r % 3) - 1)}') s"
"#;

/// The four best settings of the report.
const SPACE: &str = r#"
constraints = ["NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD <= 64"]
[[variable]]
name = "NCCL_SOCKET_NTHREADS"
values = [8, 16]
[[variable]]
name = "NCCL_NSOCKS_PERTHREAD"
values = [2, 4]
"#;

/// The eleven settings of the report.
const REPORT: &str = r#"
constraints = ["""
    NCCL_SOCKET_NTHREADS == 8 || NCCL_SOCKET_NTHREADS == 16 && NCCL_NSOCKS_PERTHREAD < 8
    || NCCL_SOCKET_NTHREADS == 4 && NCCL_NSOCKS_PERTHREAD > 2 && NCCL_NSOCKS_PERTHREAD < 16
    || NCCL_SOCKET_NTHREADS == 2 && NCCL_NSOCKS_PERTHREAD != 4 || NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD == 1
    """,
    "NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD <= 64 && (NCCL_SOCKET_NTHREADS == 1 || NCCL_NSOCKS_PERTHREAD > 1)",
]
[[variable]]
name = "NCCL_SOCKET_NTHREADS"
values = [1, 2, 4, 8, 16]
[[variable]]
name = "NCCL_NSOCKS_PERTHREAD"
values = [1, 2, 4, 8, 16]
"#;

/// A folder with the workload, its data and a place for its store.
pub struct Stage {
    pub folder: tempfile::TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("counts")).expect("the stage is set");
        fs::write(folder.path().join("workload.sh"), WORKLOAD).expect("the stage is set");
        fs::write(folder.path().join("space.toml"), SPACE).expect("the stage is set");
        fs::write(folder.path().join("report.toml"), REPORT).expect("the stage is set");
        Stage { folder }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// `busbw tune` with flags before the workload.
    pub fn tune(&self, flags: &[&str]) -> Command {
        let mut command = self.busbw(flags);
        command.args(["--minimize", "runtime ([0-9.]+) s", "--", "bash", &self.path("workload.sh")]);
        command
    }

    pub fn busbw(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(BUSBW);
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tune/lanta-socket-sweep.csv");
        command.env("SWEEP", data.canonicalize().expect("the stage is set")).env("COUNTS", self.path("counts"));
        command.current_dir(self.folder.path()).arg("tune").args(flags).args(["--store", &self.path("store")]);
        command
    }

    /// Runs of the workload so far.
    pub fn runs(&self) -> usize {
        let files = fs::read_dir(self.folder.path().join("counts")).expect("the stage is set").flatten();
        files.map(|file| fs::read_to_string(file.path()).expect("the stage is set").lines().count()).sum()
    }
}

fn ended(command: impl BorrowMut<Command>) -> Ended {
    run(command, LIMIT)
}

pub fn json(command: impl BorrowMut<Command>) -> Value {
    let ended = ended(command);
    ended.printed();
    ended.json()
}

pub fn best(answer: &Value) -> (&str, &str) {
    let settings = &answer["best"]["settings"];
    (
        settings["NCCL_SOCKET_NTHREADS"].as_str().expect("a value"),
        settings["NCCL_NSOCKS_PERTHREAD"].as_str().expect("a value"),
    )
}

#[test]
fn the_sweep_of_the_third_field_report_has_its_winner() {
    let stage = Stage::new();
    let answer = json(stage.tune(&["--json", "space.toml"]));
    assert_eq!(best(&answer), ("8", "2"), "{answer}");
    let settings = answer["settings"].as_array().unwrap();
    // 8 x 2, 16 x 2, 8 x 4, 16 x 4 and the default, which comes last.
    assert_eq!(settings.len(), 5);
    assert_eq!(answer["default"]["rank"], 5);
    assert!(answer["default"]["behind"].as_f64().unwrap() > 0.15);
    assert!(answer["method"].as_str().unwrap().contains("t-test"));
    assert!(stage.runs() < 20, "{}", stage.runs());
    assert_eq!(answer["trials"]["ran"].as_u64().unwrap() as usize, stage.runs());
    for (file, says) in [("best.env", "export NCCL_SOCKET_NTHREADS=8"), ("nccl.conf", "NCCL_NSOCKS_PERTHREAD=2")] {
        let text = fs::read_to_string(stage.folder.path().join("store").join(file)).unwrap();
        assert!(text.contains(says), "{file}: {text}");
    }
    let mpirun = fs::read_to_string(stage.folder.path().join("store/commands.txt")).unwrap();
    assert!(mpirun.starts_with("mpirun -x NCCL_SOCKET_NTHREADS=8 -x NCCL_NSOCKS_PERTHREAD=2 bash "), "{mpirun}");
}

#[test]
fn what_ran_does_not_run_again_and_text_and_page_show_it() {
    let stage = Stage::new();
    let first = ended(stage.tune(&["--exhaustive", "space.toml"]));
    let runs = stage.runs();
    assert_eq!(runs, 20);
    let again = ended(stage.tune(&["--exhaustive", "space.toml"]));
    assert_eq!((stage.runs(), &again.stdout), (runs, &first.stdout));
    let text = first.stdout;
    for said in
        ["is best, 17.5% better than the default", "std dev", "95% interval", "  default   ", "The darker the better"]
    {
        assert!(text.contains(said), "nothing of {said} in\n{text}");
    }
    let page = ended(stage.tune(&["--exhaustive", "--format", "html", "space.toml"])).stdout;
    assert!(page.contains("class=\"heatmap\"") && !page.contains("<script"), "{page}");
}

#[test]
fn nothing_is_better_than_the_default_where_nothing_is() {
    let stage = Stage::new();
    let mut command = stage.busbw(&["--json", "--var", "A=1,2", "--minimize", "t ([0-9.]+)"]);
    command.args(["--", "sh", "-c", "test -z \"$A\" && echo t 5 || echo t 6"]);
    let answer = json(command);
    assert_eq!(answer["summary"], "no setting is significantly better than the default");
    assert!(fs::read_to_string(stage.folder.path().join("store/best.env")).unwrap().contains("nothing to set"));
}

/// The best mean among settings that the test does not tell from the default is luck: nobody should source it.
#[test]
fn nothing_is_set_where_the_best_is_tied_with_the_default() {
    let stage = Stage::new();
    let mut command = stage.busbw(&["--var", "A=1,2", "--minimize", "t ([0-9.]+)"]);
    // Every setting takes five more at every other run; A=1 is the best by less than that.
    let script = "echo run >> \"$COUNTS/x$A\"; n=$(wc -l < \"$COUNTS/x$A\"); case \"$A\" in 1) base=28;; 2) base=31;; *) base=30;; esac; \
                  echo t $((base + 5 * (n % 2)))";
    command.args(["--", "sh", "-c", script]);
    let Ended { stdout, stderr, .. } = ended(command);
    assert!(stdout.contains("no setting is significantly better than the default;"), "{stdout}");
    assert!(stderr.contains("no setting is significantly better than the default: the files in"), "{stderr}");
    for file in ["best.env", "nccl.conf"] {
        let text = fs::read_to_string(stage.folder.path().join("store").join(file)).unwrap();
        assert!(text.lines().all(|line| line.starts_with('#')), "{file}: {text}");
        assert!(text.contains("# nothing to set: no setting is significantly better than the default; A="), "{text}");
    }
    assert!(!fs::read_to_string(stage.folder.path().join("store/commands.txt")).unwrap().contains("A="));
}

#[test]
fn settings_that_tie_cost_no_more_trials_than_the_grid() {
    let stage = Stage::new();
    let ended = ended(stage.busbw(&["sockets", "--json"]).args(["--", "true"]));
    let answer = ended.json();
    let trials = &answer["trials"];
    assert!(trials["ran"].as_u64() <= trials["four_full_rounds"].as_u64(), "{trials}");
    let stderr = ended.stderr;
    assert!(stderr.contains("busbw: trial 1 of at most 80 (round 1, setting "), "{stderr}");
    assert!(stderr.contains("busbw: trial 2 of at most 80, ") && stderr.contains(" left at most (round 1"), "{stderr}");
}

#[test]
fn a_trial_without_a_value_ends_no_sweep_even_if_it_is_the_first() {
    let stage = Stage::new();
    let mut command = stage.busbw(&["--json", "--var", "A=1,2", "--minimize", "t ([0-9.]+)"]);
    let script = "n=$(ls \"$COUNTS\" | wc -l); touch \"$COUNTS/$n\"; test $n = 0 && echo warming up || echo t ${A:-9}";
    command.args(["--", "sh", "-c", script]);
    let answer = json(command);
    assert_eq!((&answer["best"]["settings"]["A"], &answer["trials"]["failed"]), (&"1".into(), &1.into()), "{answer}");
    let settings = answer["settings"].as_array().unwrap();
    let reasons: Vec<&str> = settings.iter().filter_map(|setting| setting["reason"].as_str()).collect();
    assert_eq!(reasons, ["nothing in the output matches 't ([0-9.]+)'"], "{answer}");
}

#[test]
fn a_sweep_of_somebody_else_is_read_off_its_table() {
    let stage = Stage::new();
    let import = |text: &str| {
        fs::write(stage.folder.path().join("sweep.csv"), text).unwrap();
        ended(Command::new(BUSBW).current_dir(stage.folder.path()).args([
            "tune",
            "--import",
            "sweep.csv",
            "--width",
            "80",
        ]))
    };
    let report = fs::read_to_string(root_folder().join("tests/data/tune/lanta-socket-sweep.csv")).unwrap();
    let read = import(&report);
    insta::assert_snapshot!("the_third_field_report_imported", read.printed());
    assert!(!stage.folder.path().join("busbw-tune").exists());
    let refused = import("A,value\n1,fast\n2,3\n3\n");
    refused.refused("sweep.csv: line 2: value 'fast' is not a number; write one");
    refused.refused("sweep.csv: line 4: 1 cells where the head has 2");
}

#[test]
fn failed_and_late_trials_are_kept_with_their_logs_and_are_never_best() {
    let stage = Stage::new();
    let ended =
        ended(stage.busbw(&["--json", "--var", "A=fails,hangs", "--timeout", "2", "--minimize", "t ([0-9.]+)"]).args(
            ["--", "sh", "-c", "echo t 1; case \"$A\" in fails) exit 3;; hangs) exec sleep 600;; esac; echo t 9"],
        ));
    assert!(ended.stderr.contains("what the trials that failed printed is in "), "{}", ended.stderr);
    let answer = ended.json();
    assert_eq!(answer["best"]["settings"], serde_json::json!({}));
    let settings = answer["settings"].as_array().unwrap();
    let failed: Vec<&Value> = settings.iter().filter(|setting| setting["standing"] == "failed").collect();
    assert_eq!(failed.len(), 2, "{answer}");
    assert!(failed.iter().all(|setting| setting["mean"].is_null() && setting["failures"] == 2));
    let log = fs::read_to_string(stage.folder.path().join("store/round-1-setting-1/output.log")).unwrap();
    assert_eq!(log, "t 1\n");
}

#[test]
fn a_killed_sweep_goes_on_and_leaves_nothing_running() {
    let stage = Stage::new();
    let gate = stage.path("gate");
    // The third run waits at the gate, with a process that it has started beside: busbw is killed there.
    let script = format!(
        "echo run >> {counts}; n=$(wc -l < {counts}); [ $n -ne 3 ] || sleep 600 & \
         while [ $n -eq 3 ] && [ ! -e {gate} ]; do sleep 0.05; done; echo t ${{A:-9}}",
        counts = stage.path("counts/all")
    );
    let command = || {
        let mut command =
            stage.busbw(&["--json", "--var", "A=1,2,3", "--exhaustive", "--rounds", "2", "--minimize", "t ([0-9.]+)"]);
        command.args(["--", "bash", "-c", &script]);
        command
    };
    let mut running = Running::start(command());
    running.retry(LIMIT, "the third run", || (stage.runs() == 3).then_some(()));
    signal(running.id(), "KILL");
    running.ended(LIMIT);
    running.gone("bash", LIMIT);
    running.gone("sleep", LIMIT);
    fs::write(&gate, "").unwrap();
    let answer = json(command());
    // Eight trials, and the one that was cut off once more.
    assert_eq!((stage.runs(), answer["trials"]["ran"].as_u64()), (9, Some(8)));
    assert_eq!(answer["best"]["settings"]["A"], "1");
}

/// A sweep that is interrupted while the trial of this number runs: what it printed.
fn interrupted(stage: &Stage, script: &str, runs: usize) -> Ended {
    let mut running =
        Running::start(stage.busbw(&["--var", "A=1,2", "--no-default"]).args(["--", "bash", "-c", script]));
    running.retry(LIMIT, "a trial", || (stage.runs() == runs).then_some(()));
    signal(running.id(), "INT");
    let ended = running.ended(LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    ended
}

#[test]
fn an_interrupt_ends_the_trial_and_keeps_the_others() {
    let ended = interrupted(&Stage::new(), "echo run >> \"$COUNTS/all\"; exec sleep 600", 1);
    assert!(ended.stdout.contains("no result yet (interrupted: the same command continues)"), "{}", ended.stdout);
}

#[test]
fn an_interrupted_race_leaves_no_files_with_a_best_setting() {
    let stage = Stage::new();
    let script = "echo run >> \"$COUNTS/all\"; [ $(wc -l < \"$COUNTS/all\") = 1 ] || exec sleep 600";
    let ended = interrupted(&stage, script, 2);
    assert!(ended.stdout.contains("interrupted: the same command continues"), "{}", ended.stdout);
    assert!(!stage.folder.path().join("store/best.env").exists(), "{}", ended.stderr);
}

#[test]
fn a_script_that_calls_mpirun_without_the_variables_is_told() {
    let stage = Stage::new();
    let script = stage.path("train.sh");
    fs::write(&script, "#!/bin/sh\nexit 0\nmpirun -x A -np 2 train\n").unwrap();
    let stderr =
        ended(stage.busbw(&["--var", "A=1", "--var", "B=1", "--max-trials", "1"]).args(["--", "sh", &script])).stderr;
    assert!(stderr.contains(&format!("{script}:3: calls mpirun by itself")), "{stderr}");
    assert!(stderr.contains("write `mpirun -x B …` there"), "{stderr}");
}

#[test]
fn bad_spaces_and_objectives_are_refused_before_anything_runs() {
    let stage = Stage::new();
    fs::write(stage.folder.path().join("empty.toml"), "").unwrap();
    fs::write(stage.folder.path().join("typo.toml"), "[[variables]]\nname = 'A'\n").unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["empty.toml"], "the space is empty"),
        (&["typo.toml"], "typo.toml: line 1"),
        (&["nothing"], "choose one of sockets, ib, algo, channels"),
        (&["--var", "A=1,2", "--where", "A > 2"], "contradictory"),
        (
            &["--var", "NCCL_SOCKET_NTHREAD=1"],
            "NCCL has no variable NCCL_SOCKET_NTHREAD. Did you mean NCCL_SOCKET_NTHREADS?",
        ),
        (&["--var", "NCCL_SOCKET_NTHREADS=32"], "numbers from 1 to 16"),
        (&["--var", "A=1", "--minimize", "a^b"], "never matches"),
        (&["--var", "A=1", "--maximize", "("], "not a regular expression"),
        (&["--var", "A=1", "--slurm", "--template", "/no/such.sh"], "/no/such.sh"),
        (&["--var", "A="], "has no values"),
        (&["--var", "A=1", "--timeout", "soon"], "is not a time; write seconds"),
    ];
    for (flags, says) in cases {
        ended(stage.busbw(flags).args(["--", "sh", "-c", "echo run >> \"$COUNTS/all\""])).refused(says);
    }
    assert_eq!(stage.runs(), 0);
}

#[test]
fn a_program_that_is_not_there_is_refused_before_anything_runs() {
    let stage = Stage::new();
    for program in ["./no-such-program", "no-such-program"] {
        ended(stage.busbw(&["--var", "A=1,2"]).args(["--", program]))
            .refused(&format!("{program}: no such program here"));
        assert!(!stage.folder.path().join("store").exists());
    }
}

#[test]
fn an_objective_that_the_first_outputs_do_not_hold_ends_the_sweep() {
    let stage = Stage::new();
    let ended = ended(stage.busbw(&["--var", "A=1,2", "--minimize", "loss ([0-9.]+)"]).args([
        "--",
        "sh",
        "-c",
        "echo run >> \"$COUNTS/all\"",
    ]));
    assert_eq!((ended.code(), stage.runs()), (Some(2), 3), "{ended:?}");
    let says = "nothing in the output matches 'loss ([0-9.]+)' of the first 3 trials";
    assert!(ended.stderr.contains(says), "{ended:?}");
}

#[test]
fn another_command_is_refused_the_store() {
    let stage = Stage::new();
    json(stage.tune(&["--json", "space.toml"]));
    ended(stage.busbw(&["space.toml"]).args(["--", "true"])).refused("holds trials of another command");
}

#[test]
fn the_algorithm_found_is_a_line_of_the_tuner_plugin() {
    let stage = Stage::new();
    let mut command = stage.busbw(&["--json", "algo", "--minimize", "t ([0-9]+)"]);
    command.args(["--", "sh", "-c", "test \"$NCCL_ALGO$NCCL_PROTO\" = TreeLL && echo t 3 || echo t 9"]);
    json(command);
    let conf = fs::read_to_string(stage.folder.path().join("store/nccl_tuner.conf")).unwrap();
    assert_eq!(conf.lines().last(), Some("allreduce,0,4294967295,tree,ll,-1,-1,-1,-1,-1"));
}

/// A rank of a launcher's job. The last one prints the time, so that the sweep finds 1 the best only where every rank was told.
pub fn rank(stage: &Stage, host: &str, rank: &str) -> String {
    let seen = stage.path("counts");
    // MPICH's mpirun at times dies of SIGPIPE when a process ends before it has closed that process's standard input.
    format!("echo ${{A:-default}} >> {seen}/{host}; test {rank} != 1 || echo runtime ${{A:-9}}; sleep 0.3")
}

/// `busbw tune` of three values of A, in four trials and more.
pub fn tune_a(stage: &Stage) -> Command {
    stage.busbw(&["--json", "--var", "A=3,1,2", "--minimize", "runtime ([0-9]+)"])
}

/// Lets busbw start trials by a launcher.
pub fn launched(mut tune: Command, launcher: &Command, rank: &str) -> Command {
    tune.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
    tune.arg("--").arg(launcher.get_program()).args(launcher.get_args()).args(["sh", "-c", rank]);
    tune
}

/// What the ranks of a host saw A to be, each value once, sorted.
pub fn seen(stage: &Stage, host: &str) -> Vec<String> {
    let text = fs::read_to_string(stage.folder.path().join("counts").join(host)).expect("a rank ran there");
    let values: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    values.into_iter().collect()
}

#[test]
fn mpich_hands_settings_on_to_its_ranks() {
    let stage = Stage::new();
    let rank = rank(&stage, "rank$PMI_RANK", "$PMI_RANK");
    let answer = json(launched(tune_a(&stage), &needed!(mpirun_mpich(2)), &rank));
    assert_eq!(answer["best"]["settings"], serde_json::json!({"A": "1"}), "{answer}");
    for rank in ["rank0", "rank1"] {
        assert_eq!(seen(&stage, rank), ["1", "2", "3", "default"]);
    }
}
