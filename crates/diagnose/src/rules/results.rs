//! What tables say without a log: wrong data, and sizes that are too small to judge.

use crate::case::Case;
use busbw_model::{BenchRow, BenchTable, Check, Code, Evidence, Finding, Severity};

/// nccl-tests counted wrong elements.
pub fn wrong_data(case: &Case) -> Vec<Finding> {
    let wrong = |table: &&BenchTable| table.total_wrong() > 0 || table.out_of_bounds.as_ref().is_some_and(|o| !o.ok);
    let Some(table) = case.run.tables.iter().find(wrong) else { return Vec::new() };
    let rows: Vec<&BenchRow> = table.rows.iter().filter(|row| is_wrong(row)).collect();
    // When every element of every size is wrong, the check compares with the wrong values: real damage is partial.
    let check_is_broken =
        !rows.is_empty() && rows.len() == table.rows.len() && rows.iter().all(|row| is_all_wrong(row));
    let mut evidence: Vec<Evidence> =
        rows.iter().take(3).map(|row| Evidence::noted(row.source.clone(), "wrong elements")).collect();
    evidence.extend(table.out_of_bounds.iter().filter(|o| !o.ok).map(|o| Evidence::new(o.source.clone())));
    let (severity, confidence, doubt) = if check_is_broken {
        (
            Severity::Info,
            0.4,
            " Here every element of every size is wrong while times are normal: more likely the check itself compares with wrong values, as changed builds of nccl-tests do.",
        )
    } else {
        (Severity::Error, 0.95, "")
    };
    vec![Finding {
        code: Code::DataCorruption,
        severity,
        confidence,
        title: match rows.len() {
            0 => "nccl-tests found wrong results".to_string(), // old tables show a largest error for each size, no count
            wrong => format!("nccl-tests found wrong results in {wrong} of {} sizes", table.rows.len()),
        },
        explanation: format!(
            "After each size nccl-tests compares what arrived with what should have (#wrong). Wrong elements mean that data was \
             damaged on the way: LL128 forced onto links that do not keep 128-byte stores whole, a faulty GPU, NVLink or NIC, or a \
             broken transport plugin.{doubt}"
        ),
        evidence,
        remedy: vec![
            "Run without forced protocols and algorithms: `unset NCCL_PROTO NCCL_ALGO`; try the newest NCCL".into(),
            "Halve the set of GPUs until one pair remains that fails; then look at its kernel log: `dmesg | grep -iE 'xid|nvlink|mlx5'`".into(),
        ],
        expected_gain: None,
    }]
}

fn is_wrong(row: &BenchRow) -> bool {
    row.halves().any(|m| matches!(m.check, Check::Wrong(count) if count > 0))
}

fn is_all_wrong(row: &BenchRow) -> bool {
    let all = |count: u64| row.count.is_some_and(|elements| count as f64 > 0.99 * elements as f64);
    row.halves().filter_map(|m| m.check.wrong()).filter(|count| *count > 0).all(all)
}

/// Tables that stop before bandwidth begins.
pub fn too_small(case: &Case) -> Vec<Finding> {
    let small = case.tests.iter().filter(|test| !test.curve.shows_bandwidth()).max_by_key(|test| test.curve.largest);
    let Some(test) = small.filter(|_| case.tests.iter().all(|t| !t.curve.shows_bandwidth())) else { return Vec::new() };
    vec![Finding {
        code: Code::OkAsExpected,
        severity: Severity::Info,
        confidence: 0.3,
        title: format!("Sizes up to {} say nothing about bandwidth", test.curve.largest),
        explanation: "So small, a collective's time is latency: launching kernels and passing the message from rank to rank. busbw \
                      grows with the size until the links are full, from some 16 MiB on and often only at 256 MiB and more."
            .into(),
        evidence: vec![Evidence::noted(test.curve.peak_row.source.clone(), "the largest busbw")],
        remedy: vec!["Measure larger sizes: `-b 8 -e 8G -f 2`".into()],
        expected_gain: None,
    }]
}
