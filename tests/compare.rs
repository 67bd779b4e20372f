//! `busbw compare` from end to end: the second field report, repetitions, saved results, and what is not comparable.

use crate::support::command::{self, BUSBW};
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use crate::support::terminal::OnTerminal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const IB: &str = "tests/data/runs/h20-2x8-ib";
const TCP: &str = "tests/data/runs/h20-2x8-tcp";

fn busbw(arguments: &[&str]) -> Ended {
    command::busbw(&root_folder(), arguments, None)
}

fn text(arguments: &[&str]) -> String {
    busbw(&[&["compare"], arguments].concat()).printed().to_owned()
}

fn json(arguments: &[&str]) -> Value {
    busbw(&[&["compare", "--json"], arguments].concat()).json()
}

#[test]
fn the_second_field_report_used_rdma_and_was_53_times_faster() {
    let answer = json(&[IB, TCP]);
    let rows = answer["rows"].as_array().unwrap();
    let last = rows.last().unwrap();
    assert_eq!((rows.len(), last["size_bytes"].as_u64()), (31, Some(8 << 30)));
    assert_eq!(last["busbw_gbs"], serde_json::json!([479.91, 9.04]));
    assert_eq!(last["ratio"].as_f64().unwrap().round(), 53.0);
    let small = &answer["contests"][0]["small"];
    assert_eq!(small["up_to_bytes"], 64 << 10);
    let ratio: Vec<String> =
        small["time_ratio"].as_array().unwrap().iter().map(|r| format!("{:.1}", r.as_f64().unwrap())).collect();
    assert_eq!(ratio, ["2.1", "5.4"]);
    assert_eq!((&answer["runs"][0]["network"], &answer["runs"][1]["network"]), (&"rdma".into(), &"sockets".into()));
    let differences = answer["differences"].as_array().unwrap();
    assert!(differences.iter().any(|d| d["name"] == "NCCL_IB_DISABLE" && d["values"] == serde_json::json!(["0", "1"])));
}

#[test]
fn text_and_page_say_it_in_words() {
    let says = ["used RDMA", "53× faster at 8 GiB", "2.1× to 5.4×", "NCCL_IB_DISABLE"];
    for format in ["text", "html"] {
        let shown = text(&["--format", format, IB, TCP]);
        for said in says {
            assert!(shown.contains(said), "{format} says nothing of {said}:\n{shown}");
        }
    }
    assert!(!text(&["--format", "html", IB, TCP]).contains("<script"));
}

#[test]
fn a_screen_has_the_answer_once() {
    let mut command = Command::new(BUSBW);
    command.current_dir(root_folder().join("tests/data/runs"));
    command.args(["compare", "--color", "never", "h20-2x8-ib/run.log", "h20-2x8-tcp/run.log"]);
    let shown = OnTerminal::sized(command, 24, 80).whole();
    assert!(shown.lines().count() <= 22 && shown.matches("used RDMA and").count() == 1, "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn the_order_of_runs_turns_the_ratio_around() {
    let (one, other) = (json(&[IB, TCP]), json(&[TCP, IB]));
    let ratio = |answer: &Value| answer["rows"][30]["ratio"].as_f64().unwrap();
    assert!((ratio(&one) * ratio(&other) - 1.0).abs() < 1e-9);
    assert!(one["summary"].as_str().unwrap().contains("h20-2x8-ib is 53× faster"));
    assert!(other["summary"].as_str().unwrap().contains("h20-2x8-ib is 53× faster"));
}

/// A table of one size per repetition, times in us.
fn table(collective: &str, ranks: u32, times: &[f64]) -> String {
    let mut table = format!("# Collective test starting: {collective}_perf\n# Using devices\n");
    for rank in 0..ranks {
        table += &format!(
            "#  Rank  {rank} Group  0 Pid  {} on host1 device  {rank} [0000:0{rank}:00] NVIDIA H20\n",
            100 + rank
        );
    }
    table += "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n";
    for time in times {
        let algbw = 1048576.0 / time / 1e3;
        let busbw = algbw * 2.0 * f64::from(ranks - 1) / f64::from(ranks);
        let half = format!("{time:.2} {algbw:.2} {busbw:.2} 0");
        table += &format!("     1048576        262144     float     sum      -1  {half}  {half}\n");
    }
    table
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder can be written");
    path.display().to_string()
}

#[test]
fn repetitions_give_intervals_and_a_test() {
    let folder = tempfile::tempdir().unwrap();
    let near = written(folder.path(), "near.log", &table("all_reduce", 4, &[100.0, 130.0, 90.0]));
    let noisy = written(folder.path(), "noisy.log", &table("all_reduce", 4, &[110.0, 100.0, 140.0]));
    let slow = written(folder.path(), "slow.log", &table("all_reduce", 4, &[200.0, 201.0, 202.0]));
    let answer = json(&[&near, &noisy, &slow]);
    assert!(answer["method"].as_str().unwrap().contains("Welch's t-test"));
    assert_eq!(answer["rows"][0]["repetitions"], serde_json::json!([3, 3, 3]));
    assert!(answer["rows"][0]["ci95_gbs"][0].as_f64().unwrap() > 0.0);
    let faster = |contest: usize| answer["contests"][contest]["ranges"][0]["faster"].as_str().unwrap().to_string();
    assert_eq!((faster(0).as_str(), faster(1).as_str()), ("neither", "first"));
}

/// What `busbw bench` itself repeats, text and JSON: every repetition is a measurement.
#[test]
fn repetitions_of_busbw_bench_give_intervals_and_a_test() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |name: &str, repeat: &str| {
        let file = folder.path().join(name).display().to_string();
        let sweep =
            ["bench", "all_reduce", "--np", "2", "-b", "1K", "-e", "4K", "-f", "2", "-n", "5", "--repeat", repeat];
        let swept = busbw(&[&sweep[..], &["--json", &file]].concat());
        (file, written(folder.path(), &format!("{name}.log"), swept.printed()))
    };
    let ((three, three_as_text), (four, _)) = (bench("three.json", "3"), bench("four.json", "4"));
    for first in [three, three_as_text] {
        let answer = json(&[&first, &four]);
        assert!(answer["method"].as_str().unwrap().starts_with("Welch's t-test"), "{answer}");
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row["repetitions"], serde_json::json!([3, 4]), "{row}");
            assert!(row["ci95_gbs"].as_array().unwrap().iter().all(Value::is_number), "{row}");
        }
        let shown = text(&[&first, &four]);
        assert!(shown.contains("±") && shown.contains("Welch's t-test"), "{shown}");
    }
}

