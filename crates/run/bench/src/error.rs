//! What can go wrong in a benchmark, with the place and the remedy.

use busbw_launch::NOT_APPLICABLE;
use std::io;
use std::path::PathBuf;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// How ranks hear from rank 0 that it cannot go on.
const UNWRITTEN: &str = "writing the table: ";
const UNREAD: &str = "its reader is gone";

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// An error of the benchmark. Every message is one line that names the flag, variable, file or rank and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag has a value that it cannot have.
    #[error("{}: {allowed}", format!("{flag} {value}").trim_end())]
    Flag {
        /// The flag as it is written: `-K,--per_iter_skip`.
        flag: &'static str,
        value: String,
        allowed: String,
    },
    /// An environment variable, or a file that it names, cannot be followed.
    #[error("{0}")]
    Setting(String),
    /// No host of the job has the GPU or the library that the backend needs.
    #[error("{0}")]
    Missing(String),
    /// The ranks, or the backend that carries them, cannot run what was asked for.
    #[error("{0}")]
    Job(String),
    /// A rank, or the way to it, failed.
    #[error(transparent)]
    Rank(#[from] busbw_transport::Error),
    /// The job could not be started or joined.
    #[error(transparent)]
    Launch(#[from] busbw_launch::Error),
    #[error("{UNWRITTEN}{}", if is_gone(.0) { UNREAD.to_owned() } else { .0.to_string() })]
    Output(#[source] io::Error),
    /// The file of `-J` cannot be written.
    #[error("-J,--output_file {path}: {source}")]
    Json { path: PathBuf, source: io::Error },
}

impl Error {
    /// The exit status: 2 when nothing was started because of what was asked for, 1 when a run failed, and that of
    /// [`NOT_APPLICABLE`] when this machine cannot do it.
    pub fn status(&self) -> u8 {
        match self {
            Error::Missing(_) => NOT_APPLICABLE,
            Error::Launch(error) => error.status(),
            Error::Flag { .. } | Error::Setting(_) | Error::Output(_) => 2,
            Error::Job(_) if self.is_told_by_rank_0() => 2,
            Error::Job(_) | Error::Rank(_) | Error::Json { .. } => 1,
        }
    }

    /// Whether this rank had to end because rank 0 cannot write, which says so itself.
    pub fn is_told_by_rank_0(&self) -> bool {
        matches!(self, Error::Job(reason) if reason.contains(UNWRITTEN))
    }

    /// Whether the reader of standard output has seen enough.
    pub fn is_unread(&self) -> bool {
        match self {
            Error::Output(error) => is_gone(error),
            Error::Job(reason) => self.is_told_by_rank_0() && reason.ends_with(UNREAD),
            _ => false,
        }
    }

    /// A flag with a value that it cannot have.
    pub(crate) fn flag(flag: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Error::Flag { flag, value: value.to_string(), allowed: allowed.into() }
    }
}
