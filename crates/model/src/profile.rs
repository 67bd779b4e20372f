//! What `busbw profile` found of a job's collectives: the document `busbw.profile/1`.

use crate::answer::Answer;
use crate::{Collective, Datatype};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a job's collectives cost, as far as its processes on the hosts that were looked at wrote events.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Profile {
    /// The job's command line.
    pub job: String,
    /// The host that the events are of; several with commas between.
    pub host: String,
    /// How long the job ran, or was looked at, in microseconds.
    pub wall_us: f64,
    /// The job's exit status; 128 + signal where one killed it. `None` of a job that busbw did not start.
    pub exit_status: Option<i32>,
    /// Events that were read.
    pub events: u64,
    /// Events that were lost: a ring was full, or a process died in the middle of one.
    pub lost: u64,
    /// The ranks, in order.
    pub ranks: Vec<ProfiledRank>,
    /// What they did, the most time first.
    pub operations: Vec<ProfiledOperation>,
    /// The operations that took longest beside what is usual for their kind.
    pub worst: Vec<WorstOperation>,
    /// Ranks that the others waited for, or whose part was slow, the worst first.
    pub stragglers: Vec<Straggler>,
    /// What cannot be told, and why.
    pub notes: Vec<String>,
}

impl Answer for Profile {
    const SCHEMA: &'static str = "busbw.profile/1";
}

/// A rank: a process, or one of its GPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct ProfiledRank {
    /// Rank in the largest communicator of its process; `None` where NCCL does not tell (before 2.27).
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Process id.
    pub process: u32,
    /// From the beginning of the first operation to the end of the last, in microseconds.
    pub span_us: f64,
    /// Time of that in which an operation ran, in microseconds.
    pub busy_us: f64,
    /// The operations' times added up, in microseconds: more than `busy_us` where operations overlap.
    pub added_us: f64,
    /// Time that the rank waited in operations for others that had not begun theirs, in microseconds; `None` where it has no
    /// operation in common with other ranks that are seen.
    pub waited_us: Option<f64>,
    /// Where the time of its steps over the network went.
    pub steps: StepTimes,
}

impl ProfiledRank {
    /// The share of the span in which an operation ran.
    pub fn share(&self) -> f64 {
        if self.span_us > 0.0 { self.busy_us / self.span_us } else { 0.0 }
    }

    /// The share of the operations' time in which another ran as well.
    pub fn overlap(&self) -> f64 {
        if self.added_us > 0.0 { 1.0 - self.busy_us / self.added_us } else { 0.0 }
    }
}

/// Time of NCCL's proxy steps, by what they waited for, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct StepTimes {
    /// Steps.
    pub steps: u64,
    /// Senders: for their own GPU to fill the buffer. Before NCCL 2.27 with `send_peer_us`.
    pub send_gpu_us: f64,
    /// Senders: for the receiver to offer room.
    pub send_peer_us: f64,
    /// Senders: for the network.
    pub send_network_us: f64,
    /// Receivers: for the network, and so for the sender.
    pub receive_network_us: f64,
    /// Receivers: for their own GPU to take what came, with the flush before.
    pub receive_gpu_us: f64,
    /// Bytes sent over the network, where that is busbw's own plugin.
    pub sent_bytes: u64,
}

/// All operations of one kind and size.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProfiledOperation {
    /// What was called; `sendrecv` for sends and receives.
    pub collective: Collective,
    /// Whose events these are.
    pub source: ProfileSource,
    /// Bytes, as nccl-tests counts them: the larger of a rank's two buffers.
    pub bytes: u64,
    /// Type of the elements, where it is known.
    pub datatype: Option<Datatype>,
    /// Ranks of the communicator; 0 where NCCL does not tell.
    pub ranks: u32,
    /// Hosts of the communicator; 0 where NCCL does not tell.
    pub nodes: u32,
    /// The algorithm, where it is known.
    pub algorithm: Option<String>,
    /// The protocol, where it is known.
    pub protocol: Option<String>,
    /// The most channels.
    pub channels: u32,
    /// How often it was called, counted once per rank.
    pub count: u64,
    /// Those of `count` that a CUDA graph replayed.
    pub replayed: u64,
    /// Those of `count` whose end no event tells.
    pub untimed: u64,
    /// All its time, over all ranks, in microseconds.
    pub total_us: f64,
    /// Its share of the time of all operations.
    pub share: f64,
    /// Median time, in microseconds, to 1%.
    pub median_us: f64,
    /// 99th percentile, in microseconds, to 1%.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub most_us: f64,
    /// Busbw at the median time, in GB/s; `None` where the ranks are not known.
    pub busbw_gbs: Option<f64>,
    /// The time that `busbw predict` gives on the cluster that was described, in microseconds.
    pub expected_us: Option<f64>,
}

/// Who carried an operation out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProfileSource {
    /// NCCL, whose profiler busbw is.
    Nccl,
    /// busbw's engine on CPU cores.
    Engine,
    /// PyTorch, through `busbw.torch`.
    Torch,
}

/// An operation that took long.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorstOperation {
    /// What was called.
    pub collective: Collective,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// The rank whose operation it was, where it is known.
    pub rank: Option<u32>,
    /// When it began, in microseconds since the first event.
    pub begin_us: f64,
    /// How long it took, in microseconds.
    pub time_us: f64,
    /// That, as multiple of the median of its kind.
    pub times_median: f64,
}

/// A rank that held others up.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Straggler {
    /// The rank.
    pub rank: u32,
    /// How.
    pub class: StragglerClass,
    /// The other end, where it is a way between two ranks.
    pub peer: Option<u32>,
    /// Operations in which it did.
    pub operations: u64,
    /// Of how many that could be judged.
    pub of: u64,
    /// Time that others lost by it, in microseconds.
    pub cost_us: f64,
}

/// How a rank holds others up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StragglerClass {
    /// It begins the operation after all others: its program or its GPU is late.
    Late,
    /// Its GPU fills buffers slowly within the operation.
    SlowGpu,
    /// It takes what has come slowly, and offers its sender no room.
    SlowReceiver,
    /// What it sends takes long in the network, on the way to one peer.
    Network,
}

impl StragglerClass {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            StragglerClass::Late => "begins last",
            StragglerClass::SlowGpu => "its GPU fills buffers slowly",
            StragglerClass::SlowReceiver => "takes what has come slowly",
            StragglerClass::Network => "its network is slow",
        }
    }
}
