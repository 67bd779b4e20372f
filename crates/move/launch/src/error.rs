//! What can go wrong between starting a job and its first operation, with the place and the remedy.

use std::io;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// How ranks find each other without a launcher's key-value store.
pub(crate) const BY_HAND: &str =
    "set BUSBW_RENDEZVOUS=ADDRESS:PORT of rank 0's host and BUSBW_TOKEN (32 hexadecimal digits) on every rank";

/// How ranks get a token that nobody else knows.
pub(crate) const SET_TOKEN: &str = "set BUSBW_TOKEN=$(openssl rand -hex 16), the same on every rank";

/// The exit status of what this machine cannot do: automake, Meson and CTest's users read it as a test that was skipped
/// (<https://www.gnu.org/software/automake/manual/html_node/Scripts_002dbased-Testsuites.html>).
pub const NOT_APPLICABLE: u8 = 77;

/// An error of starting or joining a job. Messages are one line and say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment is missing, malformed, or contradicts another.
    #[error("{variable}={value:?} {problem}")]
    Variable {
        variable: String,
        value: String,
        /// What is wrong with it and what to do, to be read after the value: `is no number; …`.
        problem: String,
    },
    /// This process was started as one of several and cannot find the others.
    #[error("{0}")]
    Join(String),
    /// The job has failed: the reason, which names the rank and host at fault.
    #[error("{0}")]
    Job(String),
    /// The launcher ended before it had started the ranks on these hosts; it has said why in its own way.
    #[error("no ranks were started on {0}; see what the launcher says above, and what `busbw check --hosts {0}` says")]
    NotStarted(String),
    /// What the user asked for cannot be followed: a host list, a command.
    #[error("{0}")]
    Usage(String),
    /// No host of the job has what this needs: a device, or a program that busbw starts. Nothing was asked wrongly.
    #[error("{0}")]
    Missing(String),
    /// The operating system, a token or an exchange failed.
    #[error(transparent)]
    Net(#[from] busbw_transport::Error),
}

impl Error {
    /// The exit status of a command that ends so.
    pub fn status(&self) -> u8 {
        if matches!(self, Error::Missing(_)) { NOT_APPLICABLE } else { 2 }
    }

    /// Names a variable, its value and what is wrong with it.
    pub(crate) fn variable(variable: &str, value: &str, problem: impl Into<String>) -> Self {
        Error::Variable { variable: variable.into(), value: value.into(), problem: problem.into() }
    }

    /// Wraps the operating system's error with what was tried.
    pub fn system(doing: impl Into<String>, source: io::Error) -> Self {
        busbw_transport::Error::system(doing, source).into()
    }
}
