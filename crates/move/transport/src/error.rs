//! What can go wrong between two ranks, with the peer and what to do about it.

use std::io;

/// The result of a transport's call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a transport. Messages name the peer, and what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed a connection that is still in use: its process has ended.
    #[error("{peer} closed the connection; look at that rank's output for why it ended")]
    Closed {
        /// Who: `10.77.0.2:4711`, or a rank.
        peer: String,
    },
    /// The peer's host does not answer any more: it is down, or the network between is.
    #[error("{peer} does not answer any more; look at that host and at the network between")]
    Silent {
        /// The other rank, or its address.
        peer: String,
    },
    /// The job's [`crate::Cancellation`] was triggered: another part of the job has failed, and waiting is over.
    #[error("{0}")]
    Cancelled(String),
    /// A call of the operating system failed.
    #[error("{doing}: {source}")]
    System {
        /// What was tried, on what: `connect to 10.77.0.2:4711 from eth0`.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// What arrived is not what the protocol allows: another program, another version, or another job.
    #[error("{peer} sent {what}; check that every rank runs the same busbw")]
    Protocol {
        /// The other rank, or its address.
        peer: String,
        /// Description of the unexpected message.
        what: String,
    },
    /// What arrived does not fit what was posted for it: the two sides run different operations or settings.
    #[error("{peer} sent {what}; the ranks differ in what they run, or in settings such as NCCL_ALGO and NCCL_PROTO")]
    Mismatch {
        /// The other rank, or its address.
        peer: String,
        /// What came, and what was expected.
        what: String,
    },
    /// A checksum found that bytes changed on their way.
    #[error("{what} from {peer} was damaged on its way; look for errors of the NICs, cables and memory of both hosts")]
    Corrupt {
        /// The other rank, or its address.
        peer: String,
        /// Description of the damaged message.
        what: String,
    },
    /// A setting cannot be followed.
    #[error("{0}")]
    Config(String),
}

impl Error {
    /// Wraps the operating system's error with what was tried.
    pub fn system(doing: impl Into<String>, source: io::Error) -> Self {
        Error::System { doing: doing.into(), source }
    }

    /// Wraps the operating system's last error (`errno`) with what was tried.
    pub fn last_os(doing: impl Into<String>) -> Self {
        Error::system(doing, io::Error::last_os_error())
    }
}
