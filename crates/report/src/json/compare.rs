//! The schema `busbw.compare/1`, described in `docs/schema/compare-1.schema.json`.

use busbw_model::{
    Carrier, Code, ComparedCell, ComparedRow, ComparedRun, Contest, Difference, DifferenceKind, Faster, RunComparison,
    SizeRange, SmallMessages,
};
use serde::Serialize;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.compare/1";

/// Writes the JSON of a comparison, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
///
/// # Errors
/// What the writer returns.
pub fn write_compare(comparison: &RunComparison, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(comparison), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    summary: &'a str,
    method: &'a str,
    runs: Vec<Compared<'a>>,
    rows: Vec<Row>,
    contests: Vec<Against>,
    differences: Vec<Differing<'a>>,
}

#[derive(Serialize)]
struct Compared<'a> {
    name: &'a str,
    collective: Option<&'static str>,
    nranks: Option<u32>,
    repetitions: usize,
    peak_size_bytes: Option<u64>,
    peak_busbw_gbs: Option<f64>,
    avg_busbw_gbs: Option<f64>,
    network: Option<Carrier>,
    findings: Vec<Found<'a>>,
}

#[derive(Serialize)]
struct Found<'a> {
    code: Code,
    title: &'a str,
}

#[derive(Serialize)]
struct Row {
    size_bytes: u64,
    busbw_gbs: Vec<Option<f64>>,
    time_us: Vec<Option<f64>>,
    ci95_gbs: Vec<Option<f64>>,
    repetitions: Vec<usize>,
    ratio: Option<f64>,
    ratios: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct Against {
    other: usize,
    ranges: Vec<Range>,
    small: Option<Small>,
    largest: Option<Largest>,
}

#[derive(Serialize)]
struct Range {
    from_bytes: u64,
    to_bytes: u64,
    faster: Faster,
    ratio: [f64; 2],
}

#[derive(Serialize)]
struct Small {
    up_to_bytes: u64,
    time_ratio: [f64; 2],
}

#[derive(Serialize)]
struct Largest {
    size_bytes: u64,
    ratio: f64,
}

#[derive(Serialize)]
struct Differing<'a> {
    kind: DifferenceKind,
    name: &'a str,
    values: &'a [Option<String>],
}

impl<'a> Document<'a> {
    fn new(comparison: &'a RunComparison) -> Self {
        Document {
            schema: SCHEMA,
            summary: &comparison.summary,
            method: &comparison.method,
            runs: comparison.runs.iter().map(Compared::new).collect(),
            rows: comparison.rows.iter().map(Row::new).collect(),
            contests: comparison.contests.iter().map(Against::new).collect(),
            differences: comparison.differences.iter().map(Differing::new).collect(),
        }
    }
}

impl<'a> Compared<'a> {
    fn new(run: &'a ComparedRun) -> Self {
        Compared {
            name: &run.name,
            collective: run.collective.map(|collective| collective.name()),
            nranks: run.nranks,
            repetitions: run.repetitions,
            peak_size_bytes: run.peak.map(|(size, _)| size.0),
            peak_busbw_gbs: run.peak.map(|(_, busbw)| busbw.0),
            avg_busbw_gbs: run.average.map(|busbw| busbw.0),
            network: run.network,
            findings: run.findings.iter().map(|(code, title)| Found { code: *code, title }).collect(),
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

impl Against {
    fn new(contest: &Contest) -> Self {
        let small = |small: SmallMessages| Small {
            up_to_bytes: small.up_to.0,
            time_ratio: [small.time_ratio.0, small.time_ratio.1],
        };
        Against {
            other: contest.other,
            ranges: contest.ranges.iter().map(Range::new).collect(),
            small: contest.small.map(small),
            largest: contest.largest.map(|(size, ratio)| Largest { size_bytes: size.0, ratio }),
        }
    }
}

impl Range {
    fn new(range: &SizeRange) -> Self {
        Range {
            from_bytes: range.from.0,
            to_bytes: range.to.0,
            faster: range.faster,
            ratio: [range.ratio.0, range.ratio.1],
        }
    }
}

impl<'a> Differing<'a> {
    fn new(difference: &'a Difference) -> Self {
        Differing { kind: difference.kind, name: &difference.name, values: &difference.values }
    }
}
