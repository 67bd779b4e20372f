//! The JSON: its look, its schema, its size.

#![allow(clippy::unwrap_used)]

mod common;

use busbw_model::{Diagnosis, GBps, Run, Verdict};
use busbw_report::json;
use common::*;
use serde_json::Value;
use std::io;

const SCHEMA: &str = include_str!("../../../docs/schema/explain-1.schema.json");

fn cases() -> Vec<(&'static str, Run, Diagnosis)> {
    let (failed_run, failed_diagnosis) = failed();
    vec![
        ("nothing", Run::default(), diagnosis(Verdict::Inconclusive, "nothing readable")),
        ("field report", field_run(), field_diagnosis()),
        ("whole log", full_run(), field_diagnosis()),
        ("failed", failed_run, failed_diagnosis),
        ("many nodes", large_run(128, 8, 4), diagnosis(Verdict::Healthy, "fine")),
        ("many tables", sweep(56), diagnosis(Verdict::Healthy, "fine")),
        ("not finite", not_finite(), diagnosis(Verdict::Inconclusive, "no number")),
    ]
}

/// A table whose fourth row has a busbw that is no number and statistics of iterations.
fn not_finite() -> Run {
    let mut run = field_run();
    let half = run.tables[0].rows[3].out_of_place.as_mut().unwrap();
    half.busbw = GBps(f64::NAN);
    half.time.0 = f64::INFINITY;
    let us = busbw_model::Micros;
    half.iterations = Some(busbw_model::IterationStats { min: us(1.0), max: us(2.0), p99: us(1.9), cv_pct: 3.5 });
    run
}

fn parsed(run: &Run, diagnosis: &Diagnosis) -> Value {
    serde_json::from_str(&json::explain(run, diagnosis)).unwrap()
}

/// Forbids properties that the schema does not describe. Readers must bear them; our own tests must not.
fn forbid_undescribed(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.contains_key("properties") && !map.contains_key("additionalProperties") {
                map.insert("additionalProperties".into(), Value::Bool(false));
            }
            map.values_mut().for_each(forbid_undescribed);
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_undescribed),
        _ => {}
    }
}

#[test]
fn every_document_follows_the_schema_and_holds_nothing_that_the_schema_does_not_describe() {
    let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    forbid_undescribed(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, run, diagnosis) in cases() {
        let document = parsed(&run, &diagnosis);
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn the_first_field_report_as_json() {
    insta::assert_snapshot!(json::explain(&field_run(), &field_diagnosis()));
}

#[test]
fn a_whole_log_adds_version_environment_transports_and_trees() {
    let document = parsed(&full_run(), &field_diagnosis());
    assert_eq!(document["nccl"], serde_json::json!({"version": "2.27.7+cuda12.4", "cuda": "12.4", "library": "nccl"}));
    let environment = serde_json::json!({"NCCL_ALGO": "ring", "NCCL_IB_HCA": "mlx5_0,mlx5_2,mlx5_3,mlx5_4"});
    assert_eq!(document["environment"], environment);
    assert_eq!(document["launch_environment"], serde_json::json!({"NCCL_DEBUG": "INFO"}));
    let comm = &document["communicators"][0];
    assert_eq!(comm["transports"], serde_json::json!(["NET/IB", "P2P"]));
    assert_eq!(comm["transports_printed"], serde_json::json!(["NET/IB"]));
    assert_eq!(comm["p2p_kinds"], serde_json::json!(["CUMEM"]));
    assert_eq!(comm["gdr"], Value::Bool(true));
    assert_eq!(comm["channels"][0]["tree"][1], serde_json::json!({"rank": 1, "up": 0, "down": [2]}));
    assert_eq!(comm["channels"][1]["tree"], Value::Null);
}

#[test]
fn the_eight_crossings_of_the_field_report_are_there() {
    let document = parsed(&field_run(), &field_diagnosis());
    let crossings: Vec<(u64, u64)> = document["communicators"][0]["crossings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["from"].as_u64().unwrap(), c["to"].as_u64().unwrap()))
        .collect();
    assert_eq!(crossings, [(1, 10), (2, 8), (5, 14), (6, 12), (9, 2), (10, 0), (13, 6), (14, 4)]);
}

#[test]
fn the_version_comes_from_the_table_when_the_log_has_none() {
    let mut run = Run { tables: vec![field_table()], ..Run::default() };
    assert_eq!(parsed(&run, &field_diagnosis())["nccl"], Value::Null);
    run.tables[0].settings.nccl_version = Some("2.29.7".into());
    assert_eq!(parsed(&run, &field_diagnosis())["nccl"]["version"], "2.29.7");
}

#[test]
fn a_number_that_is_not_finite_is_null() {
    let document = parsed(&not_finite(), &field_diagnosis());
    let half = &document["tables"][0]["rows"][3]["out_of_place"];
    assert_eq!((&half["busbw_gbs"], &half["time_us"]), (&Value::Null, &Value::Null));
    assert_eq!(half["iterations"]["cv_pct"], 3.5);
}

#[test]
fn trees_of_more_than_64_ranks_are_left_out() {
    let tree =
        |nodes| parsed(&large_run(nodes, 8, 1), &field_diagnosis())["communicators"][0]["channels"][0]["tree"].clone();
    assert_eq!(tree(8).as_array().unwrap().len(), 64);
    assert_eq!(tree(9), Value::Null);
}

/// Counts and forgets, and fails when told to.
struct Counter {
    bytes: usize,
    limit: usize,
}

impl io::Write for Counter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.bytes += buffer.len();
        if self.bytes > self.limit { Err(io::ErrorKind::StorageFull.into()) } else { Ok(buffer.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn sixteen_thousand_ranks_are_written_in_a_few_megabytes() {
    let mut out = Counter { bytes: 0, limit: usize::MAX };
    json::write_explain(&large_run(2048, 8, 16), &field_diagnosis(), &mut out).unwrap();
    assert!(out.bytes > 1_000_000 && out.bytes < 16_000_000, "{}", out.bytes);
}

#[test]
fn an_error_of_the_writer_is_handed_on() {
    let mut out = Counter { bytes: 0, limit: 100 };
    let error = json::write_explain(&field_run(), &field_diagnosis(), &mut out).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
