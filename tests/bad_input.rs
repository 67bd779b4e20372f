//! Bad input gets one line of error that says what to do, and exit status 2; large input is answered like any other.

use crate::support::command::{self, BUSBW, typed};
use crate::support::process::Ended;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::{TempDir, tempdir};

fn explain(arguments: &[&str], input: Option<&[u8]>) -> Ended {
    command::busbw(Path::new("."), &[&["explain"], arguments].concat(), input)
}

const GOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/runs/h20-2x8-ib/run.log");

/// A file of a folder that goes away with the test.
fn file(folder: &TempDir, name: &str, content: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

#[test]
fn bad_files_are_refused_in_one_line() {
    let scratch = tempdir().expect("a folder");
    let folder = scratch.path().join("nothing in it");
    std::fs::create_dir(&folder).expect("a folder");
    let folder = folder.display().to_string();
    let cases = [
        ("/no/such/run.log".to_string(), "no such file; check the path"),
        (folder.clone(), "no file in it that could be read"),
        (file(&scratch, "empty.log", b""), "is empty; "),
        (file(&scratch, "program", b"\x7fELF\x02\x01\x01\0\0\0\0"), "is not text but a program"),
        (file(&scratch, "run.log.gz", b"\x1f\x8b\x08\0\0\0\0\0"), "see whether it is whole: gzip -t"),
        (file(&scratch, "run.log.xz", b"\xfd7zXZ\0\0"), "unxz it first"),
        (file(&scratch, "zeros", &[0; 4096]), "is not text but binary data"),
        (file(&scratch, "poem.txt", b"Shall I compare thee to a summer's day?\n"), "nothing that busbw knows"),
    ];
    for (path, says) in cases {
        explain(&[&path], None).refused_in_a_line(says);
    }
}

#[test]
fn our_own_text_is_refused_with_the_flag_that_gives_json() {
    for (command, flags) in [("check", "--color always"), ("link", "--np 2 --seconds 0.05 --color never")] {
        let text = typed(&format!("{command} {flags}")).stdout;
        let says = format!("-: the text of `busbw {command}`; explain reads its JSON: `busbw {command} --json`");
        explain(&["-"], Some(text.as_bytes())).refused_in_a_line(&says);
    }
}

/// Before anything is measured, or a host is asked.
#[test]
fn flags_that_cannot_be_followed_are_refused() {
    for (line, says) in [
        ("doctor -e fast", "fast"),
        ("doctor -e 4", "give 8 or more"),
        ("link --np 2 --dry-run", "name them by --hosts"),
        ("net --plugin x.so --dry-run", "name them by --hosts"),
        ("bench all_reduce --np 2 --hosts a:2", "cannot be used with"),
        ("bench all_reduce --backend mpi", "[possible values: auto, cpu, nccl]"),
        ("bench all_reduce -t 60000 -g 60000", "3600000000 ranks in a process"),
    ] {
        typed(line).refused(says);
    }
}

/// What was given, and what is to be given instead.
#[test]
fn what_stands_in_the_wrong_place_is_told_where_it_belongs() {
    const CLUSTER: &str = "examples/clusters/h20x8.toml";
    const RUN: &str = "tests/data/runs/h20-2x8-tcp/run.log";
    let scratch = tempdir().expect("a folder");
    let empty = scratch.path().display().to_string();
    let cases = [
        (format!("predict {CLUSTER} {CLUSTER}"), "one description is read at a time"),
        (format!("simulate {RUN} {CLUSTER}"), "one description is read at a time"),
        (format!("predict {RUN} alltoall"), "write the collective first, or as --collective alltoall"),
        (format!("compare {RUN} {RUN} alltoall"), "write the collective first, or as --collective alltoall"),
        (format!("check --root {empty}"), "it holds no sys and no proc"),
    ];
    for (line, says) in cases {
        typed(&line).refused_in_a_line(says);
    }
}

/// Whatever takes a number says that it is none below 0, and no tip leads to an argument.
#[test]
fn numbers_below_0_are_refused_by_their_flag() {
    for (line, says) in [
        ("bench all_reduce -n -1", "invalid value '-1' for '--iters <N>'"),
        ("bench all_reduce -b -8", "invalid value '-8' for '--minbytes <SIZE>'"),
        ("predict c.toml --width -5", "invalid value '-5' for '--width <COLUMNS>'"),
        ("predict c.toml -e -1", "invalid value '-1' for '--maxbytes <SIZE>'"),
        ("accelerate --nodes -1", "invalid value '-1' for '--nodes <N>'"),
        ("accelerate --gradients -1M", "unexpected argument '-1'"),
        ("explain --threads -1 run.log", "invalid value '-1' for '--threads <N>'"),
        ("monitor -i -0.5", "invalid value '-0.5' for '--interval <TIME>'"),
        ("link --np -1", "invalid value '-1' for '--np <N>'"),
    ] {
        let ended = typed(line);
        let said = ended.refused(says);
        assert!(said.contains("tip: no number here may be below 0") && !said.contains("-- -"), "{line}: {said}");
    }
    assert!(!typed("bench all_reduce -r -2").stderr.contains("below 0"), "all roots are -1");
}

/// A reader who has seen enough does not cut the benchmark short.
#[test]
fn doctor_keeps_its_report_when_nobody_reads_on() {
    let scratch = tempdir().expect("a folder");
    let report = scratch.path().join("report.json");
    let mut command = Command::new(BUSBW);
    command.args(["doctor", "--np", "2", "-e", "1K", "--output"]).arg(&report);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("busbw starts");
    drop(child.stdout.take());
    child.wait().expect("busbw ends");
    let report = std::fs::read_to_string(report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["tables"][0]["rows"].as_array().map(Vec::len), Some(8), "{report:#}");
}

#[test]
fn a_bad_file_among_good_ones_is_named() {
    explain(&[GOOD, "/no/such/topo.txt"], None).refused_in_a_line("/no/such/topo.txt: no such file");
}

#[test]
fn a_pipe_that_closes_is_told() {
    explain(&["-"], Some(b"")).refused_in_a_line("standard input: is empty");
}

#[test]
fn no_input_is_bad_usage() {
    typed("explain").refused("");
    typed("explode").refused("");
}

#[test]
fn an_output_that_cannot_be_written_is_told() {
    explain(&["-o", "/no/such/folder/report.html", GOOD], None).refused_in_a_line("choose a place that can be written");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = Command::new(BUSBW)
        .args(["explain", GOOD])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("busbw starts");
    drop(child.stdout.take());
    assert_eq!(Ended::of(child.wait_with_output().expect("busbw ends")).stderr, "");
}

#[test]
fn standard_input_is_read_like_a_file() {
    let log = include_bytes!("data/runs/h20-2x8-roce-cross-switch/run.log");
    let ended = explain(&["-"], Some(log));
    assert!(ended.code() == Some(1) && ended.stdout.contains("fabric.congestion"), "{ended:?}");
}

/// Lines that end anywhere, in any order, repeated: no panic, and an answer or one line of error.
#[test]
fn damaged_logs_are_answered() {
    let log = include_bytes!("data/logs/061-snellius-2223-2node.log");
    for cut in (0..log.len()).step_by(log.len() / 40) {
        let (before, after) = log.split_at(cut);
        let swapped = [after, before].concat();
        for input in [before, after, swapped.as_slice()] {
            let status = explain(&["--json", "-"], Some(input)).status;
            assert!(matches!(status.code(), Some(0..=3)), "cut at {cut}: {status:?}");
        }
    }
}

/// Logs repeat themselves for as long as a job runs. Memory must not follow: see `benches/` for the measurement.
#[test]
fn a_log_that_repeats_itself_is_read_to_its_end() {
    let log = include_bytes!("data/logs/061-snellius-2223-2node.log");
    let scratch = tempdir().expect("a folder");
    let path = file(&scratch, "long.log", &log.repeat(400));
    let answer = explain(&["--json", &path], None).json();
    assert_eq!(answer["inputs"][0]["bytes"], log.len() as u64 * 400);
    assert_eq!(answer["communicators"].as_array().map(Vec::len), Some(1));
}

/// Where memory is used up, one line says so, with how much there is and how much it takes: no signal, no backtrace.
#[test]
fn a_limit_of_memory_is_told_in_one_line() {
    let line = |rank: usize| {
        format!(
            "node{}:{}:1 [{}] NCCL INFO ncclCommInitRank comm 0x{rank:x} rank {rank} nranks 300000 cudaDev 0 busId 1000 commId 0xabc - Init COMPLETE\n",
            rank / 8,
            1000 + rank % 8,
            rank % 8
        )
    };
    let scratch = tempdir().expect("a folder");
    let path = file(&scratch, "large.log", (0..370_000).map(line).collect::<String>().as_bytes());
    for kib in [50_000, 60_000, 62_000, 80_000, 100_000, 150_000, 300_000, 600_000] {
        for threads in [1, 16] {
            let script = format!("ulimit -v {kib}; exec '{BUSBW}' explain --threads {threads} '{path}'");
            let ended = Ended::of(Command::new("sh").args(["-c", &script]).output().expect("sh starts"));
            if kib >= 600_000 && ended.status.success() && ended.stderr.is_empty() {
                continue; // it was enough for one thread
            }
            let stderr = ended.refused("");
            let memory = format!("busbw: out of memory: it may take {} MiB (`ulimit -v`)", kib / 1024);
            let threads = format!("busbw: {path}: no more threads (");
            // Below, it may not have come to know how much there is to read.
            let takes = kib < 150_000 || stderr.contains("; reading 49 MiB takes 128 to ");
            let says = stderr.starts_with(&memory) && takes || stderr.starts_with(&threads);
            assert!(says && stderr.lines().count() == 1, "{script}: {stderr}");
        }
    }
}

/// Brackets that never close hold nothing, and are passed over.
#[test]
fn brackets_without_end_are_refused() {
    explain(&["-"], Some(&b"{\n".repeat(200_000))).refused_in_a_line("nothing that busbw knows");
}
