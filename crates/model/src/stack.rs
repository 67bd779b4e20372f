//! Stacks of threads, as py-spy and gdb show them.

use crate::place::SourceLine;

/// Where one thread of a process was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The process, where it is told.
    pub pid: Option<u64>,
    /// The thread's name: `MainThread`; of gdb's its number.
    pub thread: String,
    /// Its frames, the innermost first: `_next_data (torch/utils/data/dataloader.py:1329)`, `epoll_wait () from /lib/libc.so.6`.
    pub frames: Vec<SourceLine>,
}
