//! The benchmark of racing settings: over many seeds on a simulated workload ([`simulated`]), and on two hosts of the lab
//! whose TCP flows are limited ([`hosts`]).

pub mod hosts;
pub mod simulated;

use crate::lab::LabError;
use crate::program::FileError;
use crate::results::RecordError;
use std::path::PathBuf;

/// The benchmark could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    #[error("{0}; run it from the repository's root")]
    File(#[from] FileError),
    #[error("{}: a line is no setting with mean and deviation: {line}", path.display())]
    Line { path: PathBuf, line: String },
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("busbw tune {0}")]
    Sweep(String),
    #[error(transparent)]
    Record(#[from] RecordError),
}
