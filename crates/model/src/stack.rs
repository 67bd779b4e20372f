//! Stacks of threads, as py-spy and gdb show them, and the state of processes.

use crate::place::SourceLine;

/// Where one thread of a process was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The rank, where the name of the input or a label tells it.
    pub rank: Option<u32>,
    /// The process, if known.
    pub pid: Option<u64>,
    /// The thread's name: `MainThread`; of gdb's its number.
    pub thread: String,
    /// Whether it ran, where py-spy tells: `active`, not `idle`.
    pub active: Option<bool>,
    /// Its frames, the innermost first: `_next_data (torch/utils/data/dataloader.py:1329)`, `epoll_wait () from /lib/libc.so.6`.
    pub frames: Vec<SourceLine>,
}

/// A connection over TCP, as `ss -tinp` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// The process, if known.
    pub pid: Option<u64>,
    /// The address on this host, without the port.
    pub local: String,
    /// The address at the other end, without the port.
    pub peer: String,
    /// What was sent is not acknowledged and was sent again: nothing gets through.
    pub is_stuck: bool,
    /// How long an answer takes of late, in microseconds, and how long it took at best.
    pub round_trip: Option<(u64, u64)>,
    /// How long ago the other end last answered, in milliseconds.
    pub quiet_ms: Option<u64>,
    /// The line.
    pub source: SourceLine,
}

/// A launcher that was told to end its ranks and is not seen to end itself: one of them at least does not react to signals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnendedLauncher {
    /// The ranks that it started.
    pub ranks: Vec<u32>,
    /// The line in which it is told to.
    pub source: SourceLine,
}

/// A process that is stopped: in state T by `/proc/PID/status` or `ps`, or torchrun's SIGTERM did not end it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedProcess {
    /// The rank, where the name of the input tells it.
    pub rank: Option<u32>,
    /// The process, if known.
    pub pid: Option<u64>,
    /// The line.
    pub source: SourceLine,
}
