//! `busbw profile` on this host: jobs of busbw's engine, and a C program that makes NCCL's calls.

use crate::support::command::{BUSBW, busbw};
use crate::support::plugin;
use crate::support::skip::{c_compiler, needed, root_folder};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("an answer")).expect("JSON")
}

#[test]
fn what_the_engine_does_is_told_by_rank_and_size() {
    let folder = tempfile::tempdir().unwrap();
    let job = [BUSBW, "bench", "all_gather", "--np", "2", "-b", "64K", "-e", "256K", "-f", "4", "-n", "50", "-c", "0"];
    let flags = ["profile", "--json=profile.json", "--trace", "trace.json", "--"];
    let ended = busbw(folder.path(), &[&flags[..], &job].concat(), None);
    let printed = ended.printed();
    // The job's own output comes first.
    assert!(printed.starts_with("# nccl-tests version"), "{printed}");
    assert!(printed.contains("\nOperations, all ranks together\n"), "{printed}");

    let profile = json(&folder.path().join("profile.json"));
    assert_eq!((&profile["schema"], &profile["lost"]), (&"busbw.profile/1".into(), &0.into()));
    let ranks: Vec<&Value> = profile["ranks"].as_array().unwrap().iter().map(|rank| &rank["rank"]).collect();
    assert_eq!(ranks, [0, 1]);
    for bytes in [64 << 10, 256 << 10] {
        let of_size = |operation: &&Value| operation["collective"] == "all_gather" && operation["bytes"] == bytes;
        let operation = profile["operations"].as_array().unwrap().iter().find(of_size).unwrap();
        // 50 out of place and 50 in place, of two ranks, and warm-ups.
        assert!(operation["count"].as_u64().unwrap() >= 200, "{operation}");
        assert_eq!((&operation["ranks"], &operation["algorithm"]), (&2.into(), &"direct".into()));
        assert!(operation["busbw_gbs"].as_f64().unwrap() > 0.0, "{operation}");
    }
    let of_trace = json(&folder.path().join("trace.json"));
    let slices = of_trace.as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    let all: u64 = profile["operations"].as_array().unwrap().iter().map(|one| one["count"].as_u64().unwrap()).sum();
    assert_eq!(slices as u64, all);
}

#[test]
fn the_jobs_status_is_passed_on_and_a_job_without_collectives_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let ended = busbw(folder.path(), &["profile", "--", "sh", "-c", "exit 7"], None);
    assert_eq!(ended.code(), Some(7));
    let printed = &ended.stdout;
    assert!(
        printed.starts_with("No collective was seen.") && printed.contains("no process wrote an event"),
        "{printed}"
    );
    busbw(folder.path(), &["profile", "--json", "--", "true"], None).refused("");
}

/// The C program plays an operation, three replays of a graph, a send, and an operation for another process.
#[test]
fn what_nccl_tells_its_profiler_becomes_operations() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("profile");
    let source = root_folder().join("crates/nccl/plugin/tests/c/profile.c");
    let compiled =
        Command::new(needed!(c_compiler())).arg("-std=gnu11").arg("-o").arg(&program).arg(source).arg("-ldl").status();
    assert!(compiled.unwrap().success());
    let (program, library) = (program.display().to_string(), plugin::library().display().to_string());
    let job = ["profile", "-o", "profile.json", "--", &program, &library, "6", "job"];
    busbw(folder.path(), &job, None).printed();

    let profile = json(&folder.path().join("profile.json"));
    let operations = profile["operations"].as_array().unwrap();
    let [reduced, sent] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!((&reduced["collective"], &reduced["source"]), (&"all_reduce".into(), &"nccl".into()));
    assert_eq!((&reduced["algorithm"], &reduced["protocol"]), (&"Ring".into(), &"Simple".into()));
    // The last one has no parts, and so no end.
    assert_eq!([&reduced["count"], &reduced["replayed"], &reduced["untimed"]], [5, 3, 1]);
    assert_eq!([&reduced["bytes"], &reduced["ranks"], &reduced["nodes"]], [4096, 4, 2]);
    // By the GPU's clock: a microsecond.
    assert!((0.99..=1.0).contains(&reduced["median_us"].as_f64().unwrap()), "{reduced}");
    assert_eq!((&sent["collective"], &sent["untimed"]), (&"sendrecv".into(), &1.into()));
    // Four operations with a send and a receive of four steps each.
    assert_eq!(profile["ranks"][0]["steps"]["steps"], 4 * 2 * 4);
    let notes = profile["notes"].to_string();
    assert!(notes.contains("1 parts belong to operations of processes that are not seen here"), "{notes}");
}
