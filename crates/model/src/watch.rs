//! What `busbw watch` saw of a job's ranks on one host, as it keeps it: the document `busbw.watch/1`.
//!
//! Facts only: what a process was, did and waited for. Rules judge them, as they judge a log.

use crate::answer::Answer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ranks that one busbw looked at, at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Watched {
    /// The host that busbw ran on.
    pub host: String,
    /// When this was seen, in microseconds since 1970.
    pub time_us: u64,
    /// The job's command line, where busbw started it.
    pub job: Option<String>,
    /// How many ranks the job has, as their environment says.
    pub nranks: Option<u32>,
    /// Nothing has moved between the ranks for longer than it ever took while the job was sound.
    pub stall: Option<Stall>,
    /// The exit status of the job, where busbw started it and it has ended.
    pub exit_status: Option<i32>,
    /// The ranks on this host, in order.
    pub ranks: Vec<WatchedRank>,
    /// Network interfaces that ranks use and that have no carrier: the cable is out, or the other end is down.
    pub without_carrier: Vec<String>,
    /// What each source told, or why it told nothing.
    pub sources: Vec<WatchSource>,
}

impl Answer for Watched {
    const SCHEMA: &'static str = "busbw.watch/1";
}

/// A standstill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// When something moved last, in microseconds since 1970.
    pub since_us: u64,
    /// How long it had to last to be called one, in microseconds.
    pub limit_us: u64,
}

/// One rank, as its process shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WatchedRank {
    /// Rank in the job.
    pub rank: u32,
    /// The host that it runs on.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// State of its main thread.
    pub state: ProcessState,
    /// Since when it is in this state, in microseconds since 1970.
    pub state_since_us: u64,
    /// How its process ended.
    pub ended: Option<ProcessEnd>,
    /// Cores that its process, and what it started, used since bytes stood still, or in the last ten seconds.
    pub cores: f64,
    /// The system call that its main thread is in: `futex`.
    pub system_call: Option<String>,
    /// The function of the kernel in which its main thread waits: `futex_wait_queue`.
    pub kernel_function: Option<String>,
    /// When bytes between it and other ranks moved last, in microseconds since 1970.
    pub moved_us: Option<u64>,
    /// Bytes that it exchanged with other ranks since busbw looks on.
    pub moved_bytes: u64,
    /// The ends of its connections, by address.
    pub peers: Vec<WatchedPeer>,
}

impl WatchedRank {
    /// Whether a signal or a debugger holds it.
    pub fn is_stopped(&self) -> bool {
        self.ended.is_none() && matches!(self.state, ProcessState::Stopped | ProcessState::Traced)
    }
}

named! {
    /// The state of a process, by the letter of /proc/PID/stat.
    #[derive(Default)]
    pub enum ProcessState {
        /// R
        Running = "running",
        /// S: it waits for an event.
        Sleeping = "sleeping",
        /// D: it waits inside the kernel, for a disk or a driver, and heeds no signal.
        Uninterruptible = "uninterruptible",
        /// T: a signal has stopped it.
        Stopped = "stopped",
        /// t: a debugger has stopped it.
        Traced = "traced",
        /// Z: it has ended, and its parent has not asked how.
        Zombie = "zombie",
        /// X, or a process that is no more.
        Gone = "gone",
        /// Another letter.
        #[default]
        Unknown = "unknown",
    }
    /// The word in JSON.
    as_str
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEnd {
    /// When it was seen, in microseconds since 1970.
    pub time_us: u64,
    /// Its exit status, where it left by itself and this could be read.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl ProcessEnd {
    /// Whether it is known to have failed.
    pub fn failed(&self) -> bool {
        self.signal.is_some() || self.status.is_some_and(|status| status != 0)
    }
}

/// Who is at the other end of a rank's connections, and what is under way.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WatchedPeer {
    /// The other rank, where busbw sees its process too.
    pub rank: Option<u32>,
    /// The address.
    pub address: String,
    /// The host, where a rank's /etc/hosts or a process there names it.
    pub host: Option<String>,
    /// Whether the address is another host's.
    pub remote: bool,
    /// Number of connections.
    pub connections: u32,
    /// Bytes that were sent and that the other end has not acknowledged.
    pub unacknowledged_bytes: u64,
    /// Since when bytes to it go unacknowledged and are sent again, in microseconds since 1970.
    pub unanswered_since_us: Option<u64>,
    /// The most retransmissions in a row on one connection.
    pub retransmits: u32,
    /// Whether it acknowledges and takes nothing more: its process does not read.
    pub full: bool,
    /// Bytes that have arrived and that the rank has not read.
    pub unread_bytes: u64,
}

/// A source of facts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WatchSource {
    /// What it is: `sockets`.
    pub name: String,
    /// Whether it told anything.
    pub told: bool,
    /// What it adds; where it told nothing, why, and what it needs.
    pub detail: String,
}
