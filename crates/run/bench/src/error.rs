//! What can go wrong in a benchmark, with the place and the remedy.

use std::io;
use std::path::PathBuf;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

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
    /// The ranks, or the backend that carries them, cannot run what was asked for.
    #[error("{0}")]
    Job(String),
    /// A rank, or the way to it, failed.
    #[error(transparent)]
    Rank(#[from] busbw_transport::Error),
    /// The job could not be started or joined.
    #[error(transparent)]
    Launch(#[from] busbw_launch::Error),
    #[error("writing the table: {0}")]
    Output(#[source] io::Error),
    /// The file of `-J` cannot be written.
    #[error("-J,--output_file {path}: {source}")]
    Json { path: PathBuf, source: io::Error },
}

impl Error {
    /// The exit status: 2 when nothing was started because of what was asked for, 1 when a run failed.
    pub fn status(&self) -> u8 {
        match self {
            Error::Flag { .. } | Error::Setting(_) | Error::Launch(_) => 2,
            Error::Job(_) | Error::Rank(_) | Error::Output(_) | Error::Json { .. } => 1,
        }
    }

    /// A flag with a value that it cannot have.
    pub(crate) fn flag(flag: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Error::Flag { flag, value: value.to_string(), allowed: allowed.into() }
    }
}
