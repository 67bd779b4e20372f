//! What tables say without a log: wrong data, and sizes that are too small to judge.

use super::found;
use crate::case::Case;
use busbw_model::{BenchRow, BenchTable, Check, Evidence, Finding};
use busbw_predict::cluster::joined_by_nvlink;
use std::fmt::Display;

/// nccl-tests counted wrong elements.
pub fn wrong_data(case: &Case) -> Vec<Finding> {
    let wrong = |table: &&BenchTable| table.total_wrong() > 0 || table.out_of_bounds.as_ref().is_some_and(|o| !o.ok);
    let Some(table) = case.run.tables.iter().find(wrong) else { return Vec::new() };
    let rows: Vec<&BenchRow> = table.rows.iter().filter(|row| is_wrong(row)).collect();
    let mut evidence: Vec<Evidence> =
        rows.iter().take(3).map(|row| Evidence::noted(row.source.clone(), "wrong elements")).collect();
    evidence.extend(table.out_of_bounds.iter().filter(|o| !o.ok).map(|o| Evidence::new(o.source.clone())));
    let sizes = match rows.len() {
        0 => String::new(), // old tables show a largest error for each size, no count
        wrong => format!(" in {wrong} of {} sizes", table.rows.len()),
    };
    vec![found(cause(case, table, &rows), &[("sizes", &sizes)], evidence)]
}

fn cause(case: &Case, table: &BenchTable, rows: &[&BenchRow]) -> &'static str {
    let all = !rows.is_empty() && rows.len() == table.rows.len() && rows.iter().all(|row| is_all_wrong(row));
    let forced = case.run.nccl.env_value("NCCL_PROTO").is_some_and(|proto| proto.value.contains("LL128"));
    let one_host = table.hosts().len() == 1;
    let nvlink = table.devices.iter().any(|device| joined_by_nvlink(&device.name)) || case.has_nvlink();
    match (forced, all, one_host && !nvlink) {
        (true, ..) => "results.ll128",
        (_, true, true) => "results.copies",
        (_, true, _) => "results.all-wrong",
        _ => "results.some-wrong",
    }
}

fn is_wrong(row: &BenchRow) -> bool {
    row.halves().any(|m| matches!(m.check, Check::Wrong(count) if count > 0))
}

fn is_all_wrong(row: &BenchRow) -> bool {
    let all = |count: u64| row.count.is_some_and(|elements| count as f64 > 0.99 * elements as f64);
    row.halves().filter_map(|m| m.check.wrong()).filter(|count| *count > 0).all(all)
}

/// Rows whose figures cannot all be right: nothing is judged from them.
pub fn contradicting(case: &Case) -> Vec<Finding> {
    let rows = case.run.tables.iter().flat_map(|table| table.rows.iter().zip(table.contradictions()));
    let against: Vec<_> = rows.filter_map(|(row, found)| Some((row, found?))).collect();
    let Some((first, contradiction)) = against.first() else { return Vec::new() };
    let all: usize = case.run.tables.iter().map(|table| table.rows.len()).sum();
    let words: [(&str, &dyn Display); 4] =
        [("rows", &against.len()), ("all", &all), ("size", &first.size), ("how", contradiction)];
    let shown = against.iter().take(3);
    let evidence = shown.map(|(row, found)| Evidence::noted(row.source.clone(), found.to_string())).collect();
    vec![found("table.contradicts", &words, evidence)]
}

/// The average is below the minimum that the user set for it: nccl-tests says FAILED.
pub fn below_minimum(case: &Case) -> Vec<Finding> {
    let failed = |table: &'_ BenchTable| Some((table.hosts().len(), table.avg_busbw()?, table.below_minimum.clone()?));
    let Some((hosts, average, line)) = case.run.tables.iter().find_map(failed) else { return Vec::new() };
    let id = if hosts > 1 { "results.minimum-between" } else { "results.minimum" };
    vec![found(id, &[("average", &average)], vec![Evidence::noted(line, "below NCCL_TESTS_MIN_BW")])]
}

/// Tables that stop before bandwidth begins.
pub fn too_small(case: &Case) -> Vec<Finding> {
    let small = case.tests.iter().filter(|test| !test.curve.shows_bandwidth()).max_by_key(|test| test.curve.largest);
    let Some(test) = small.filter(|_| case.tests.iter().all(|t| !t.curve.shows_bandwidth())) else { return Vec::new() };
    let evidence = vec![Evidence::noted(test.curve.peak_row.source.clone(), "the largest busbw")];
    vec![found("results.small", &[("largest", &test.curve.largest)], evidence)]
}
