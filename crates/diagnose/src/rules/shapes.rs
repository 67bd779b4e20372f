//! Single sizes of a table that are out of line with their neighbours.

use super::Draft;
use crate::case::{Case, Test};
use busbw_model::{BenchRow, Bytes, Code, Evidence, Finding, Measure, Severity};

/// Below this size times are latency, which jumps where NCCL changes protocol.
const FROM: Bytes = Bytes(1 << 20);
/// A size is out of line when it reaches less than this share of both neighbours.
const DIP: f64 = 0.5;

/// A dip at one size, in one half or both.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.tests.iter().find_map(dip).into_iter().collect()
}

fn dip(test: &Test) -> Option<Finding> {
    let halves: [fn(&BenchRow) -> Option<&Measure>; 2] = [|row| row.out_of_place.as_ref(), |row| row.in_place.as_ref()];
    let rows: Vec<&BenchRow> = test.table.rows.iter().filter(|row| row.size >= FROM).collect();
    let (row, busbw, usual) = rows.windows(3).find_map(|window| {
        let grows = window[0].size < window[1].size && window[1].size < window[2].size;
        halves.iter().filter(|_| grows).find_map(|half| {
            let busbw = |row: &BenchRow| half(row).map(|m| m.busbw.0);
            let (before, here, after) = (busbw(window[0])?, busbw(window[1])?, busbw(window[2])?);
            (here < DIP * before.min(after)).then_some((window[1], here, before.min(after)))
        })
    })?;
    let draft = Draft {
        code: Code::StragglerNode,
        severity: Severity::Info,
        confidence: 0.4,
        title: format!("{} is out of line: {busbw:.1} GB/s between sizes that reach {usual:.1} and more", row.size),
        explanation: "A single size far below its neighbours is no property of the hardware. Either something disturbed the measurement (one \
                      node was late, other traffic, a link that recovered), or NCCL changes algorithm or protocol badly at this size."
            .into(),
    };
    Some(draft.finding(
        vec![Evidence::noted(row.source.clone(), "out of line")],
        &[
            "Measure again with more iterations: `-n 100 -w 20`; a dip that stays at the same size is NCCL's choice, one that wanders is a node or the network",
            "For a dip that stays: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` shows the choice; try a newer NCCL",
        ],
    ))
}
