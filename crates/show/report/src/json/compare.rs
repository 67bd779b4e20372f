//! The answer of `busbw compare`.

use busbw_model::answer::Answer;
use busbw_model::{
    Bytes, Carrier, Code, Collective, ComparedCell, ComparedRow, ComparedRun, Contest, Difference, RunComparison,
    SizeRange, SmallMessages,
};
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
    runs: Vec<Compared<'a>>,
    /// Every size that any run measured, the smallest first.
    rows: Vec<Row>,
    /// The first run against each of the others.
    contests: Vec<Against<'a>>,
    /// Other differences between the runs: versions, variables, hardware.
    differences: &'a [Difference],
}

impl Answer for Compare<'_> {
    const SCHEMA: &'static str = "busbw.compare/1";
}

/// One of the runs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
struct Compared<'a> {
    /// The path as given.
    name: &'a str,
    /// What it measured.
    collective: Option<Collective>,
    /// Over how many ranks.
    nranks: Option<u32>,
    /// How often a size was measured, at most.
    #[schemars(range(min = 1))]
    repetitions: usize,
    /// The size of the highest busbw.
    peak_size_bytes: Option<u64>,
    /// The highest busbw.
    peak_busbw_gbs: Option<f64>,
    /// Mean over sizes, as the program printed it.
    avg_busbw_gbs: Option<f64>,
    /// What carried the traffic between nodes, if known.
    network: Option<Carrier>,
    /// What busbw explain finds.
    findings: Vec<Found<'a>>,
}

/// A finding of one of the runs.
#[derive(Serialize, JsonSchema)]
struct Found<'a> {
    /// What it is about.
    code: Code,
    /// What is the matter.
    title: &'a str,
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

/// The first run against another.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Contest")]
struct Against<'a> {
    /// Index into runs.
    #[schemars(range(min = 1))]
    other: usize,
    /// Ranges of sizes in which one is better, or neither.
    ranges: &'a [SizeRange],
    /// Small messages, where latency decides.
    small: Option<SmallMessages>,
    /// The largest size that both measured.
    largest: Option<Largest>,
}

/// The largest size that both runs measured.
#[derive(Serialize, JsonSchema)]
struct Largest {
    /// The size.
    size_bytes: Bytes,
    /// The first's busbw over the other's.
    ratio: f64,
}

impl<'a> Compare<'a> {
    fn new(comparison: &'a RunComparison) -> Self {
        Compare {
            summary: &comparison.summary,
            method: &comparison.method,
            runs: comparison.runs.iter().map(Compared::new).collect(),
            rows: comparison.rows.iter().map(Row::new).collect(),
            contests: comparison.contests.iter().map(Against::new).collect(),
            differences: &comparison.differences,
        }
    }
}

impl<'a> Compared<'a> {
    fn new(run: &'a ComparedRun) -> Self {
        Compared {
            name: &run.name,
            collective: run.collective,
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

impl<'a> Against<'a> {
    fn new(contest: &'a Contest) -> Self {
        Against {
            other: contest.other,
            ranges: &contest.ranges,
            small: contest.small,
            largest: contest.largest.map(|(size_bytes, ratio)| Largest { size_bytes, ratio }),
        }
    }
}
