//! What NCCL's own watcher (RAS, since 2.24) says of a running job: the answer of `ncclras`, as text or JSON.
//!
//! RAS is one witness among several: it sees whether processes answer and how many operations each rank launched, not
//! whether an operation makes progress. It has said OK during a real timeout.

use crate::place::SourceLine;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// One answer of `ncclras`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RasReport {
    /// Its first line.
    pub source: SourceLine,
    /// `2.29.1`.
    pub nccl_version: Option<String>,
    /// CUDA runtime and driver as CUDA counts them: 13000 is 13.0.
    pub cuda: Option<(u32, u32)>,
    /// When it was asked, as printed (JSON only).
    pub time: Option<String>,
    /// The size of the job (text only).
    pub job: Option<RasJob>,
    /// Communicators that share size, status and errors, as the text's table groups them; empty for JSON.
    pub groups: Vec<RasGroup>,
    /// Communicators: all of them from JSON, those with something to say from text.
    pub communicators: Vec<RasCommunicator>,
    /// Processes that did not answer or are considered dead.
    pub lost_processes: Vec<RasProcess>,
    /// Timeouts while RAS collected its data.
    pub timeouts: u32,
}

/// `Job summary`: the total counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RasJob {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of processes.
    pub processes: u32,
    /// Number of GPUs.
    pub gpus: u32,
}

/// A row of the table of communicators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasGroup {
    /// Number of communicators.
    pub communicators: u32,
    /// Nodes per communicator.
    pub nodes: u32,
    /// Ranks per communicator.
    pub ranks: u32,
    /// The furthest status of any rank.
    pub status: RasStatus,
    /// `OK`, `MISMATCH`, `INCOMPLETE`, `ERROR` or several joined by a comma, as printed.
    pub errors: String,
    /// The row.
    pub source: SourceLine,
}

/// How far a rank's communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RasStatus {
    /// The process answers and is no member (any more): `NOCOMM`, `UNKNOWN` in 2.24 and 2.25.
    NoCommunicator,
    /// `INIT`.
    Init,
    /// `RUNNING`.
    Running,
    /// `FINALIZE`: ncclCommFinalize or ncclCommDestroy was called.
    Finalize,
    /// `ABORT`: ncclCommAbort was called.
    Abort,
}

/// A communicator in a RAS report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RasCommunicator {
    /// The text's name of it: `0-0`.
    #[serde(skip)]
    pub name: Option<String>,
    /// The hash in hexadecimal, without `0x`: NCCL's log prints the same as commId.
    pub hash: String,
    /// Number of ranks it should have; JSON only.
    #[serde(rename = "nranks")]
    pub size: Option<u32>,
    /// Number of ranks that gave no data.
    pub missing_ranks: u32,
    /// The missing ranks that are named.
    #[serde(serialize_with = "numbers")]
    #[schemars(with = "Vec<u32>")]
    pub missing: Vec<RasRank>,
    /// How many ranks are in each status, the most frequent first; one entry when all agree.
    pub status: Vec<RasShare<RasStatus>>,
    /// How many operations ranks launched, per kind of operation. From text only where ranks differ.
    pub launched: Vec<RasLaunched>,
    /// Errors of ranks.
    pub errors: Vec<RasError>,
    /// Where the ranks that are named run.
    #[serde(skip)]
    pub ranks: Vec<RasRank>,
    /// The line that names it.
    #[serde(skip)]
    pub source: SourceLine,
}

/// Ranks that have one value in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RasShare<T> {
    /// The value that these ranks have.
    pub value: T,
    /// How many ranks have it.
    pub count: u32,
    /// The ranks, where named: text names outliers only.
    pub ranks: Vec<u32>,
    /// The line that says it.
    #[serde(skip)]
    pub source: SourceLine,
}

/// How far ranks are with one kind of operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RasLaunched {
    /// `AllReduce`; `collective` in 2.24 and 2.25, which count all kinds together.
    pub operation: String,
    /// How many ranks launched how many, the most frequent count first.
    pub shares: Vec<RasShare<u64>>,
}

impl RasLaunched {
    /// Whether ranks launched different numbers. One query proves nothing: NCCL outpaces RAS while all is well.
    pub fn differs(&self) -> bool {
        self.shares.len() > 1
    }

    /// The ranks that launched fewest, where some launched more.
    pub fn behind(&self) -> Option<&RasShare<u64>> {
        self.shares.iter().min_by_key(|share| share.value).filter(|_| self.differs())
    }

    /// The most that any rank launched.
    pub fn most(&self) -> u64 {
        self.shares.iter().map(|share| share.value).max().unwrap_or(0)
    }
}

/// A rank and where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RasRank {
    /// Rank in the communicator.
    pub rank: u32,
    /// Address of its node.
    pub host: Option<String>,
    /// Process id.
    pub pid: Option<u64>,
    /// CUDA device index.
    pub device: Option<u32>,
    /// It does not answer.
    pub unresponsive: bool,
    /// It has not answered for a minute.
    pub dead: bool,
    /// The line that names it.
    pub source: SourceLine,
}

/// The numbers of ranks, all that JSON says of them.
fn numbers<S: Serializer>(ranks: &[RasRank], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranks.iter().map(|rank| rank.rank))
}

/// An error that ranks reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RasError {
    /// Whether it came after initialisation (ncclCommGetAsyncError).
    #[serde(skip)]
    pub asynchronous: bool,
    /// `Remote process error`, `System error` …: RAS's words for ncclResult_t.
    #[serde(rename = "value")]
    pub error: String,
    /// How many ranks reported it.
    pub count: u32,
    /// The ranks, where named.
    pub ranks: Vec<u32>,
    /// The line.
    #[serde(skip)]
    pub source: SourceLine,
}

/// A process that RAS cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RasProcess {
    /// Address of its node.
    pub host: String,
    /// Process id.
    pub pid: u64,
    /// It has not answered for a minute.
    pub dead: bool,
    /// The line.
    #[serde(skip)]
    pub source: SourceLine,
}

impl RasReport {
    /// Whether RAS found nothing to report: every process answers, no rank has an error and no ranks differ.
    pub fn is_clean(&self) -> bool {
        let is_clean = |comm: &RasCommunicator| {
            comm.missing_ranks == 0
                && comm.errors.is_empty()
                && comm.status.len() < 2
                && !comm.launched.iter().any(RasLaunched::differs)
        };
        self.lost_processes.is_empty()
            && self.communicators.iter().all(is_clean)
            && self.groups.iter().all(|group| group.errors == "OK")
    }
}
