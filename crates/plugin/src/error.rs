//! What can keep `busbw net` from an answer, with the place and the remedy.

use std::io;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer. Messages are one line and say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Usage(String),
    /// The ranks could not be started, or could not meet.
    #[error(transparent)]
    Launch(#[from] busbw_launch::Error),
    /// The ranks lost each other.
    #[error(transparent)]
    Net(#[from] busbw_net::Error),
    /// A call of the operating system failed.
    #[error("{doing}: {source}")]
    System {
        /// What was tried, on what.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>, source: io::Error) -> Self {
        Error::System { doing: doing.into(), source }
    }
}
