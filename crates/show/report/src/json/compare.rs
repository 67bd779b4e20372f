//! The answer of `busbw compare`.

use busbw_model::answer::Answer;
use busbw_model::{ComparedCell, ComparedRow, ComparedRun, Contest, Difference, RunComparison};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of a comparison, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
pub fn write_compare(comparison: &RunComparison, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Compare::new(comparison), out)
}

/// What `busbw compare --format json` prints. Bandwidths are GB/s, 10^9 bytes per second (_gbs), times microseconds (_us). Lists
/// per run are in the order of `runs`. No number is rounded; a number that is not finite is null. Readers must accept fields that
/// are not described here: they may be added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Compare<'a> {
    /// One sentence that says it all, for people.
    summary: &'a str,
    /// How it was decided whether speeds differ.
    method: &'a str,
    /// The runs. The others are compared with the first.
    #[schemars(length(min = 2))]
    runs: &'a [ComparedRun],
    /// Every size that any run measured, the smallest first.
    rows: Vec<Row>,
    /// The first run against each of the others.
    contests: &'a [Contest],
    /// Other differences between the runs: versions, variables, hardware.
    differences: &'a [Difference],
}

impl Answer for Compare<'_> {
    const SCHEMA: &'static str = "busbw.compare/1";
}

/// A size in every run.
#[derive(Serialize, JsonSchema)]
struct Row {
    /// The size.
    size_bytes: u64,
    /// The better of in-place and out-of-place per run; null where it did not measure this size.
    busbw_gbs: Vec<Option<f64>>,
    /// Time of one operation.
    time_us: Vec<Option<f64>>,
    /// Half the width of the 95% interval of the mean busbw; null without repetitions.
    ci95_gbs: Vec<Option<f64>>,
    /// How often it was measured.
    repetitions: Vec<usize>,
    /// busbw of the first run over that of the second.
    ratio: Option<f64>,
    /// busbw of the first run over that of each of the others.
    ratios: Vec<Option<f64>>,
}

impl<'a> Compare<'a> {
    fn new(comparison: &'a RunComparison) -> Self {
        Compare {
            summary: &comparison.summary,
            method: &comparison.method,
            runs: &comparison.runs,
            rows: comparison.rows.iter().map(Row::new).collect(),
            contests: &comparison.contests,
            differences: &comparison.differences,
        }
    }
}

impl Row {
    fn new(row: &ComparedRow) -> Self {
        fn each<T>(row: &ComparedRow, value: fn(&ComparedCell) -> T) -> Vec<Option<T>> {
            row.cells.iter().map(|cell| cell.as_ref().map(value)).collect()
        }
        let ci95_gbs = row.cells.iter().map(|cell| Some(cell.as_ref()?.interval?.0)).collect();
        Row {
            size_bytes: row.size.0,
            busbw_gbs: each(row, |cell| cell.busbw.0),
            time_us: each(row, |cell| cell.time.0),
            ci95_gbs,
            repetitions: row.cells.iter().map(|cell| cell.map_or(0, |cell| cell.repetitions)).collect(),
            ratio: row.ratios.first().copied().flatten(),
            ratios: row.ratios.clone(),
        }
    }
}
