//! Why a connection is unusable, kept so that every later call says the same.

use crate::Error;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A connection's end, without the peer's name, which is added when it is reported.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    Closed,
    /// Nothing was heard of the peer's host for too long.
    Silent,
    Protocol(String),
    Mismatch(String),
    Corrupt(String),
    System {
        doing: &'static str,
        code: i32,
    },
}

impl Failure {
    /// A failed call; those by which the system says that the peer is gone are [`Failure::Closed`].
    pub fn system(doing: &'static str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Failure::Closed
            }
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => Failure::Silent,
            _ => Failure::System { doing, code: error.raw_os_error().unwrap_or(libc::EIO) },
        }
    }

    /// The error to tell, about `peer`.
    pub fn error(&self, peer: &str) -> Error {
        match self {
            Failure::Closed => Error::Closed { peer: peer.to_owned() },
            Failure::Silent => Error::Silent { peer: peer.to_owned() },
            Failure::Protocol(what) => Error::Protocol { peer: peer.to_owned(), what: what.clone() },
            Failure::Mismatch(what) => Error::Mismatch { peer: peer.to_owned(), what: what.clone() },
            Failure::Corrupt(what) => Error::Corrupt { peer: peer.to_owned(), what: what.clone() },
            Failure::System { doing, code } => {
                Error::system(format!("{doing} {peer}"), io::Error::from_raw_os_error(*code))
            }
        }
    }
}

/// The first failure of a connection, shared by the threads that move its bytes.
#[derive(Default)]
pub(super) struct FirstFailure {
    failed: AtomicBool,
    first: Mutex<Option<Failure>>,
}

impl FirstFailure {
    pub fn set(&self, failure: Failure) {
        self.first.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
    }

    pub fn get(&self) -> Option<Failure> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.first.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
