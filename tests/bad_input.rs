//! Bad input gets one line of error that says what to do, and exit status 2; large input is answered like any other.

use crate::support::command::{self, BUSBW};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::{TempDir, tempdir};

fn busbw(arguments: &[&str], input: Option<&[u8]>) -> Output {
    command::busbw(Path::new("."), arguments, input)
}

/// A file of a folder that goes away with the test.
fn file(folder: &TempDir, name: &str, content: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

fn assert_refused(output: &Output, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line, not: {stderr}");
    assert!(stderr.starts_with("busbw: ") && stderr.contains(says), "{stderr}");
    assert!(output.stdout.is_empty());
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
        assert_refused(&busbw(&["explain", &path], None), says);
    }
}

#[test]
fn our_own_text_is_refused_with_the_flag_that_gives_json() {
    for line in ["check --color always", "link --np 2 --seconds 0.05 --color never"] {
        let words: Vec<&str> = line.split(' ').collect();
        let text = busbw(&words, None).stdout;
        let says = format!("-: the text of `busbw {0}`; explain reads its JSON: `busbw {0} --json`", words[0]);
        assert_refused(&busbw(&["explain", "-"], Some(&text)), &says);
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
        let output = busbw(&line.split(' ').collect::<Vec<_>>(), None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(says) && output.stdout.is_empty(), "{line}: {stderr}");
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
        let words: Vec<&str> = line.split(' ').collect();
        assert_refused(&command::busbw(&crate::support::skip::root_folder(), &words, None), says);
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
        let output = busbw(&line.split(' ').collect::<Vec<_>>(), None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(says) && stderr.contains("tip: no number here may be below 0"), "{line}: {stderr}");
        assert!(!stderr.contains("-- -"), "{line}: {stderr}");
    }
    let root = busbw(&["bench", "all_reduce", "-r", "-2"], None);
    assert!(!String::from_utf8_lossy(&root.stderr).contains("below 0"), "all roots are -1");
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
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/runs/h20-2x8-ib/run.log");
    assert_refused(&busbw(&["explain", good, "/no/such/topo.txt"], None), "/no/such/topo.txt: no such file");
}

#[test]
fn a_pipe_that_closes_is_told() {
    assert_refused(&busbw(&["explain", "-"], Some(b"")), "standard input: is empty");
}

#[test]
fn no_input_is_bad_usage() {
    assert_eq!(busbw(&["explain"], None).status.code(), Some(2));
    assert_eq!(busbw(&["explode"], None).status.code(), Some(2));
}

#[test]
fn an_output_that_cannot_be_written_is_told() {
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/runs/h20-2x8-ib/run.log");
    assert_refused(
        &busbw(&["explain", "-o", "/no/such/folder/report.html", good], None),
        "choose a place that can be written",
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let good = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/runs/h20-2x8-ib/run.log");
    let mut child = Command::new(BUSBW)
        .args(["explain", good])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("busbw starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("busbw ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn standard_input_is_read_like_a_file() {
    let log = include_bytes!("data/runs/h20-2x8-roce-cross-switch/run.log");
    let output = busbw(&["explain", "-"], Some(log));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("fabric.congestion"));
}

/// Lines that end anywhere, in any order, repeated: no panic, and an answer or one line of error.
#[test]
fn damaged_logs_are_answered() {
    let log = include_bytes!("data/logs/061-snellius-2223-2node.log");
    for cut in (0..log.len()).step_by(log.len() / 40) {
        let (before, after) = log.split_at(cut);
        let swapped = [after, before].concat();
        for input in [before, after, swapped.as_slice()] {
            let output = busbw(&["explain", "--json", "-"], Some(input));
            assert!(matches!(output.status.code(), Some(0..=3)), "cut at {cut}: {:?}", output.status);
        }
    }
}

/// Logs repeat themselves for as long as a job runs. Memory must not follow: see `benches/` for the measurement.
#[test]
fn a_log_that_repeats_itself_is_read_to_its_end() {
    let log = include_bytes!("data/logs/061-snellius-2223-2node.log");
    let scratch = tempdir().expect("a folder");
    let path = file(&scratch, "long.log", &log.repeat(400));
    let output = busbw(&["explain", "--json", &path], None);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
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
            let output = Command::new("sh").args(["-c", &script]).output().expect("sh starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            if kib >= 600_000 && output.status.success() && stderr.is_empty() {
                continue; // it was enough for one thread
            }
            assert_eq!(output.status.code(), Some(2), "{script}: {stderr}");
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
    assert_refused(&busbw(&["explain", "-"], Some(&b"{\n".repeat(200_000))), "nothing that busbw knows");
}
