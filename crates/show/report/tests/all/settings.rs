//! What a sweep of settings found as text, JSON and a page.

use crate::common;

use busbw_model::{Measured, Setting, TrialCount, TunedSetting, TunedStanding, TunedVariable, Tuning};
use busbw_report::text::Style;
use busbw_report::{html, json, text};
use common::{schema_errors, unbalanced};

const SCHEMA: &str = include_str!("../../../../../docs/schema/tune-1.schema.json");

/// Some of the third field report's settings, and one that failed.
fn sweep() -> Tuning {
    let setting = |threads: &str, sockets: &str, mean: Option<f64>, standing| TunedSetting {
        setting: Setting {
            assignments: [("NCCL_SOCKET_NTHREADS", threads), ("NCCL_NSOCKS_PERTHREAD", sockets)]
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        },
        rounds: if mean.is_some() { 4 } else { 0 },
        failures: usize::from(mean.is_none()) * 2,
        reason: mean.is_none().then(|| "exit status 3".into()),
        mean,
        stddev: mean.map(|_| 3.21),
        interval: mean.map(|_| 5.1078),
        behind: mean.map(|mean| (mean - 307.91) / 307.91),
        standing,
    };
    let variable = |name: &str, values: &[&str]| TunedVariable {
        name: name.into(),
        meaning: Some("threads & <sockets>".into()),
        values: values.iter().map(|value| value.to_string()).collect(),
    };
    Tuning {
        summary: "NCCL_SOCKET_NTHREADS=8 NCCL_NSOCKS_PERTHREAD=2 is best".into(),
        space: "sockets".into(),
        command: "./train.sh 'a b'".into(),
        objective: Measured { name: "wall time".into(), unit: "s".into(), higher_is_better: false },
        variables: vec![variable("NCCL_SOCKET_NTHREADS", &["8", "16"]), variable("NCCL_NSOCKS_PERTHREAD", &["2", "4"])],
        settings: vec![
            setting("8", "2", Some(307.91), TunedStanding::Best),
            setting("16", "2", Some(309.88), TunedStanding::Tied),
            setting("8", "4", Some(311.61), TunedStanding::Worse),
            setting("", "", Some(373.15), TunedStanding::Worse),
            setting("16", "4", None, TunedStanding::Failed),
        ],
        trials: TrialCount { ran: 18, failed: 2, four_full_rounds: 20 },
        method: "a test at 95% confidence".into(),
    }
}

#[test]
fn settings_as_text() {
    insta::assert_snapshot!(text::tune(&sweep(), &Style::default()));
}

#[test]
fn every_column_fits_eighty_and_the_least_is_left_out_where_it_does_not() {
    let text = text::tune(&sweep(), &Style { width: 80, ..Style::default() });
    let line = |says: &str| text.lines().find(|line| line.contains(says)).unwrap().to_owned();
    assert_eq!(line("std dev").split_whitespace().last(), Some("rounds"), "{text}");
    assert_eq!(line("307.91").split_whitespace().collect::<Vec<_>>()[5..], ["+0.0%", "5.11", "3.21", "4"], "{text}");
    let mut wide = sweep();
    wide.variables[0].name = "NCCL_ANAMEWITHOUTANYPLACETOBREAKIT".into();
    wide.variables[0].values = vec!["8".into()];
    let text = text::tune(&wide, &Style { width: 80, ..Style::default() });
    assert!(text.contains("± 95%") && !text.contains("std dev"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn settings_as_json_follow_the_schema() {
    let mut written = Vec::new();
    json::write_tune(&sweep(), &mut written).unwrap();
    let written = String::from_utf8(written).unwrap();
    assert_eq!(schema_errors(SCHEMA, &written), Vec::<String>::new());
    let document: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&document["default"]["rank"], &document["best"]["mean"]), (&4.into(), &307.91.into()));
}

#[test]
fn the_page_is_whole_and_escaped() {
    let page = html::tune(&sweep()).to_string();
    assert_eq!(unbalanced(&page), Vec::<String>::new());
    assert!(page.contains("threads &amp; &lt;sockets&gt;") && page.contains("class=\"heatmap\""));
    for says in ["307.91 s", "wall time in s, smaller is better; NCCL_SOCKET_NTHREADS down", "failed ×2: exit status 3"]
    {
        assert!(page.contains(says), "{says}");
    }
}
