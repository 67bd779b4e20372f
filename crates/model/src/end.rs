//! How the processes of a run ended, as their own last lines and their launchers tell.

use crate::place::SourceLine;

/// The end of one process, or of several that a launcher names in one line.
#[derive(Debug, Clone, PartialEq)]
pub struct RankEnd {
    /// The ranks, where a label or the launcher names them.
    pub ranks: Vec<u32>,
    /// The host, where it is named.
    pub host: Option<String>,
    /// The process, where it is named.
    pub pid: Option<u64>,
    /// The command, where a shell reports a child: `python train.py`.
    pub command: Option<String>,
    /// How it ended.
    pub how: Ended,
    /// `multiprocessing` started it: its stack begins there.
    pub child: bool,
    /// The same stream printed more of what it had printed before: the process went on.
    pub went_on: bool,
    /// A program wrote it to its log as a warning or an error, or its traceback does not begin where the process does: it was
    /// caught, and most such processes go on.
    pub logged: bool,
    /// The line that shows the end.
    pub source: SourceLine,
}

impl RankEnd {
    /// An end of which only the way is known.
    pub fn of(how: Ended) -> Self {
        let (ranks, host, pid, command, source) = (Vec::new(), None, None, None, SourceLine::default());
        RankEnd { ranks, host, pid, command, how, child: false, went_on: false, logged: false, source }
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// In order: MLPerf's `run_stop` with status success, a launcher that saw exit status 0.
    Success,
    /// An exception of Python.
    Exception {
        /// `FileNotFoundError`, `torch.distributed.DistBackendError`.
        kind: String,
        /// What stands behind the kind.
        message: String,
        /// The innermost frame: `pretrain.py:451`.
        at: Option<String>,
        /// It ended a traceback; else the line stands alone.
        traceback: bool,
    },
    /// A signal of the process's own making, or the C++ or Rust runtime that gave up.
    Crash {
        /// `Segmentation fault`, `c10::Error`.
        what: String,
        /// The library of the innermost frame that is not the C library's.
        library: Option<String>,
        /// The message of the runtime, without its prefix.
        message: String,
    },
    /// A program of NCCL's own gave up, with what it says: nccl-tests, the examples of NCCL's documentation.
    Failure(String),
    /// The launcher saw an exit status that is not 0.
    Exit(Option<i32>),
    /// From outside, with what says so: `Terminated`, `Killed`, `oom_kill`.
    Killed(String),
    /// Somebody stopped the run: `Ctrl-C`, `Slurm: time limit`.
    Interrupted(String),
}
