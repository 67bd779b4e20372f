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
    /// It reached a parent that waits for its children: it passes on what became of one of them.
    pub relays: bool,
    /// Who tells of it.
    pub told_by: EndTeller,
    /// The same stream printed more of what it had printed before: the process went on.
    pub went_on: bool,
    /// A program wrote it to its log as a warning or an error: most such processes go on.
    pub logged: bool,
    /// The exception that it was raised from, the first of several.
    pub raised_from: Option<Box<Ended>>,
    /// Its traceback does not begin where the process does: it was caught, or somebody cut off the beginning.
    pub caught: bool,
    /// Where the program was, by its traceback.
    pub call: Option<CollectiveCall>,
    /// The frames of its traceback outside PyTorch, the outermost first.
    pub frames: Vec<ProgramFrame>,
    /// Its number on its host, by torchrun; [`RankEnd::ranks`] has the number in the job where it follows.
    pub local: Option<u32>,
    /// torchrun's report names it as the first that failed.
    pub first: bool,
    /// The line that shows the end.
    pub source: SourceLine,
}

/// Where a program was when an exception reached it, as its traceback shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CollectiveCall {
    /// The function of `torch.distributed`: `all_reduce`; none where the program waits for what it called before.
    pub operation: Option<String>,
    /// The innermost frame outside PyTorch: `train.py:88`.
    pub at: Option<String>,
}

/// A frame of a program: `train.py`, `main`, 88.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFrame {
    /// The file without its folders.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line.
    pub line: u32,
}

/// The output of one rank, or of all whose rank nothing tells, apart from how they ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankOutput {
    /// The rank, as a label or the name of the input tells it, or the numbers of its host.
    pub rank: Option<u32>,
    /// Its number on its host, by torchrun.
    pub local: Option<u32>,
    /// The host, where the number followed from it.
    pub host: Option<String>,
    /// Its last line that is of no traceback.
    pub last: SourceLine,
}

impl RankEnd {
    /// Whether the program dealt with it, as far as the output shows: most such processes go on.
    pub fn is_handled(&self) -> bool {
        self.logged || self.caught
    }

    /// Whether it tells that the whole run ended well, as MLPerf's log does: what a launcher or a script started may be one part of several.
    pub fn ended_run_well(&self) -> bool {
        self.how == Ended::Success && self.told_by == EndTeller::Job
    }

    /// Whether nobody caught a rank's exception (PyTorch's `_distributed_excepthook` labels it). Ranks may leave in order behind it: by `finally`, or where
    /// what NCCL printed lay in a buffer.
    pub fn is_of_excepthook(&self) -> bool {
        matches!(self.how, Ended::Exception { traceback: true, .. }) && !self.ranks.is_empty() && !self.is_handled()
    }

    /// An end of which only the way is known.
    pub fn of(how: Ended) -> Self {
        let (ranks, host, pid, command, source) = (Vec::new(), None, None, None, SourceLine::default());
        let (call, local, first) = (None, None, false);
        RankEnd {
            ranks,
            host,
            pid,
            command,
            how,
            child: false,
            relays: false,
            told_by: EndTeller::Job,
            went_on: false,
            logged: false,
            raised_from: None,
            caught: false,
            call,
            frames: Vec::new(),
            local,
            first,
            source,
        }
    }
}

/// Who tells of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndTeller {
    /// The process itself, or what looks after it.
    Job,
    /// What started the ranks, once their launch is over: srun, mpirun, torchrun.
    Launcher,
    /// What runs commands one after the other, as a shell or `make` does: it may go on with the next.
    Runner,
    /// A list of what runs on a cluster: others' as well.
    List,
    /// A library that raises an error: its caller may handle it.
    Library,
    /// What reports on a whole job, as a batch system's mail does: it stands in front of the job's output or behind it.
    Report,
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
        /// The text after the kind.
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
    /// The other ranks of busbw's heard no more of it, with what they say: `has not answered for 60 s`.
    Lost(String),
    /// Somebody stopped the run: `Ctrl-C`, `Slurm: time limit`.
    Interrupted(String),
}

impl Ended {
    /// By whom a run is interrupted that somebody looks at.
    pub const CTRL_C: &str = "Ctrl-C";
}
