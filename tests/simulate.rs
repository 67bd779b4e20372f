//! `busbw simulate` from end to end: the first field report as it was wired and as it could be, and bad input.

use crate::support::command::busbw;
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use serde_json::Value;

fn simulate(arguments: &[&str]) -> Ended {
    busbw(&root_folder(), &[&["simulate"], arguments].concat(), None)
}

fn text(arguments: &[&str]) -> String {
    simulate(arguments).printed().to_owned()
}

fn json(arguments: &[&str]) -> Value {
    simulate(&[&["--json"], arguments].concat()).json()
}

const FIELD_REPORT: &str = "examples/clusters/h20x8.toml";
const ITS_LOG: &str = "tests/data/runs/h20-2x8-roce-cross-switch/run.log";

#[test]
fn the_field_report_with_its_rings_and_its_cure() {
    let flags = [FIELD_REPORT, "--log", ITS_LOG, "--what-if", "rail-optimised"];
    let answer = json(&flags);
    let busbw = |of: &Value, which: &str| of["busbw_gbs"][which].as_f64().unwrap();
    let (base, rails) = (&answer["base"], &answer["alternatives"][0]);
    // What one 400G link carries when all four flows of a direction fell on it: 48.2 GB/s was measured.
    assert!((busbw(base, "min") / 48.2 - 1.0).abs() < 0.02, "{base}");
    // The report's 195 GB/s within 5%.
    assert!((busbw(rails, "p50") / 195.0 - 1.0).abs() < 0.05, "{rails}");
    let gain = &rails["gain"]["p50"];
    assert_eq!(gain["factor"].as_f64().unwrap(), busbw(rails, "p50") / busbw(base, "p50"));
    assert!(base["links"][0]["name"].as_str().unwrap().contains("switch of node"));
}

#[test]
fn alternatives_stand_side_by_side_in_the_order_asked_for() {
    let answer = json(&[FIELD_REPORT, "--what-if", "adaptive-routing", "--what-if", "links=8", "--seeds", "50"]);
    let names: Vec<&str> =
        answer["alternatives"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["adaptive-routing", "links=8"]);
    assert_eq!(answer["seeds"], 50);
    assert_eq!(answer["base"]["busbw_gbs_per_seed"].as_array().unwrap().len(), 50);
}

#[test]
fn text_and_page_say_the_gain() {
    let flags = [FIELD_REPORT, "--what-if", "rail-optimised"];
    let shown = text(&flags);
    assert!(shown.contains("rail-optimised") && shown.contains("×; p5"), "{shown}");
    let page = text(&[&flags[..], &["--format", "html"]].concat());
    assert!(page.contains("<svg class=\"fabric\"") && page.contains("<svg class=\"histogram\""));
}

#[test]
fn a_load_names_where_senders_meet() {
    let [even, hot] = ["W0", "W2"].map(|load| json(&[FIELD_REPORT, "--load", load]));
    assert_eq!(hot["base"]["busiest"]["rank"]["rank"], 0, "{hot:#}");
    let busbw = |of: &Value| of["base"]["busbw_gbs"]["p50"].as_f64().unwrap();
    assert!(busbw(&even) > 1.5 * busbw(&hot), "{even:#} {hot:#}");
    let shown = text(&[FIELD_REPORT, "--load", "W2"]);
    assert!(shown.contains("Load W2: busiest are rank 0, which receives 3.25 times an even share"), "{shown}");
}

#[test]
fn the_same_seeds_give_the_same_answer() {
    assert_eq!(json(&[FIELD_REPORT]), json(&[FIELD_REPORT]));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&["/no/such.toml"], "/no/such.toml: no such file"),
        (&[FIELD_REPORT, "--what-if", "single-switch", "--what-if", "routing=magic"], "is no change that busbw knows"),
        (&[FIELD_REPORT, "--what-if", "spines=4"], "--what-if spines=4 does not apply"),
        (&[FIELD_REPORT, "--log", "tests/data/runs/sccgn/rdma_monitor.txt"], "no rings"),
        (&[FIELD_REPORT, "--seeds", "0"], "a number from 1"),
        (&["examples/clusters/v100x8.toml", "--log", ITS_LOG], "has 16 ranks and the cluster 32 GPUs"),
    ];
    for (flags, says) in cases {
        simulate(flags).refused(says);
    }
}
