//! Files that busbw writes never destroy what a user has: an input, the previous report, a recording.

use crate::support::command::{BUSBW, busbw};
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::{TempDir, tempdir};

const RUN: &str = "tests/data/runs/h20-2x8-tcp/run.log";

/// A folder with `run.log`, another name for it, and a link to it.
fn with_a_log() -> (TempDir, Vec<u8>) {
    let folder = tempdir().expect("a folder");
    let log = fs::read(root_folder().join(RUN)).expect("the log is there");
    fs::write(folder.path().join("run.log"), &log).expect("written");
    symlink("run.log", folder.path().join("link.log")).expect("a link");
    fs::hard_link(folder.path().join("run.log"), folder.path().join("other.log")).expect("another name");
    (folder, log)
}

#[test]
fn an_input_is_never_written_to() {
    let (folder, log) = with_a_log();
    for line in [
        "explain run.log -o run.log",
        "explain run.log -o link.log --format html",
        "explain link.log --output=other.log",
        "explain . -o other.log",
        "explain run.log --junit link.log",
        "compare run.log link.log -o run.log",
        "predict run.log --json -o run.log",
        "simulate other.log -o run.log",
        "explain run.log --prometheus-file link.log",
    ] {
        let ended = busbw(folder.path(), &line.split(' ').collect::<Vec<_>>(), None);
        ended.refused("this command reads it; choose another file for --");
        assert!(fs::read(folder.path().join("run.log")).expect("it is there") == log, "{line} changed the log");
    }
    let mut command = Command::new(BUSBW);
    command.current_dir(folder.path()).args(["explain", "-", "-o", "run.log"]);
    let output = command.stdin(File::open(folder.path().join("run.log")).expect("opened")).output();
    Ended::of(output.expect("busbw runs")).refused("");
    assert!(fs::read(folder.path().join("run.log")).expect("it is there") == log);
}

/// What somebody called a file, or has had pasted as an argument, does not steer the terminal that it is shown on.
#[test]
fn names_do_not_steer_the_terminal() {
    const NAME: &str = "h\x1b[31m\x1b]0;title\x07";
    let (folder, log) = with_a_log();
    for exists in [false, true] {
        if exists {
            fs::write(folder.path().join(NAME), &log[..64]).expect("written");
        }
        for line in [
            "explain NAME",
            "explain NAME -o NAME",
            "check NAME",
            "compare NAME run.log",
            "predict NAME",
            "simulate NAME --gpus NAME",
            "monitor --replay NAME --json",
            "monitor --record NAME/NAME -i 50ms -n 1",
            "bench NAME",
            "bench all_reduce --NAME",
            "bench all_reduce -b NAME",
            "bench all_reduce --hosts NAME,NAME",
            "link --hosts NAME",
            "tune --var NAME --minimize NAME -- true",
            "tune --var A=1 --minimize x(.) -- ./NAME",
            "rules validate NAME",
            "NAME",
        ] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace("NAME", NAME)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ended = busbw(folder.path(), &words, None);
            assert!(!ended.stderr.contains(['\x1b', '\x07']), "{line}: {:?}", ended.stderr);
        }
    }
}

/// What is in a folder, but for the inputs.
fn written(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".log")).collect()
}

#[test]
fn a_report_is_replaced_by_a_whole_one_or_stays() {
    let (folder, _) = with_a_log();
    let explain = |limit: &str| {
        let line = format!("{limit} exec \"$0\" explain run.log --format html -o report.html");
        Ended::of(Command::new("sh").args(["-c", &line, BUSBW]).current_dir(folder.path()).output().expect("sh runs"))
    };
    let report = folder.path().join("report.html");
    assert_eq!(explain("").code(), Some(1));
    let first = fs::read(&report).expect("the report is there");
    // A full disk, as far as a write can tell: no file may grow beyond a block.
    explain("ulimit -f 1;").refused("report.html: File too large");
    assert!(fs::read(&report).expect("the report is there") == first, "the previous report was destroyed");
    assert_eq!(written(folder.path()), ["report.html"], "nothing is left behind");
}

#[test]
fn links_and_permissions_stay_and_devices_are_written_to() {
    let (folder, _) = with_a_log();
    let kept = folder.path().join("kept.html");
    fs::write(&kept, "before").expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&kept, private).expect("permissions can be set");
    symlink("kept.html", folder.path().join("link.html")).expect("a link");
    for path in ["link.html", "/dev/null", "/dev/stdout"] {
        let ended = busbw(folder.path(), &["explain", "run.log", "--format", "html", "-o", path], None);
        assert_eq!(ended.code(), Some(1), "{path}: {}", ended.stderr);
    }
    assert!(folder.path().join("link.html").is_symlink());
    assert!(fs::read_to_string(&kept).expect("the report is there").contains("<html"));
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&kept.metadata().expect("it is there")) & 0o777, 0o600);
}

#[test]
fn a_recording_is_replaced_with_force_alone() {
    let folder = tempdir().expect("a folder");
    let monitor = |more: &[&str]| busbw(folder.path(), &[&["monitor", "--once", "-i", "50ms"], more].concat(), None);
    for flag in ["--record", "--perfetto"] {
        let file = folder.path().join(flag);
        let flag = [flag, file.to_str().expect("UTF-8")];
        monitor(&flag).printed();
        let first = fs::read(&file).expect("it is there");
        monitor(&flag).refused("is there already; choose another name, or replace it with --force");
        assert!(fs::read(&file).expect("it is there") == first);
        monitor(&[&flag[..], &["--force"]].concat()).printed();
    }
}
