//! Limits, memory, libraries, programs and the clock of a node.

use serde::{Deserialize, Serialize};

/// A limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// There is none.
    #[default]
    Unlimited,
    /// Bytes, or a count.
    At(u64),
}

impl Bound {
    /// Whether it is less than `least`.
    pub fn is_below(self, least: u64) -> bool {
        matches!(self, Bound::At(value) if value < least)
    }
}

/// A limit as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinuxLimit {
    /// What is in force.
    pub soft: Bound,
    /// How far a program may raise it.
    pub hard: Bound,
}

/// Limits of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory that it may lock, in bytes (`ulimit -l`).
    pub locked_memory: LinuxLimit,
    /// Whether that limit does not bind it: it was given CAP_IPC_LOCK, as containers for RDMA are.
    #[serde(default)]
    pub may_lock_all: bool,
    /// Open files (`ulimit -n`).
    pub open_files: LinuxLimit,
    /// Processes (`ulimit -u`).
    pub processes: LinuxLimit,
}

/// A file system in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemory {
    /// Bytes in all.
    pub size_bytes: u64,
    /// Bytes left.
    pub free_bytes: u64,
}

/// Huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HugePages {
    /// Pages set aside.
    pub pages: u64,
    /// Of these, free.
    pub free: u64,
    /// Bytes of one.
    pub page_bytes: u64,
    /// Whether the kernel makes huge pages by itself: `always`, `madvise`, `never`.
    pub transparent: Option<String>,
}

/// A library that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// Where.
    pub path: String,
    /// Its version: `2.21.5`.
    pub version: Option<String>,
    /// The CUDA version that it was built for: `12.4`.
    pub cuda: Option<String>,
}

/// A program on the PATH.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// `mpirun`.
    pub name: String,
    /// Where it is; none where it is not on the PATH.
    pub path: Option<String>,
    /// The first line of what it says of its version.
    pub version: Option<String>,
}

/// The clock of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Whether the kernel holds it for synchronised.
    pub synchronised: bool,
    /// The kernel's bound of its error, in µs.
    pub error_us: u64,
    /// What it showed when all nodes were asked at once, in µs since 1970; none where no others were asked.
    pub together_us: Option<u64>,
}

/// The tuning table that NCCL's tuner plugin goes by on a node, and why it does not where it cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TuningTableFile {
    /// Where it lies.
    pub path: String,
    /// The first 12 digits of the SHA-256 of its bytes, as the tuner writes it into NCCL's log; `None` where it cannot be read.
    pub sha256: Option<String>,
    /// How many choices it has.
    pub choices: Option<usize>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}
