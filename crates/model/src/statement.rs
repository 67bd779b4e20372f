//! What a line says and who says it: the evidence that signatures look at.

use crate::place::SourceLine;
use serde::Deserialize;

named! {
    /// Who printed a line. It is recognised by its form (a prefix, a format), never by a word.
    pub enum Speaker {
        /// NCCL at any level: rules ask for it, lines have one of the next two.
        Nccl = "nccl",
        /// NCCL or RCCL, as a warning: `host:pid:tid [dev] file.cc:1 NCCL WARN …`.
        NcclWarn = "nccl.warn",
        /// NCCL or RCCL in passing: `NCCL INFO`.
        NcclInfo = "nccl.info",
        /// nccl-tests, `host: Test NCCL failure common.cu:1 '…'`.
        NcclTests = "nccl-tests",
        /// A network library below NCCL: `libfabric:pid:…`, `[time] [host:pid] file.c:1 UCX ERROR …`.
        NetLibrary = "net-library",
        /// PyTorch's C++ log: `[rank0]:[E… ProcessGroupNCCL.cpp:1] …`.
        Torch = "torch",
        /// The exception that ended a Python process.
        Python = "python",
        /// A crash handler, the C++ or Rust runtime, or a shell that reports a signal.
        Crash = "crash",
        /// mpirun, srun, torchrun, Ray, kubelet.
        Launcher = "launcher",
        /// OpenSSH's client, which launchers use, and other programs.
        Ssh = "ssh",
        /// The kernel: `[12.3] NVRM: …`, `kernel: …`.
        Kernel = "kernel",
        /// The job's own program, or a person. Never evidence of an error: rules cannot ask for it.
        #[serde(skip)]
        Program = "program",
    }
    /// As files of signatures write it.
    as_str
}

/// How bad a program calls what it logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What is good to know.
    Note,
    /// A warning.
    Warning,
    /// A failure.
    Error,
}

/// A line that no reader makes a fact of, kept because its speaker may show a cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Who printed it.
    pub speaker: Speaker,
    /// The host, where the line names it.
    pub host: Option<String>,
    /// The line.
    pub source: SourceLine,
    /// The level at which a program's logger wrote it.
    pub level: Option<LogLevel>,
    /// Where its text begins in the line, behind launchers' labels and time stamps.
    pub begins: usize,
    /// Where its message begins, behind the level and the like of a logger, if one wrote it.
    pub message: usize,
}

impl Statement {
    /// What it says.
    pub fn text(&self) -> &str {
        self.source.text.get(self.begins..).unwrap_or_default().trim_start()
    }

    /// What it says behind what a logger puts in front.
    pub fn message(&self) -> &str {
        self.source.text.get(self.message..).unwrap_or_default().trim_start()
    }
}

/// The name, the status and the age in a row of `kubectl get pods`, with the namespace in front or without: NAME READY STATUS RESTARTS AGE.
///
/// ```
/// assert_eq!(busbw_model::pod_row("ml  train-0  0/1  ErrImagePull  0  9s"), Some(("train-0", "ErrImagePull", "9s")));
/// ```
pub fn pod_row(line: &str) -> Option<(&str, &str, &str)> {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let is_ready = |word: &str| word.split_once('/').is_some_and(|(up, all)| is_number(up) && is_number(all));
    let mut words = line.split_whitespace();
    let (mut name, mut ready) = (words.next()?, words.next()?);
    if !is_ready(ready) {
        (name, ready) = (ready, words.next()?);
    }
    let (status, restarts) = (words.next()?, words.next()?);
    let age = words.find(|word| !word.ends_with("ago)") && !word.starts_with('('))?;
    // Of clocks that differ kubectl prints `<invalid>`.
    let is_age = age.starts_with(|c: char| c.is_ascii_digit()) && age.ends_with(['s', 'm', 'h', 'd', 'y'])
        || age.starts_with('<');
    (is_ready(ready) && is_number(restarts) && is_age).then_some((name, status, age))
}