/// Rows of one size that differ in their datatype are no repetitions, whatever their times say.
#[test]
fn rows_of_several_datatypes_are_no_repetitions() {
    let folder = tempfile::tempdir().unwrap();
    let one = table("all_reduce", 4, &[100.0, 130.0]);
    let mixed = written(folder.path(), "mixed.log", &one.replacen("float", "half", 1));
    let one = written(folder.path(), "one.log", &one);
    busbw(&["compare", &one, &mixed]).refused("measured 1 MiB with several datatypes (-d)");
}

#[test]
fn what_doctor_saved_is_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.json").display().to_string();
    busbw(&["explain", "--json", "-o", &saved, &format!("{TCP}/run.log")]);
    let answer = json(&[&format!("{IB}/run.log"), &saved]);
    assert_eq!(answer["rows"][30]["busbw_gbs"], serde_json::json!([479.91, 9.04]));
    assert_eq!(answer["runs"][1]["network"], "sockets");
}

#[test]
fn what_is_not_comparable_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let reduce4 = written(folder.path(), "reduce4.log", &table("all_reduce", 4, &[100.0]));
    let reduce8 = written(folder.path(), "reduce8.log", &table("all_reduce", 8, &[100.0]));
    let gather = written(folder.path(), "gather.log", &table("all_gather", 4, &[100.0]));
    let nothing = written(folder.path(), "nothing.log", "hello\n");
    let empty = written(folder.path(), "empty.log", "");
    let broken = written(folder.path(), "broken.json", "{\"schema\": \"busbw.explain/1\", \"tables\": [");
    let cases: [(&[&str], &str); 7] = [
        (&[&reduce4, &gather], "measured all_reduce and"),
        (&[&reduce4, &reduce8], "has 4 ranks and"),
        (&[&reduce4, &nothing], "no table"),
        (&[&reduce4, "/no/such.log"], "no such file"),
        (&[&reduce4, &broken], "no whole result"),
        (&[&reduce4, &empty], "is empty"),
        (&[&reduce4], "2 values"),
    ];
    for (arguments, says) in cases {
        busbw(&[&["compare"], arguments].concat()).refused(says);
    }
    let forced = json(&["--anyway", &reduce4, &reduce8]);
    assert!(forced["differences"].as_array().unwrap().iter().any(|d| d["name"] == "ranks"));
}

/// The log of a run at 1 MiB, with these variables.
fn run_with(folder: &Path, name: &str, variables: &[(&str, &str)], times: &[f64]) -> String {
    let set =
        |(name, value): &(&str, &str)| format!("host1:100:100 [0] NCCL INFO {name} set by environment to {value}\n");
    let log: String = variables.iter().map(set).collect();
    written(folder, name, &(log + &table("all_reduce", 4, times)))
}

#[test]
fn a_tuning_table_has_what_another_algorithm_gains_for_sure() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, variables: &[(&str, &str)], times: &[f64]| run_with(folder.path(), name, variables, times);
    let ring = [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL")];
    let default = run("default.log", &[], &[100.0, 101.0, 99.0]);
    let faster = run("ring.log", &ring, &[80.0, 81.0, 79.0]);
    let noisy = run("noisy.log", &ring, &[60.0, 99.0, 80.0]);
    let found = |first: &str, other: &str| {
        let file = folder.path().join("tuning.toml").display().to_string();
        let ended = busbw(&["compare", first, other, "--tuning-table", &file]);
        if ended.status.success() { std::fs::read_to_string(file).unwrap() } else { ended.stderr }
    };
    let table = found(&default, &faster);
    for part in [
        "from = 1048576\nto = 1048576\n",
        "ranks = 4\nnodes = 1\n",
        "algorithm = \"Ring\"",
        "protocol = \"LL\"",
        "gain_percent = [1",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!found(&default, &noisy).contains("[[choice]]"));
    let mixed = run("mixed.log", &[&ring[..], &[("NCCL_BUFFSIZE", "8388608")]].concat(), &[80.0, 81.0, 79.0]);
    let silent = run("silent.log", &[], &[80.0, 81.0, 79.0]);
    let refused = [
        (&faster, &default, "runs with NCCL_ALGO=Ring NCCL_PROTO=LL"),
        (&default, &mixed, "in NCCL_BUFFSIZE too"),
        (&default, &silent, "nothing in it says by which algorithm it ran"),
    ];
    for (first, other, why) in refused {
        assert!(found(first, other).contains(why), "{why}: {}", found(first, other));
    }
}
