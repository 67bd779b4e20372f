//! `busbw explain` from end to end on recorded runs: exit status, text and JSON.

use crate::support::command::{BUSBW, busbw, typed};
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use crate::support::terminal::OnTerminal;
use serde_json::Value;
use std::process::Command;

/// Runs busbw in the folder of recorded runs, so that paths in its output are the same everywhere.
fn explain(arguments: &[&str]) -> Ended {
    busbw(&root_folder().join("tests/data/runs"), &[&["explain"], arguments].concat(), None)
}

fn text(arguments: &[&str]) -> String {
    let ended = explain(arguments);
    assert_eq!(ended.stderr, "");
    ended.stdout
}

fn json(arguments: &[&str]) -> Value {
    explain(&[&["--json"], arguments].concat()).json()
}

const CROSS_SWITCH: &str = "h20-2x8-roce-cross-switch/run.log";
const IB: &str = "h20-2x8-ib/run.log";
const TCP: &str = "h20-2x8-tcp/run.log";
const PERFTEST: &str = "sccgn/ib_read_bw.txt";
const MONITOR: &str = "sccgn/rdma_monitor.txt";
const CHECK: &str = "sccgn/rdma_qos_check.txt";

#[test]
fn text_of_every_recorded_run() {
    for (name, inputs) in [
        ("cross_switch", &[CROSS_SWITCH][..]),
        ("ib", &[IB]),
        ("tcp", &[TCP]),
        ("all_three", &[CROSS_SWITCH, IB, TCP]),
        ("sccgn", &[PERFTEST, MONITOR, CHECK]),
    ] {
        insta::assert_snapshot!(format!("text_{name}"), text(inputs));
    }
}

/// What is left of a terminal of 24 rows below the command line, and above the next prompt.
const SCREEN: usize = 22;

#[test]
fn a_screen_has_verdict_cause_remedy_and_gain() {
    for (name, input) in [
        ("cross_switch", "runs/h20-2x8-roce-cross-switch/run.log"),
        ("ib", "runs/h20-2x8-ib/run.log"),
        ("tcp", "runs/h20-2x8-tcp/run.log"),
        ("killed", "logs-nccl/F01-kill-rank2-in-init.log"),
        ("cut_file", "logs-nccl/F11-topofile-cut.log"),
        ("versions", "logs-nccl/F21-versions-230-227.log"),
        ("healthy_1", "logs/052-p5-2203-16rank-mpirun-tuner.log"),
        ("healthy_2", "logs-2/n64-wayne-allreduce.log"),
    ] {
        let mut command = Command::new(BUSBW);
        command.current_dir(root_folder().join("tests/data")).args(["explain", "--color", "never", input]);
        let shown = OnTerminal::sized(command, 24, 80).whole();
        assert!(shown.lines().count() <= SCREEN, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80 || line.starts_with("          ")), "{shown}");
        insta::assert_snapshot!(format!("screen_{name}"), shown);
    }
}

#[test]
fn the_whole_answer_on_a_terminal_ends_with_its_verdict() {
    let mut command = Command::new(BUSBW);
    command.current_dir(root_folder().join("tests/data/runs")).args(["explain", "--color", "never", "-v", IB]);
    let shown = OnTerminal::sized(command, 24, 100).whole();
    let verdict: Vec<&str> = shown.lines().take(2).collect();
    assert!(verdict[0].starts_with("HEALTHY") && shown.ends_with(&format!("\n\n{}\n", verdict.join("\n"))), "{shown}");
}

#[test]
fn whoever_writes_a_file_sees_the_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    for (quiet, says) in [(&[][..], "busbw: HEALTHY  "), (&["-q"], "")] {
        let mut command = Command::new(BUSBW);
        command.current_dir(root_folder().join("tests/data/runs")).args(["explain", IB, "-o"]).arg(&file).args(quiet);
        let shown = OnTerminal::sized(command, 24, 80).whole();
        assert!(shown.starts_with(says) && shown.is_empty() == says.is_empty(), "{shown}");
    }
}

#[test]
fn standard_input_is_read_where_no_file_is_given() {
    let log = std::fs::read(root_folder().join("tests/data/runs").join(IB)).expect("a log");
    let ended = busbw(&root_folder(), &["explain"], Some(&log));
    assert!(ended.stdout.starts_with("HEALTHY"), "{ended:?}");
    let mut command = Command::new(BUSBW);
    command.arg("explain");
    let shown = OnTerminal::sized(command, 24, 80).whole();
    assert!(shown.contains("no file to read"), "{shown}");
}

#[test]
fn json_of_every_recorded_run() {
    for (name, inputs) in
        [("cross_switch", &[CROSS_SWITCH][..]), ("ib", &[IB]), ("tcp", &[TCP]), ("sccgn", &[PERFTEST, MONITOR, CHECK])]
    {
        insta::assert_snapshot!(format!("json_{name}"), explain(&[&["--json"], inputs].concat()).stdout);
    }
}

