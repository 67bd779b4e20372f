//! What PyTorch says of its process groups: the lines of ProcessGroupNCCL's watchdog, and dumps of the flight recorder.

use crate::place::SourceLine;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// A collective or send/receive that a rank enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, JsonSchema)]
pub struct TorchWork {
    /// Sequence number in the process group: equal numbers must be equal collectives on all ranks.
    pub sequence: u64,
    /// The watchdog's and the recorder's names made one: `ALLREDUCE`, `_ALLGATHER_BASE`, `SEND 0->1`.
    #[serde(rename = "operation")]
    pub op: String,
    /// Elements in.
    pub numel_in: Option<u64>,
    /// Elements out.
    pub numel_out: Option<u64>,
    /// Datatypes in, as PyTorch prints them: `BFloat16`; the flight recorder's and the DETAIL report's only.
    pub datatype: Option<String>,
    /// Sizes of the tensor by dimension, as PyTorch prints them: `359, 1, 1435, 16`; the DETAIL report's only.
    #[serde(skip)]
    pub shape: Option<String>,
    /// Where the tensor lies: `cuda`, `cpu`; the DETAIL report's only.
    #[serde(skip)]
    pub device: Option<String>,
    /// How long the rank waits for it.
    #[serde(skip)]
    pub timeout_ms: Option<u64>,
}

/// Which process group is meant. The parts that a line lacks are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupName {
    /// `PG ID 0`: numbered per process, in order of creation.
    pub id: Option<u32>,
    /// `PG GUID 22`: the same on all ranks.
    pub name: Option<String>,
    /// `default_pg`, `TENSOR_MODEL_PARALLEL_GROUP`: what the program calls it.
    pub description: Option<String>,
}

impl Serialize for GroupName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.description, &self.name, self.id) {
            (Some(description), ..) if description != "undefined" => f.pad(description),
            (_, Some(name), _) => f.pad(&format!("group {name}")),
            (_, _, Some(id)) => f.pad(&format!("group {id}")),
            _ => f.pad("a group"),
        }
    }
}

/// One thing that a rank's watchdog, heartbeat monitor or debug wrapper says.
#[derive(Debug, Clone, PartialEq)]
pub struct TorchStatement {
    /// Who says it: the rank of the job if the line says so (`[rank3]:`, `RANK 3`), else the rank in the group.
    pub rank: Option<u32>,
    /// The process group.
    pub group: GroupName,
    /// What it says.
    pub event: TorchEvent,
    /// The line.
    pub source: SourceLine,
}

/// What a statement says.
#[derive(Debug, Clone, PartialEq)]
pub enum TorchEvent {
    /// `Watchdog caught collective operation timeout: WorkNCCL(…) ran for N milliseconds`.
    Timeout {
        /// The work that did not end.
        work: TorchWork,
        /// For how long it ran.
        ran_ms: Option<u64>,
    },
    /// `last enqueued work: A, last started work: B, last completed work: C`.
    Standing {
        /// How far the rank is.
        standing: Standing,
        /// The work at which the watchdog saw the failure.
        failed_at: Option<u64>,
    },
    /// The heartbeat monitor saw no heartbeat of the watchdog (a thread that hangs in CUDA or waits for the GIL).
    NoHeartbeat,
    /// Two ranks run different collectives at once (TORCH_DISTRIBUTED_DEBUG=DETAIL).
    Mismatch {
        /// What the speaking rank runs.
        mine: TorchWork,
        /// The other rank.
        other: u32,
        /// What the other rank runs.
        theirs: TorchWork,
    },
    /// Ranks that did not join a collective, as `fr_trace` finds in dumps, or PyTorch itself with TORCH_NCCL_DESYNC_DEBUG=1.
    NotJoined {
        /// The ranks.
        ranks: Vec<u32>,
        /// The sequence number; 0 where they joined none.
        sequence: u64,
    },
    /// Ranks whose part of a collective differs from the first rank's, as `fr_trace` finds in dumps.
    Differs {
        /// The ranks.
        ranks: Vec<u32>,
        /// The sequence number.
        sequence: u64,
        /// In what: `SIZE_OR_SYNTAX_MISMATCH`.
        what: String,
    },
    /// Ranks that did not reach a monitored barrier in time.
    BarrierMissed(Vec<u32>),
    /// Nothing gets from the rank's host to the host of a store: the network says so, not a program that does not listen.
    Unreachable(String),
}

/// How far a rank is in a process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Standing {
    /// Sequence number of the last work that it enqueued; 0 for none (PyTorch's -1, as numbers begin at 1); `None` where
    /// none is known.
    pub enqueued: Option<u64>,
    /// The last that started.
    pub started: Option<u64>,
    /// The last that completed.
    pub completed: Option<u64>,
}

