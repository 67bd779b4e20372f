//! `busbw explain FOLDER`: the results of many nodes in one report, also as Slurm gathers them.

use crate::support::command::BUSBW;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const NODES: usize = 40;
const SLOW: usize = 17;

fn explain(arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(BUSBW).arg("explain").args(arguments).arg(folder).output();
    output.expect("busbw runs")
}

fn text(folder: &Path) -> String {
    String::from_utf8(explain(&[], folder).stdout).expect("UTF-8")
}

/// What `busbw bench all_reduce -J` writes for two nodes.
fn pair(a: usize, b: usize, busbw: f64) -> Value {
    let device = |rank: usize, node: usize| {
        json!({"rank": rank, "group": 0, "pid": 100 + rank, "hostname": format!("node{node:02}"), "device": 0,
               "device_hex": "0000:0f:00", "device_info": "NVIDIA H100 80GB HBM3"})
    };
    let half = |size: f64| json!({"time": size / busbw / 1e3, "alg_bw": busbw, "bus_bw": busbw, "nwrong": 0.0});
    let row = |exponent: u32| {
        let size = 1u64 << exponent;
        json!({"size": size, "count": size / 4, "type": "float", "redop": "sum", "root": "    -1",
               "out_of_place": half(size as f64), "in_place": half(size as f64), "actual_iterations": 20})
    };
    json!({"version": 3, "args": ["all_reduce_perf"], "nccl_version": 22703,
           "config": {"nthreads": 1, "ngpus": 1, "warmup_iters": 1, "iterations": 20, "devices": [device(0, a), device(1, b)]},
           "results": (20..=30).map(row).collect::<Vec<_>>(), "out_of_bounds": {"count": 0, "okay": "true"},
           "average_bus_bandwidth": {"bandwidth": busbw}, "end_time": "2026-11-22 12:00:00"})
}

/// Every node with the next and the one after that. One of them is slow with whomever it is measured.
fn fleet() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for a in 0..NODES {
        let below = folder.path().join(format!("job{}", a / 10));
        fs::create_dir_all(&below).expect("a folder");
        for b in [(a + 1) % NODES, (a + 2) % NODES] {
            let noise = ((a * 7 + b * 3) % 11) as f64 / 10.0;
            let busbw = (47.0 + noise) * if a == SLOW || b == SLOW { 0.5 } else { 1.0 };
            fs::write(below.join(format!("pair-{a:02}-{b:02}.json")), pair(a, b, busbw).to_string()).expect("a file");
        }
    }
    folder
}

#[test]
fn the_slow_node_of_a_folder_is_named_first() {
    let fleet = fleet();
    let output = explain(&[], fleet.path());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = text(fleet.path());
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("DEGRADED  node17 is slow: "), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("80 measured, of 40 nodes") && words.contains("76 are not slow"), "{text}");
    assert!(text.lines().count() < 150, "{} lines", text.lines().count());
}

#[test]
fn programs_get_the_peers() {
    let fleet = fleet();
    let answer: Value = serde_json::from_slice(&explain(&["--json"], fleet.path()).stdout).expect("JSON");
    let peers = &answer["peers"][0];
    assert_eq!((&peers["nodes"], &peers["measured"]), (&json!(NODES), &json!(2 * NODES)));
    assert_eq!(peers["slow"].as_array().map(Vec::len), Some(1), "{peers}");
    assert_eq!((&peers["slow"][0]["hosts"], &peers["slow"][0]["blame"]), (&json!(["node17"]), &json!("node")));
    assert_eq!(peers["slow"][0]["measurements"], json!(4));
}

#[test]
fn what_is_no_result_is_left_out_and_told() {
    let fleet = fleet();
    fs::write(fleet.path().join(".hidden.json"), pair(1, 2, 1.0).to_string()).expect("a file");
    fs::write(fleet.path().join("core"), b"\x7fELF\x02\x01\x01\0\0\0\0").expect("a file");
    std::os::unix::fs::symlink("..", fleet.path().join("again")).expect("a link");
    let text = text(fleet.path());
    assert!(text.lines().next().is_some_and(|first| first.contains("node17 is slow")), "{text}");
    for left_out in
        [".hidden.json: left out: hidden", "core: left out: a program", "again: left out: a link to a folder"]
    {
        assert!(text.replace("\n    ", " ").contains(left_out), "{left_out}: {text}");
    }
}

/// What doctor, check and link kept on single nodes is read as well.
#[test]
fn answers_of_busbw_itself_are_gathered() {
    let folder = tempfile::tempdir().expect("a folder");
    for node in 0..6 {
        let item = json!({"area": "pcie", "item": "link", "host": format!("node{node}"), "device": "mlx5_0",
                          "detail": "runs at x8 of x16", "result": if node < 4 { "fail" } else { "ok" },
                          "code": if node < 4 { json!("pcie.degraded") } else { Value::Null }});
        let check = json!({"schema": "busbw.check/1", "hosts": [format!("node{node}")], "items": [item]});
        // The schema's name is the first member of busbw's JSON; serde_json sorts by name.
        let text = check
            .to_string()
            .replacen('{', "{\"schema\":\"busbw.check/1\",", 1)
            .replace(",\"schema\":\"busbw.check/1\"}", "}");
        fs::write(folder.path().join(format!("node{node}.json")), text).expect("a file");
    }
    let text = text(folder.path());
    assert!(text.lines().next().is_some_and(|first| first.starts_with("FAILED  4 nodes: ")), "{text}");
    assert!(text.contains("pcie.degraded") && text.contains("node0, node1, node2, node3"), "{text}");
}
