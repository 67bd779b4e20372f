//! Predictions and simulations as text, JSON and pages.

use crate::common;

use busbw_model::{Collective, GBps};
use busbw_predict::Cluster;
use busbw_predict::cluster::GpuLinks;
use busbw_report::text::Style;
use busbw_report::{Comparison, Scenario, html, json, text};
use common::fabrics::*;
use common::{field_diagnosis, field_run, schema_errors, unbalanced};
use serde_json::Value;

const PREDICT: &str = include_str!("../../../../../docs/schema/predict-1.schema.json");
const SIMULATE: &str = include_str!("../../../../../docs/schema/simulate-1.schema.json");

fn alone(base: Scenario) -> Comparison {
    Comparison { base, alternatives: Vec::new() }
}

fn written(write: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_prediction_as_text() {
    insta::assert_snapshot!(text::predict(&field_report(), &prediction(Collective::AllReduce, 16), &Style::default()));
}

#[test]
fn counts_reductions_and_roots_are_those_of_nccl_tests() {
    let row = |collective| {
        let shown = text::predict(&field_report(), &prediction(collective, 16), &Style::default());
        shown.lines().rev().nth(1).unwrap().split_whitespace().take(5).collect::<Vec<_>>().join(" ")
    };
    let cases = [
        (Collective::AllReduce, "8589934592 2147483648 float sum -1"),
        (Collective::ReduceScatter, "8589934592 134217728 float sum -1"),
        (Collective::AllGather, "8589934592 134217728 float none -1"),
        (Collective::AllToAll, "8589934592 134217728 float none -1"),
        (Collective::SendRecv, "8589934592 2147483648 float none -1"),
        (Collective::Broadcast, "8589934592 2147483648 float none 0"),
        (Collective::Reduce, "8589934592 2147483648 float sum 0"),
        (Collective::Gather, "8589934592 134217728 float none 0"),
    ];
    for (collective, cells) in cases {
        assert_eq!(row(collective), cells, "{collective}");
    }
}

#[test]
fn a_prediction_as_json() {
    for collective in Collective::ALL {
        let mut prediction = prediction(collective, 16);
        prediction.rows[0].limit = GBps(f64::INFINITY);
        let document = written(|out| json::write(&prediction, out));
        assert_eq!(schema_errors(PREDICT, &document), Vec::<String>::new(), "{collective}");
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["rows"].as_array().unwrap().len(), prediction.rows.len());
        assert_eq!(document["rows"][0]["limit_busbw_gbs"], Value::Null);
    }
}

#[test]
fn a_simulation_as_text() {
    insta::assert_snapshot!(text::simulate(
        &field_comparison(),
        &Style { color: false, width: 100, ..Style::default() }
    ));
}

#[test]
fn a_simulation_as_json() {
    let document = written(|out| json::write_simulate(&field_comparison(), out));
    assert_eq!(schema_errors(SIMULATE, &document), Vec::<String>::new());
    let document: Value = serde_json::from_str(&document).unwrap();
    let (base, rails) = (&document["base"], &document["alternatives"][0]);
    assert_eq!(base["busbw_gbs_per_seed"].as_array().unwrap().len(), 200);
    assert_eq!(rails["name"], "rail-optimised");
    assert_eq!(rails["gain"]["p50"]["from_busbw_gbs"], base["busbw_gbs"]["p50"]);
    assert_eq!(rails["gain"]["p50"]["to_busbw_gbs"], rails["busbw_gbs"]["p50"]);
}

#[test]
fn pages_are_whole_and_self_contained() {
    let comparisons = [
        field_comparison(),
        alone(scenario("leaf and spine", leaf_spine(8, false))),
        alone(scenario("three levels", leaf_spine(12, true))),
        alone(scenario("rails with spines", rail_optimised(8, 3))),
        alone(scenario("large", leaf_spine(64, false))),
        alone(scenario("listed", listed())),
    ];
    let mut pages: Vec<String> = comparisons.iter().map(|comparison| html::simulate(comparison).to_string()).collect();
    pages.push(html::predict(&field_report(), &prediction(Collective::AllReduce, 16)).to_string());
    for page in pages {
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(unbalanced(&page), Vec::<String>::new());
        for outside in ["http://", "https://", "src=", "href=", "@import", "<script", "url(", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""));
    }
}

/// Hosts, switches and links that a page draws.
fn drawn(cluster: Cluster) -> [usize; 3] {
    let page = html::simulate(&alone(scenario("as described", cluster))).to_string();
    ["class=\"host\"", "class=\"switch\"", "class=\"link"].map(|part| page.matches(part).count())
}