/// One dump of PyTorch's flight recorder: the last operations of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlightDump {
    /// The first line; line 0 of a pickle.
    pub source: SourceLine,
    /// Rank of the job: the number at the end of the file's name, as PyTorch names the files.
    pub rank: Option<u32>,
    /// Version of the dump: `2.10`.
    pub version: Option<String>,
    /// `comm_lib_version` or `nccl_version`.
    pub nccl_version: Option<String>,
    /// Number of entries.
    pub entries: u64,
    /// Entries that were not complete, oldest first; at most [`FlightDump::MOST_OPEN`].
    pub open: Vec<FlightEntry>,
    /// How far the rank was in each group, by group.
    pub standing: Vec<(GroupName, Standing)>,
    /// The groups' ranks, if the dump says so.
    pub members: Vec<(GroupName, Vec<u32>)>,
    /// When its first and its last operation were enqueued, in ns since 1970.
    pub span_ns: Option<(u64, u64)>,
    /// Where the rank is: its first operation that was not complete, else its last.
    pub at: Option<FlightEntry>,
    /// The rank's own recorder never had that operation behind the one before it: its program went another way than so far.
    pub unusual: bool,
    /// It could not be read to its end: that the rank wrote it is all that it shows.
    pub cut: bool,
    /// When the rank called each collective, in order; empty where a call returns before the others have called, as NCCL's do.
    pub calls: FlightCalls,
}

/// The collectives that a rank called, and when: what a comparison of ranks' times needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlightCalls {
    /// What was called, each once.
    pub kinds: Vec<FlightKind>,
    /// The calls, oldest first.
    pub calls: Vec<FlightCall>,
}

/// What a program calls again and again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlightKind {
    /// The group.
    pub group: GroupName,
    /// The operation.
    pub op: String,
    /// Elements in and out.
    pub elements: (Option<u64>, Option<u64>),
    /// Where the program called it.
    pub called_at: Option<String>,
}

impl FlightKind {
    /// Whether no rank leaves it before all have come. From a broadcast, and from a reduction to one rank, some do.
    pub fn waits_for_all(&self) -> bool {
        const ALL: [&str; 4] = ["ALLREDUCE", "ALLGATHER", "_ALLGATHER_BASE", "BARRIER"];
        ALL.contains(&self.op.as_str())
    }
}

/// One call of a collective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlightCall {
    /// Which of [`FlightCalls::kinds`].
    pub kind: u32,
    /// Its number in the group.
    pub sequence: u64,
    /// When it was called, in ns since 1970 by the clock of its host.
    pub created_ns: u64,
}

impl FlightDump {
    /// The most open entries that are kept.
    pub const MOST_OPEN: usize = 256;
    /// The most calls that are kept, the last ones.
    pub const MOST_CALLS: usize = 1 << 13;
}

/// An operation in a flight recorder's dump.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlightEntry {
    /// Its group.
    pub group: GroupName,
    /// The operation.
    pub work: TorchWork,
    /// How far it was.
    pub state: WorkState,
    /// Send or receive: its sequence number counts sends and receives only.
    pub p2p: bool,
    /// Where the program called it: the innermost frame outside PyTorch, `train.py:120 (step)`.
    pub called_at: Option<String>,
    /// When it was enqueued, in ns since 1970 by the clock of its host.
    pub created_ns: Option<u64>,
    /// The line, of JSON that is laid out; of other dumps the input.
    pub source: SourceLine,
}

/// How far an operation was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkState {
    /// Enqueued; the kernel has not started.
    #[default]
    Scheduled,
    /// The kernel runs: it waits for peers, or moves data.
    Started,
    /// The operation has finished.
    Completed,
}

/// A process group as all witnesses together show it: watchdog lines and flight-recorder dumps of any number of ranks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct ProcessGroup {
    /// Its name, as complete as the witnesses tell: what the program calls it, else its number.
    #[schemars(with = "String")]
    pub name: GroupName,
    /// Its ranks, where known.
    pub members: Vec<u32>,
    /// How far each witness is.
    #[serde(serialize_with = "by_rank")]
    #[schemars(with = "Vec<OfRank>")]
    pub ranks: BTreeMap<u32, RankStanding>,
    /// Sequence numbers at which ranks ran different collectives, ascending.
    pub mismatches: Vec<CollectiveMismatch>,
}

/// How far one rank is in a process group, and what it is stuck in.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RankStanding {
    /// How far it is.
    #[serde(flatten)]
    pub standing: Standing,
    /// Its watchdog reported a timeout.
    pub timed_out: bool,
    /// The first operation that did not complete.
    pub stuck_in: Option<TorchWork>,
    /// The operation's state, where a flight recorder tells.
    pub state: Option<WorkState>,
    /// Where the program called it.
    pub called_at: Option<String>,
    /// The lines that say so.
    #[serde(skip)]
    pub sources: Vec<SourceLine>,
}

