//! `busbw explain FOLDER`: the results of many nodes in one report, also as Slurm gathers them.

use crate::support::command::busbw;
use crate::support::process::Ended;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const NODES: usize = 40;
const SLOW: usize = 17;

fn explain(arguments: &[&str], folder: &Path) -> Ended {
    let folder = folder.to_str().expect("UTF-8");
    busbw(Path::new("."), &[&["explain"], arguments, &[folder]].concat(), None)
}

fn text(folder: &Path) -> String {
    explain(&[], folder).stdout
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
    let ended = explain(&[], fleet.path());
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    let text = ended.stdout;
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("DEGRADED  node17 is slow: "), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("80 measured, of 40 nodes") && words.contains("76 are not slow"), "{text}");
    assert!(text.lines().count() < 150, "{} lines", text.lines().count());
}

#[test]
fn programs_get_the_peers() {
    let fleet = fleet();
    let answer = explain(&["--json"], fleet.path()).json();
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

/// What `busbw link` kept of three hosts, each link at its receiver's and sender's lesser rate.
fn links(gbit_s: [f64; 3], findings: Value) -> String {
    let end = |host: usize| json!({"host": format!("h{}", host + 1), "nic": "eth0", "address": "10.0.0.1", "rate_gbit_s": null, "trouble": null});
    let pairs = (0..3).flat_map(|a| (0..3).filter(move |b| a != *b).map(move |b| (a, b)));
    let link = |(a, b): (usize, usize)| json!({"from": a, "to": b, "error": null, "gbit_s": gbit_s[a].min(gbit_s[b])});
    let rest = json!({"transport": "tcp", "ends": (0..3).map(end).collect::<Vec<_>>(), "links": pairs.map(link).collect::<Vec<_>>(), "findings": findings});
    rest.to_string().replacen('{', "{\"schema\":\"busbw.link/1\",", 1)
}

/// Two hosts of one measurement: each by its own name, with why and what to do.
#[test]
fn every_slow_host_of_a_measurement_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let slow = |host: &str| {
        json!({"code": "straggler.node", "severity": "error", "title": format!("{host} is slow"),
               "explanation": format!("Nearly all links of {host} are slow."), "remedy": [format!("On {host}, look: `ethtool eth0`")]})
    };
    fs::write(folder.path().join("links.json"), links([10.0, 1.0, 1.0], json!([slow("h2"), slow("h3")])))
        .expect("a file");
    let answer = explain(&["--json"], folder.path()).json();
    assert_eq!(answer["verdict"], "degraded", "{answer:#}");
    for (number, host) in ["h2", "h3"].into_iter().enumerate() {
        let finding = &answer["findings"][number];
        assert_eq!(finding["title"], format!("{host} is slow"), "{answer:#}");
        assert_eq!(finding["explanation"], format!("Nearly all links of {host} are slow."));
        assert!(finding["remedy"][0].as_str().is_some_and(|remedy| remedy.contains("ethtool eth0")), "{finding:#}");
    }
}

/// What `check --hosts --save` keeps of hosts that did not answer stands beside whatever the others measured.
#[test]
fn hosts_that_did_not_answer_are_named() {
    let hello = |silent: Value, apart: Value| json!({"asked": 3, "silent": silent, "apart": apart});
    let silent = |host: &str| json!({"host": host, "why": "no answer within 5 s"});
    for (hello, first) in [
        (hello(json!([silent("h3")]), Value::Null), "FAILED  h3 did not answer: no answer within 5 s"),
        (hello(json!([silent("h2"), silent("h3")]), Value::Null), "FAILED  h2, h3 did not answer: "),
        (
            hello(json!([]), json!("rank 1 did not come")),
            "FAILED  The hosts answer one by one, but not as one job: rank 1 ",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let facts = json!({"schema": "busbw.facts/1", "nodes": [{"host": "h1"}], "hello": hello});
        fs::write(folder.path().join("facts.json"), facts.to_string()).expect("a file");
        fs::write(folder.path().join("links.json"), links([10.0; 3], json!([]))).expect("a file");
        let text = text(folder.path());
        assert!(text.starts_with(first), "{first}: {text}");
        assert!(text.contains("ssh"), "{text}");
    }
}

/// What `busbw bench` prints of an all-reduce with a rank on each of three hosts.
fn on_cores(busbw: f64) -> String {
    let rank = |rank: usize| {
        format!("#  Rank  {rank} Group  0 Pid  {rank} on h{} device  0 [0000:00:00] CPU Xeon\n", rank + 1)
    };
    let row = |size: u64| {
        let half = format!("{:.1} {:.4} {busbw:.4} 0", size as f64 / busbw / 750.0, busbw * 0.75);
        format!("{size} {} float sum -1 {half} {half}\n", size / 4)
    };
    let ranks: String = (0..3).map(rank).collect();
    let rows: String = (16..=28).map(|power| row(1 << power)).collect();
    format!(
        "# nThread 1 nGpus 1 minBytes 65536 maxBytes 268435456 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n# Collective test starting: all_reduce_perf\n# Using devices\n{ranks}{rows}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw}\n#\n"
    )
}

/// Between hosts, an all-reduce on cores is held against what the links carry.
#[test]
fn measured_links_say_what_an_all_reduce_should_reach() {
    for (gbit_s, busbw, verdict) in
        [(None, 1.2, "UNDECIDED"), (Some(10.0), 1.2, "HEALTHY"), (Some(10.0), 0.2, "UNDECIDED")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("bench.txt"), on_cores(busbw)).expect("a file");
        if let Some(gbit_s) = gbit_s {
            fs::write(folder.path().join("links.json"), links([gbit_s; 3], json!([]))).expect("a file");
        }
        let text = text(folder.path());
        assert!(text.starts_with(verdict), "{gbit_s:?} Gbit/s, {busbw} GB/s: {text}");
    }
}

/// What the other ranks said when the table stopped.
#[test]
fn the_rank_that_a_benchmark_lost_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = on_cores(1.2);
    let (table, _) = table.split_once("# Out of bounds").expect("a footer");
    let lost = "busbw: rank 2 on host h3 (pid 2, 10.77.0.3) has not answered for 60 s: stopped, or its host or cable is cut off\n";
    fs::write(folder.path().join("bench.txt"), format!("{table}{lost}{lost}")).expect("a file");
    let text = text(folder.path());
    assert!(text.starts_with("FAILED  Rank 2 on h3 has not answered for 60 s: stopped"), "{text}");
}
