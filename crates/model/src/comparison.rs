//! Runs side by side, as `busbw compare` shows them.

use crate::collective::Collective;
use crate::finding::Code;
use crate::units::{Bytes, GBps, Micros};
use schemars::JsonSchema;
use serde::Serialize;

/// Runs of one test side by side. The others are compared with the first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunComparison {
    /// One sentence that says it all.
    pub summary: String,
    /// The runs, at least two, in the order given.
    pub runs: Vec<ComparedRun>,
    /// Every size that any of them measured, the smallest first.
    pub rows: Vec<ComparedRow>,
    /// The first run against each of the others, in their order.
    pub contests: Vec<Contest>,
    /// Other differences between the runs: versions, variables, hardware.
    pub differences: Vec<Difference>,
    /// How it was decided at a size whether speeds differ, in words.
    pub method: String,
}

/// One of the runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub struct ComparedRun {
    /// The path as given.
    pub name: String,
    /// What it measured.
    pub collective: Option<Collective>,
    /// Over how many ranks.
    pub nranks: Option<u32>,
    /// How often a size was measured, at most.
    #[schemars(range(min = 1))]
    pub repetitions: usize,
    /// The size of the highest busbw.
    pub peak_size_bytes: Option<Bytes>,
    /// The highest busbw.
    pub peak_busbw_gbs: Option<GBps>,
    /// Mean over sizes, as the program printed it.
    pub avg_busbw_gbs: Option<GBps>,
    /// What carried the traffic between nodes, if known.
    pub network: Option<Carrier>,
    /// What busbw explain finds.
    pub findings: Vec<ComparedFinding>,
}

/// A finding of one of the runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Found")]
pub struct ComparedFinding {
    /// What it is about.
    pub code: Code,
    /// What is the matter.
    pub title: String,
}

/// What carried the traffic between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// TCP sockets.
    Sockets,
    /// RDMA.
    Rdma,
    /// A network plugin.
    Plugin,
}

impl Carrier {
    /// In a sentence: `RDMA`.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Sockets => "sockets",
            Carrier::Rdma => "RDMA",
            Carrier::Plugin => "a network plugin",
        }
    }
}

/// A size in every run.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRow {
    /// Message size in bytes, as nccl-tests prints it.
    pub size: Bytes,
    /// What each run measured; `None` where it did not measure this size.
    pub cells: Vec<Option<ComparedCell>>,
    /// busbw of the first run over that of each of the others, in their order.
    pub ratios: Vec<Option<f64>>,
}

/// A size in one run: the better of in-place and out-of-place, as a mean where it was measured repeatedly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ComparedCell {
    /// Bus bandwidth in GB/s.
    pub busbw: GBps,
    /// Time of one operation.
    pub time: Micros,
    /// How often it was measured.
    pub repetitions: usize,
    /// Half the width of the 95% confidence interval of the mean busbw; `None` of a single measurement.
    pub interval: Option<GBps>,
}

/// The first run against another.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contest {
    /// Index into runs.
    #[schemars(range(min = 1))]
    pub other: usize,
    /// Ranges of sizes in which one is better, or neither.
    pub ranges: Vec<SizeRange>,
    /// Small messages, where latency decides.
    pub small: Option<SmallMessages>,
    /// The largest size that both measured.
    pub largest: Option<LargestCompared>,
}

/// The largest size that both runs measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Largest")]
pub struct LargestCompared {
    /// The size.
    pub size_bytes: Bytes,
    /// The first's busbw over the other's.
    pub ratio: f64,
}

/// Neighbouring sizes with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SizeRange {
    /// The smallest size of the range, in bytes.
    #[serde(rename = "from_bytes")]
    pub from: Bytes,
    /// The largest size of the range, in bytes.
    #[serde(rename = "to_bytes")]
    pub to: Bytes,
    /// Which of the two runs is faster in this range.
    pub faster: Faster,
    /// The least and the greatest ratio, the first's busbw over the other's.
    pub ratio: (f64, f64),
}

/// Which of two runs is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Faster {
    /// The first run, with which the others are compared.
    First,
    /// The run that is compared with the first.
    Other,
    /// Neither, as far as can be told.
    Neither,
}

/// Times of small messages, the better of in place and out of place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SmallMessages {
    /// The largest size that counts as small here.
    #[serde(rename = "up_to_bytes")]
    pub up_to: Bytes,
    /// The other's time over the first's: the least and the greatest over sizes and placements.
    pub time_ratio: (f64, f64),
}

/// Something in which runs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// What kind of thing it is.
    pub kind: DifferenceKind,
    /// Its name: `NCCL_IB_DISABLE`, `NCCL`, `datatype`.
    pub name: String,
    /// Its value in each run; `None` where the run does not tell.
    pub values: Vec<Option<String>>,
}

/// What runs differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DifferenceKind {
    /// What carries traffic between nodes.
    Network,
    /// An environment variable.
    Variable,
    /// A version of a program.
    Version,
    /// How the test was made: ranks, hosts, GPUs, iterations.
    Setup,
}

/// What sets the runs' names apart: without the folders that all of them share.
pub fn short_names(runs: &[ComparedRun]) -> Vec<String> {
    let first = runs.first().map_or("", |run| run.name.as_str());
    let folders = first.match_indices('/').map(|(at, _)| &first[..=at]).rev();
    let shared = folders
        .into_iter()
        .find(|folder| runs.iter().all(|run| run.name.strip_prefix(folder).is_some_and(|rest| !rest.is_empty())));
    runs.iter().map(|run| run.name.strip_prefix(shared.unwrap_or("")).unwrap_or(&run.name).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_out_the_folders_that_all_share() {
        let run = |name: &str| ComparedRun {
            name: name.into(),
            collective: None,
            nranks: None,
            repetitions: 1,
            peak_size_bytes: None,
            peak_busbw_gbs: None,
            avg_busbw_gbs: None,
            network: None,
            findings: Vec::new(),
        };
        let short = |names: &[&str]| short_names(&names.iter().map(|name| run(name)).collect::<Vec<_>>());
        assert_eq!(short(&["runs/a/run.log", "runs/b/run.log"]), ["a/run.log", "b/run.log"]);
        assert_eq!(short(&["a.log", "b.log"]), ["a.log", "b.log"]);
        assert_eq!(short(&["x/a/", "x/b/"]), ["a/", "b/"]);
    }
}
