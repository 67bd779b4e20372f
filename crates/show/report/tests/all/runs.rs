//! Runs side by side as text, JSON and a page.

use crate::common;

use busbw_model::{
    Bytes, Carrier, Code, Collective, ComparedCell, ComparedFinding, ComparedRow, ComparedRun, Contest, Difference,
    DifferenceKind, Faster, GBps, LargestCompared, Micros, RunComparison, SizeRange, SmallMessages,
};
use busbw_report::text::Style;
use busbw_report::{html, json, text};
use common::{schema_errors, unbalanced};

const SCHEMA: &str = include_str!("../../../../../docs/schema/compare-1.schema.json");

fn two() -> RunComparison {
    let run = |name: &str, network, repetitions| ComparedRun {
        name: name.into(),
        collective: Some(Collective::AllReduce),
        nranks: Some(16),
        repetitions,
        peak_size_bytes: Some(Bytes(8 << 30)),
        peak_busbw_gbs: Some(GBps(479.91)),
        avg_busbw_gbs: None,
        network,
        findings: vec![ComparedFinding { code: Code::NetSocketFallback, title: "looks like <sockets>".into() }],
    };
    let cell = |busbw: f64, interval| ComparedCell { busbw: GBps(busbw), time: Micros(31.5), repetitions: 3, interval };
    let row = |size: u64, a, b| ComparedRow { size: Bytes(size), cells: vec![a, b], ratios: vec![Some(2.1)] };
    RunComparison {
        summary: "a is 2.1× faster".into(),
        runs: vec![run("a", Some(Carrier::Rdma), 3), run("<b>\u{1b}[31m", None, 1)],
        rows: vec![
            row(8, Some(cell(0.01, Some(GBps(0.002)))), Some(cell(0.005, None))),
            row(8 << 30, Some(cell(479.91, Some(GBps(1.25)))), None),
        ],
        contests: vec![Contest {
            other: 1,
            ranges: vec![SizeRange { from: Bytes(8), to: Bytes(8), faster: Faster::First, ratio: (2.1, 2.1) }],
            small: Some(SmallMessages { up_to: Bytes(8), time_ratio: (1.5, 2.1) }),
            largest: Some(LargestCompared { size_bytes: Bytes(8), ratio: 2.1 }),
        }],
        differences: vec![Difference {
            kind: DifferenceKind::Variable,
            name: "NCCL_IB_DISABLE".into(),
            values: vec![Some("0".into()), None],
        }],
        method: "Differences under 5% are ignored.".into(),
    }
}

#[test]
fn runs_as_text() {
    insta::assert_snapshot!(text::compare(&two(), &Style::default()));
}

#[test]
fn runs_as_json_follow_the_schema() {
    let mut written = Vec::new();
    json::write_compare(&two(), &mut written).unwrap();
    let written = String::from_utf8(written).unwrap();
    assert_eq!(schema_errors(SCHEMA, &written), Vec::<String>::new());
    let document: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(document["rows"][1]["busbw_gbs"], serde_json::json!([479.91, null]));
    assert_eq!(document["rows"][0]["ci95_gbs"], serde_json::json!([0.002, null]));
}

#[test]
fn the_page_is_whole_and_escaped() {
    let page = html::compare(&two()).to_string();
    assert_eq!(unbalanced(&page), Vec::<String>::new());
    assert!(page.contains("&lt;b&gt;") && !page.contains("<b>\u{1b}") && !page.contains('\u{1b}'));
}