#[test]
fn small_fabrics_are_drawn_with_every_switch_and_large_ones_are_not() {
    let cases = [
        ("a switch per node", field_report(), [2, 2, 8 + 4]),
        ("rails that never meet", rail_optimised(2, 0), [2, 4, 8]),
        ("two groups of rails", rail_optimised(4, 3), [4, 8 + 3, 16 + 24 * 2]),
        ("leaf and spine", leaf_spine(4, false), [4, 2 + 2, 16 + 4 * 2]),
        ("cores", leaf_spine(8, true), [8, 4 + 4 + 2, 32 + 8 * 2 + 8 * 2]),
        ("a list", listed(), [2, 3, 8 + 2]),
        ("too many hosts", leaf_spine(64, false), [0, 0, 0]),
    ];
    for (name, cluster, parts) in cases {
        assert_eq!(drawn(cluster), parts, "{name}");
    }
}

#[test]
fn loaded_links_of_the_picture_are_those_of_the_list() {
    let comparison = alone(scenario("as described", field_report()));
    let page = html::simulate(&comparison).to_string();
    let loaded = page.matches("class=\"link deciding\"").count() + page.matches("class=\"link used\"").count();
    assert_eq!(loaded, 4, "each of the four links between the switches");
    let slowest = &comparison.base.simulation.links[0];
    assert!(page.contains(&format!("{}: {:.2} flows", slowest.name, slowest.flows_mean)), "{}", slowest.name);
}

#[test]
fn names_of_a_description_stay_text() {
    let mut cluster = listed();
    cluster.gpu.name = "<script>\x1b[31m\u{202e}".into();
    cluster.environment.insert("NCCL_X\x07".into(), "<script>\n# Avg bus bandwidth : 9".into());
    cluster.assumptions.push("line one\n8 2 float sum -1 1 1 1\x1b[2J <script>".into());
    let mut expected = prediction(Collective::AllReduce, 16);
    expected.assumptions = cluster.assumptions.clone();
    expected.rows[0].bottleneck = "two\nlines \x1b[31m<script>".into();
    let simulated = alone(scenario("<script>\x07", cluster.clone()));
    for page in [html::simulate(&simulated).to_string(), html::predict(&cluster, &expected).to_string()] {
        assert!(!page.contains("<script") && !page.contains(['\x1b', '\x07', '\u{202e}']));
    }
    let table = text::predict(&cluster, &expected, &Style::default());
    for shown in [&table, &text::simulate(&simulated, &Style::default())] {
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{shown}");
    }
    let rows = table.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(rows, expected.rows.len(), "only rows are no comments:\n{table}");
}

#[test]
fn the_page_of_a_run_shows_which_links_of_its_fabric_hold_it_back() {
    let scenario = scenario("as described", field_report());
    let page = |loads| {
        let context = html::Context { cluster: Some(scenario.cluster.clone()), loads, ..html::Context::default() };
        html::explain(&field_run(), &field_diagnosis(), &context).to_string()
    };
    let (loaded, wired) = (page(scenario.simulation.links.clone()), page(Vec::new()));
    assert!(loaded.contains("class=\"link deciding\"") && loaded.contains("holds the run back"));
    assert!(wired.contains("class=\"link\"") && !wired.contains("class=\"link deciding\""));
}

#[test]
fn a_cluster_is_said_in_the_words_of_its_parts() {
    let mut cluster = field_report();
    let said = |cluster: &Cluster| text::predict(cluster, &prediction(Collective::AllReduce, 16), &Style::default());
    cluster.links = GpuLinks::Pcie { per_gpu: GBps(12.5), peer_to_peer: false };
    let nics = cluster.nics.as_mut().unwrap();
    (nics.count, nics.flow_limit, nics.gpu_direct) = (1, Some(GBps(1.25)), false);
    let shown = said(&cluster).replace("\n#   ", " ");
    for words in [
        "PCIe through host memory, 12.5 GB/s per GPU",
        "1 RoCE NIC of 400 Gbit/s per node, at most 1.25 GB/s per flow, without GPUDirect RDMA",
        "a switch per node, 4 links of 50 GB/s between each two, a hash per flow",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    cluster.nodes = 1;
    assert!(!said(&cluster).contains("NIC of") && said(&cluster).contains("1 node × 8 NVIDIA H20"));
}
