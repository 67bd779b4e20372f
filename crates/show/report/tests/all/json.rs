//! The JSON: its look, its schema, its size.

use crate::common;

use busbw_model::*;
use busbw_report::json;
use common::*;
use serde_json::Value;
use std::io;

const SCHEMA: &str = include_str!("../../../../../docs/schema/explain-1.schema.json");

fn cases() -> Vec<(&'static str, Run, Diagnosis)> {
    let (failed_run, failed_diagnosis) = failed();
    vec![
        ("nothing", Run::default(), diagnosis(Verdict::Inconclusive, "nothing readable")),
        ("field report", field_run(), field_diagnosis()),
        ("expected by size", field_run(), expecting()),
        ("whole log", full_run(), field_diagnosis()),
        ("failed", failed_run, failed_diagnosis),
        ("many nodes", large_run(128, 8, 4), diagnosis(Verdict::Healthy, "fine")),
        ("many tables", sweep(56), diagnosis(Verdict::Healthy, "fine")),
        ("other tools", other_tools(), diagnosis(Verdict::Failed, "a rank is behind")),
        ("a fleet", Run::default(), fleet()),
        ("not finite", not_finite(), diagnosis(Verdict::Inconclusive, "no number")),
    ]
}

/// One thing of each tool beside NCCL's log and nccl-tests.
fn other_tools() -> Run {
    let line = |number, text: &str| SourceLine::new(Place { input: 0, line: number }, text);
    let work =
        |op: &str, numel| TorchWork { sequence: 12, op: op.into(), numel_in: Some(numel), ..TorchWork::default() };
    let share = RasShare { value: 118, count: 1, ranks: vec![2], source: line(2, "Rank 2 has launched") };
    let communicator = RasCommunicator {
        hash: "ae94".into(),
        size: Some(4),
        status: vec![RasShare { value: RasStatus::Abort, count: 1, ranks: vec![2], source: line(2, "Rank 2") }],
        launched: vec![RasLaunched { operation: "AllReduce".into(), shares: vec![share] }],
        ..RasCommunicator::default()
    };
    let lost = RasProcess { pid: 7, host: "10.0.0.1".into(), dead: true, source: line(3, "Process 7") };
    let standing =
        RankStanding { stuck_in: Some(work("ALLREDUCE", 4)), state: Some(WorkState::Started), ..Default::default() };
    let mismatch = CollectiveMismatch {
        sequence: 12,
        kind: MismatchKind::Size,
        variants: vec![(work("ALLREDUCE", 4), vec![0, 1]), (work("ALLREDUCE", 8), vec![2])],
        sources: vec![],
        unusual: vec![],
    };
    let spread = Spread { min: GBps(1.0), ..Spread::default() };
    let row = InspectorRow {
        size: Bytes(1024),
        count: 3,
        time: Spread::default(),
        algbw: spread,
        busbw: spread,
        ranks: vec![],
        timing_sources: vec![],
        source: line(5, "{}"),
    };
    let diag = DiagLine {
        host: None,
        pid: None,
        tag: DiagTag::Info,
        check: "p2p".into(),
        text: "only 52/56".into(),
        communicator: None,
        source: line(6, "NCCL DIAG [INFO] p2p: only 52/56"),
        count: 1,
    };
    let told =
        FactLine { device: "mlx5_0/1".into(), item: "port state", command: "ibstat", source: line(7, "State: Down") };
    let machine = NodeFacts { host: "node1".into(), partial: true, lines: vec![told], ..NodeFacts::default() };
    Run {
        ras_reports: vec![RasReport {
            lost_processes: vec![lost],
            communicators: vec![communicator],
            ..Default::default()
        }],
        process_groups: vec![ProcessGroup {
            ranks: [(0, standing)].into(),
            mismatches: vec![mismatch],
            ..Default::default()
        }],
        inspector_runs: vec![InspectorRun { operation: "AllReduce".into(), rows: vec![row], ..Default::default() }],
        diagnostics: vec![diag],
        machines: vec![machine],
        ..field_run()
    }
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

#[test]
fn every_document_follows_the_schema_and_holds_nothing_that_the_schema_does_not_describe() {
    for (name, run, diagnosis) in cases() {
        assert_eq!(schema_errors(SCHEMA, &json::explain(&run, &diagnosis)), Vec::<String>::new(), "{name}");
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
fn what_other_tools_tell_is_there_only_if_they_tell_it() {
    let evidence = &parsed(&other_tools(), &field_diagnosis())["evidence"];
    assert_eq!(evidence["ras"][0]["clean"], Value::Bool(false));
    assert_eq!(evidence["ras"][0]["communicators"][0]["launched"][0]["shares"][0]["ranks"], serde_json::json!([2]));
    assert_eq!(evidence["process_groups"][0]["mismatches"][0]["variants"][1]["numel_in"], 8);
    assert_eq!(evidence["inspector"][0]["rows"][0]["busbw_gbs"]["min"], 1.0);
    assert_eq!(evidence["host_facts"][0]["command"], "ibstat");
    assert_eq!(parsed(&field_run(), &field_diagnosis()).get("evidence"), None);
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
