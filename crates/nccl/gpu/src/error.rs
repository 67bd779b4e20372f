//! What can go wrong with a library or a GPU, with the remedy.

use std::path::PathBuf;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a library that was opened, or of opening one. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such library is where libraries are looked for.
    #[error("{name} was not found {searched}; {remedy}")]
    Missing {
        /// Its file name: `libnccl.so.2`.
        name: &'static str,
        /// Where it was looked for: `on the library path, …`.
        searched: String,
        remedy: &'static str,
    },
    /// This program cannot open any library.
    #[error("{name} is needed, and {reason}")]
    Static {
        /// Its file name: `libnccl.so.2`.
        name: &'static str,
        reason: &'static str,
    },
    /// A library is there, and cannot be opened.
    #[error("{path} cannot be opened: {reason}; {remedy}")]
    Unusable { path: PathBuf, reason: String, remedy: &'static str },
    #[error("{path} has no function {symbol}: {remedy}")]
    Symbol { path: PathBuf, symbol: &'static str, remedy: &'static str },
    /// This version of NCCL lacks something.
    #[error("{what} needs NCCL {needed} or later, and {path} is {found}: name a later one with --nccl-library")]
    Version {
        /// What was asked for: `-R 2`.
        what: String,
        /// Since which version NCCL has it.
        needed: crate::nccl::Version,
        found: crate::nccl::Version,
        path: PathBuf,
    },
    /// There is no GPU that this process may use.
    #[error("{0}")]
    NoGpu(String),
    /// The driver is there and does not start: a GPU may well be there.
    #[error("{0}")]
    Driver(String),
    /// A call of the driver failed.
    #[error("{call}: {name}{description}")]
    Cuda {
        call: &'static str,
        /// The error's name: `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// `: out of memory`, where the driver says more.
        description: String,
        code: i32,
    },
    #[error("NVRTC does not compile the kernels of checks: {0}")]
    Compile(String),
    #[error("{call}: {result}{last}")]
    Nccl {
        call: &'static str,
        /// What it returned.
        result: busbw_nccl_abi::NcclResult,
        /// `: what NCCL last warned of`, where it did.
        last: String,
    },
}

impl Error {
    /// Whether this machine has no GPU or library at all, so that nothing is wrong with it or with what was asked for.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Missing { .. } | Error::Static { .. } | Error::NoGpu(_))
    }
}