/// The first field report, answered from its log alone.
#[test]
fn the_first_field_report_is_answered() {
    let answer = json(&[CROSS_SWITCH]);
    assert_eq!(answer["verdict"], "degraded");
    assert_eq!(answer["findings"][0]["code"], "fabric.congestion");

    let nodes = answer["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        let gpus = node["gpus"].as_array().expect("GPUs");
        assert_eq!(gpus.len(), 8);
        assert!(gpus.iter().all(|gpu| gpu["name"] == "NVIDIA H20"));
    }

    let comm = &answer["communicators"][0];
    assert_eq!((&comm["nranks"], &comm["nnodes"], &comm["coll_channels"]), (&16.into(), &2.into(), &16.into()));
    let mut crossings: Vec<(u64, u64, usize)> = comm["crossings"]
        .as_array()
        .expect("crossings")
        .iter()
        .map(|c| (c["from"].as_u64().unwrap(), c["to"].as_u64().unwrap(), c["channels"].as_array().unwrap().len()))
        .collect();
    crossings.sort_unstable();
    assert_eq!(
        crossings,
        [(1, 10, 4), (2, 8, 4), (5, 14, 4), (6, 12, 4), (9, 2, 4), (10, 0, 4), (13, 6, 4), (14, 4, 4)]
    );

    let table = &answer["tables"][0];
    assert_eq!(table["peak_busbw_gbs"], 48.23);
    let row = |size: u64| table["rows"].as_array().unwrap().iter().find(|r| r["size_bytes"] == size).unwrap().clone();
    assert_eq!(row(256 << 20)["out_of_place"]["busbw_gbs"], 48.23);
    assert_eq!(row(128 << 20)["in_place"]["busbw_gbs"], 47.56);
    assert_eq!(row(16 << 30)["out_of_place"]["busbw_gbs"], 33.94);
    assert_eq!(row(16 << 30)["in_place"]["busbw_gbs"], 33.36);
    let average = table["avg_busbw_gbs"].as_f64().unwrap();
    assert!((average - 22.04).abs() < 0.005, "{average}");

    let why = answer["findings"][0]["explanation"].as_str().unwrap();
    assert!(why.contains("four GPU pairs"), "{why}");
}

#[test]
fn three_runs_together_tell_which_used_rdma() {
    let answer = json(&[CROSS_SWITCH, IB, TCP]);
    let titles: Vec<&str> =
        answer["findings"].as_array().unwrap().iter().map(|f| f["title"].as_str().unwrap()).collect();
    assert!(titles.iter().any(|t| t.starts_with(&format!("{TCP} did not use RDMA"))), "{titles:?}");
    assert!(titles.iter().any(|t| t.starts_with(&format!("{IB} used RDMA"))), "{titles:?}");
}

#[test]
fn the_exit_status_tells_what_was_found() {
    let status = |arguments: &[&str]| explain(arguments).status.code();
    assert_eq!(status(&[CROSS_SWITCH]), Some(1));
    assert_eq!(status(&[IB]), Some(0));
    assert_eq!(status(&["no-such-file.log"]), Some(2));
    assert_eq!(status(&["--format", "xml", IB]), Some(2));
}

#[test]
fn the_page_stands_alone() {
    let page = text(&["--format", "html", CROSS_SWITCH]);
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("<svg") && !page.contains("src=\"http") && !page.contains("<script src"));
}

#[test]
fn one_log_per_rank_gives_the_same_run() {
    let log =
        std::fs::read_to_string(root_folder().join("tests/data/logs/061-snellius-2223-2node.log")).expect("a log");
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = ["gcn151", "gcn154"];
    let paths: Vec<String> = hosts
        .iter()
        .map(|host| {
            let path = folder.path().join(format!("{host}.log"));
            let lines: Vec<&str> = log.lines().filter(|l| l.starts_with(host)).collect();
            std::fs::write(&path, lines.join("\n")).expect("written");
            path.display().to_string()
        })
        .collect();
    let answer = json(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let comm = &answer["communicators"][0];
    assert_eq!((&comm["nranks"], &comm["nnodes"], &comm["gdr"]), (&8.into(), &2.into(), &true.into()));
    assert_eq!(answer["communicators"].as_array().unwrap().len(), 1);
}

#[test]
fn every_finding_code_is_documented() {
    let page = std::fs::read_to_string(root_folder().join("docs/findings.md")).expect("docs/findings.md");
    for (_, code, meaning) in busbw_model::Code::ALL {
        assert!(page.contains(&format!("| `{code}` | {meaning} |")), "{code}");
    }
}

#[test]
fn every_code_has_a_page() {
    for (_, code, _) in busbw_model::Code::ALL {
        assert!(explain(&["--code", code]).printed().contains(code), "{code}");
    }
    explain(&["--code", "gdr.off"]).refused("gdr.disabled");
}

/// What was told of the machines is neither asked for again nor assumed.
#[test]
fn what_is_told_is_not_asked_for() {
    let explain = |flags: &str| typed(&format!("explain --width 300 {flags}")).stdout;
    const TOO_FAST: &str = "tests/data/logs/016-eks-p4d-283-16rank-md.md";
    for (told, asks) in [
        ("--gpus 8xT4", "Which machines are these? Tell with --nics 8x400G, or --cluster"),
        ("--gpus 8xT4 --nics 1x10G", "Which machines are these? Describe them with --cluster"),
    ] {
        let answer = explain(&format!("{told} {TOO_FAST}"));
        assert!(answer.contains(asks), "{told}: {answer}");
    }
    const RINGS: &str = "tests/data/runs/h20-2x8-roce-cross-switch/run.log";
    for (told, assumed) in [("400G", true), ("4x400G", false)] {
        let answer = explain(&format!("--nics {told} -v {RINGS}"));
        assert_eq!(answer.contains("4 NICs per host, because its rings"), assumed, "{told}: {answer}");
    }
}