/// How far one rank is.
#[derive(Serialize, JsonSchema)]
struct OfRank<'a> {
    /// The rank, from 0.
    rank: u32,
    #[serde(flatten)]
    standing: &'a RankStanding,
}

fn by_rank<S: Serializer>(ranks: &BTreeMap<u32, RankStanding>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranks.iter().map(|(rank, standing)| OfRank { rank: *rank, standing }))
}

/// One sequence number, different collectives.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CollectiveMismatch {
    /// The sequence number.
    pub sequence: u64,
    /// What differs.
    #[serde(rename = "differs")]
    pub kind: MismatchKind,
    /// Each collective with the ranks that ran it, the most ranks first.
    #[serde(serialize_with = "variants")]
    #[schemars(with = "Vec<Variant>")]
    pub variants: Vec<(TorchWork, Vec<u32>)>,
    /// A line for each variant, where kept.
    #[serde(skip)]
    pub sources: Vec<SourceLine>,
    /// Ranks whose own recorder never had this operation behind the one before it: their program went another way than so far.
    #[serde(skip)]
    pub unusual: Vec<u32>,
}

/// An operation and who ran it.
#[derive(Serialize, JsonSchema)]
struct Variant<'a> {
    #[serde(flatten)]
    work: &'a TorchWork,
    /// The ranks that ran it.
    ranks: &'a [u32],
}

fn variants<S: Serializer>(variants: &[(TorchWork, Vec<u32>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(variants.iter().map(|(work, ranks)| Variant { work, ranks }))
}

/// What differs between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MismatchKind {
    /// The operation.
    Operation,
    /// The number of elements, of an operation that needs the same everywhere; or the shape, where PyTorch compares it.
    Size,
    /// The datatype.
    Datatype,
    /// The kind of device that the tensor lies on.
    Device,
    /// The place in the rank's own sequence, of one operation on tensors that are alike.
    Sequence,
}

impl ProcessGroup {
    /// The ranks that are behind the others in what they enqueued, with their last number, and the number in which the others wait: where
    /// none tells that, their last. A rank that never enqueued what the others wait for is the one to look at: its program went another way,
    /// is busy, or has died. What others enqueued behind that shows nothing: of some ranks, only what they wait in is known.
    pub fn behind(&self) -> Option<(Vec<u32>, u64, u64)> {
        let enqueued = || self.ranks.iter().filter_map(|(rank, r)| Some((*rank, r.standing.enqueued?)));
        let waits_in = self.ranks.values().filter_map(|r| r.stuck_in.as_ref()).filter(|work| !work.is_between_two());
        let waits_in = waits_in.map(|work| work.sequence).max();
        let last = waits_in.or_else(|| enqueued().map(|(_, sequence)| sequence).max())?;
        let first = enqueued().map(|(_, sequence)| sequence).min()?;
        let ranks = enqueued().filter(|(_, sequence)| *sequence == first).map(|(rank, _)| rank).collect();
        (first < last).then_some((ranks, first, last))
    }

    /// The members that no witness speaks of, where the members are known.
    pub fn silent(&self) -> Vec<u32> {
        self.members.iter().copied().filter(|rank| !self.ranks.contains_key(rank)).collect()
    }
}

impl TorchWork {
    /// Whether one rank sends to another, which has numbers of its own.
    pub fn is_between_two(&self) -> bool {
        ["SEND", "RECV"].iter().any(|op| self.op.starts_with(op))
    }

    /// Whether the operation needs the same number of elements on all ranks, so that a difference is an error.
    pub fn has_equal_sizes(&self) -> bool {
        const EQUAL: [&str; 5] = ["ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"];
        EQUAL.contains(&self.op.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_enqueued_least_is_behind() {
        let standing = |enqueued| RankStanding {
            standing: Standing { enqueued: Some(enqueued), ..Standing::default() },
            ..RankStanding::default()
        };
        let mut group = ProcessGroup { members: vec![0, 1, 2, 3], ..ProcessGroup::default() };
        group.ranks = BTreeMap::from([(0, standing(315)), (1, standing(315)), (3, standing(182))]);
        assert_eq!(group.behind(), Some((vec![3], 182, 315)));
        assert_eq!(group.silent(), [2]);
        let waits = |sequence| Some(TorchWork { sequence, ..TorchWork::default() });
        group.ranks.entry(0).or_default().stuck_in = waits(183);
        assert_eq!(group.behind(), Some((vec![3], 182, 183)));
        group.ranks.entry(0).or_default().stuck_in = waits(182);
        assert_eq!(group.behind(), None, "all have enqueued it");
        group.ranks.remove(&3);
        assert_eq!(group.behind(), None);
    }
}
