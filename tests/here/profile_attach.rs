//! `busbw profile --attach` and `--merge` on this host: jobs that run already, and traces of them.

use crate::support::command::{BUSBW, busbw};
use crate::support::process::{Ended, LIMIT, Running, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A job of busbw's engine that repeats one operation so often, with this variable.
fn job(profile: Option<&str>, times: &str) -> Running {
    let mut command = Command::new(BUSBW);
    command.args(["bench", "all_reduce", "--np", "2", "-b", "64K", "-e", "64K", "-c", "0", "-w", "5", "-n", times]);
    command.env_remove("BUSBW_PROFILE").envs(profile.map(|value| ("BUSBW_PROFILE", value)));
    Running::start(command)
}

fn attached(folder: &Path, job: &Running, flags: &[&str]) -> Command {
    let mut command = Command::new(BUSBW);
    command.args(["profile", "--attach", &job.id().to_string()]).args(flags).current_dir(folder);
    command
}

/// The answer that a command wrote to profile.json, which ended well.
fn answer(folder: &Path, ended: &Ended) -> Value {
    ended.printed();
    serde_json::from_slice(&fs::read(folder.join("profile.json")).expect("an answer")).expect("JSON")
}

fn count(profile: &Value) -> u64 {
    let operations = profile["operations"].as_array().expect("operations");
    operations.iter().map(|one| one["count"].as_u64().expect("a count")).sum()
}

#[test]
fn a_job_that_runs_is_looked_on_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(Some("attach"), "100000000");
    for _ in 0..2 {
        let ended = run(attached(folder.path(), &job, &["--seconds", "2", "--json=profile.json"]), LIMIT);
        assert!(ended.stdout.contains("\nOperations, all ranks together\n"), "{}", ended.stdout);
        let profile = answer(folder.path(), &ended);
        let ranks: Vec<&Value> = profile["ranks"].as_array().unwrap().iter().map(|rank| &rank["rank"]).collect();
        assert_eq!(ranks, [0, 1], "{profile:#}");
        assert_eq!((&profile["lost"], &profile["exit_status"]), (&0.into(), &Value::Null));
        assert!(profile["job"].as_str().unwrap().contains("bench all_reduce"), "{profile:#}");
        let [operation] = &profile["operations"].as_array().unwrap()[..] else { panic!("{profile:#}") };
        assert_eq!((&operation["bytes"], &operation["algorithm"]), (&65536.into(), &"direct".into()), "{operation}");
        assert!(operation["count"].as_u64().unwrap() > 20, "{operation}");
        assert_eq!(profile["notes"], serde_json::json!([]), "{profile:#}");
        // Numbers go on where nobody reads, so that ranks' operations belong together.
        assert!(profile["ranks"][0]["waited_us"].is_number(), "{profile:#}");
    }
}

#[test]
fn reading_ends_with_the_job_and_one_reads_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(Some("attach"), "100000000");
    let mut first = Running::start(attached(folder.path(), &job, &["--json=profile.json"]));
    first.until_said(LIMIT, "word", |said| said.contains("until Ctrl-C").then_some(()));
    // It begins right behind that word.
    std::thread::sleep(Duration::from_secs(2));
    run(attached(folder.path(), &job, &["--seconds", "1"]), LIMIT).refused("another busbw reads its events");
    drop(job);
    let profile = answer(folder.path(), &first.ended(LIMIT));
    assert!(count(&profile) > 20, "{profile:#}");
}

#[test]
fn a_job_that_keeps_no_events_is_told_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let attach = |job: &Running| run(attached(folder.path(), job, &["--seconds", "2"]), LIMIT);
    attach(&job(None, "100000000")).refused_in_a_line("BUSBW_PROFILE=attach");
    let elsewhere = folder.path().join("rings");
    fs::create_dir(&elsewhere).unwrap();
    let other = job(elsewhere.to_str(), "100000000");
    attach(&other).refused("busbw watch --profile, which reads its events already");
    for (job, says) in
        [("4194305", "there is no such process"), ("slurm:123456789", "no process of the job is on this host")]
    {
        let ended = busbw(folder.path(), &["profile", "--attach", job], None);
        assert!(ended.stderr.contains(says), "{ended:?}");
    }
}

#[test]
fn traces_are_put_together_and_what_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let bench =
        [BUSBW, "bench", "all_gather", "--np", "2", "-b", "64K", "-e", "256K", "-f", "4", "-n", "50", "-c", "0"];
    busbw(path, &[&["profile", "--json=whole.json", "--trace", "trace.json", "--"][..], &bench].concat(), None)
        .printed();
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(path.join(name)).unwrap()).unwrap() };
    let whole = read("whole.json");
    // As if each rank were on a host of its own.
    let ranks: Vec<u64> =
        whole["ranks"].as_array().unwrap().iter().map(|rank| rank["process"].as_u64().unwrap()).collect();
    for (host, rank) in ["h1", "h2"].into_iter().zip(&ranks) {
        let of_rank = |event: &&Value| event["pid"].as_u64() == Some(*rank) || event["pid"] == 0;
        let trace = read("trace.json");
        let mut events: Vec<Value> = trace.as_array().unwrap().iter().filter(of_rank).cloned().collect();
        for event in events.iter_mut().filter(|event| event["args"]["host"].is_string()) {
            event["args"]["host"] = host.into();
            // The second host's clock is a second behind.
            let since = event["args"]["since_1970_ns"].as_u64().unwrap();
            event["args"]["since_1970_ns"] = (since - if host == "h2" { 1_000_000_000 } else { 0 }).into();
        }
        fs::write(path.join(format!("{host}.json")), Value::Array(events).to_string()).unwrap();
    }
    let merged =
        busbw(path, &["profile", "--merge", "h1.json", "h2.json", "--json=both.json", "--trace", "both.trace"], None);
    let printed = merged.printed();
    assert!(printed.contains("2 ranks on h1, h2, ") && printed.contains("rank  host  process"), "{printed}");
    let both = read("both.json");
    assert_eq!(both["operations"], whole["operations"]);
    let notes = both["notes"].to_string();
    assert!(
        notes.contains("the clock of h2 is ") && notes.contains(" behind that of h1, and was corrected"),
        "{notes}"
    );
    // What was put together can be put together again.
    busbw(path, &["profile", "--merge", "both.trace", "--json=again.json"], None).printed();
    assert_eq!(read("again.json")["operations"], whole["operations"]);

    let text = fs::read_to_string(path.join("h2.json")).unwrap();
    fs::write(path.join("cut.json"), &text[..text.len() * 2 / 3]).unwrap();
    let cut = busbw(path, &["profile", "--merge", "h1.json", "cut.json"], None);
    assert!(cut.printed().contains("cut.json was cut off"), "{cut:?}");
    fs::write(path.join("empty.json"), "[]").unwrap();
    fs::write(path.join("log.txt"), "step 1\nstep 2\n").unwrap();
    for (traces, says) in [
        (&["h1.json", "h1.json"][..], "give each trace once"),
        (&["h1.json", "whole.json"], "it is no trace of busbw profile"),
        (&["log.txt"], "log.txt: line 1: "),
        (&["empty.json"], "no operation of a process"),
        (&["none.json"], "No such file"),
    ] {
        busbw(path, &[&["profile", "--merge"], traces].concat(), None).refused_in_a_line(says);
    }
}
