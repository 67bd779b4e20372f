//! What goes wrong in the crates, as the exceptions that Python has for it.

use busbw_ingest::ReadError;
use busbw_predict::cluster::{DescriptionError, Underivable};
use busbw_tune::compare::{CompareError, SubjectError};
use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyIsADirectoryError, PyOSError, PyPermissionError, PyValueError};

/// Why there is no answer: one line that names the place and the remedy, and the kind of exception.
pub struct Failure {
    raise: fn(String) -> PyErr,
    message: String,
}

impl Failure {
    /// A `ValueError`: the input was read, and there is something wrong with it.
    pub fn value(message: impl Into<String>) -> Self {
        Failure { raise: PyValueError::new_err, message: message.into() }
    }

    /// The exception of an error of the system, about a path.
    pub fn io(path: &std::path::Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let raise = match error.kind() {
            ErrorKind::NotFound => PyFileNotFoundError::new_err,
            ErrorKind::PermissionDenied => PyPermissionError::new_err,
            ErrorKind::IsADirectory => PyIsADirectoryError::new_err,
            _ => PyOSError::new_err,
        };
        Failure { raise, message: format!("{}: {error}", path.display()) }
    }

    /// A description with a fault, under the name that it was given by.
    pub fn description(name: &str, error: &DescriptionError) -> Self {
        Failure::value(format!("{name}:{}: {}; {}", error.line, error.message, error.remedy))
    }

    /// Runs that show too little of their cluster.
    pub fn underivable(names: &str, error: &Underivable) -> Self {
        Failure::value(format!("{names}: {error}"))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        (failure.raise)(failure.message)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let raise = match &error {
            ReadError::NotFound(_) => PyFileNotFoundError::new_err,
            ReadError::Directory(_) => PyIsADirectoryError::new_err,
            ReadError::Permission(_) => PyPermissionError::new_err,
            ReadError::Io { .. } => PyOSError::new_err,
            ReadError::NoInput
            | ReadError::Empty(_)
            | ReadError::EmptyFolder(_)
            | ReadError::LeftOut { .. }
            | ReadError::Binary { .. }
            | ReadError::Unknown(_)
            | ReadError::Problem(..) => PyValueError::new_err,
        };
        Failure { raise, message: error.to_string() }
    }
}

impl From<SubjectError> for Failure {
    fn from(error: SubjectError) -> Self {
        match error {
            SubjectError::Read(error) => error.into(),
            SubjectError::Folder { path, source } => Failure::io(&path, &source),
            error @ (SubjectError::EmptyFolder(_) | SubjectError::Saved { .. }) => Failure::value(error.to_string()),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        Failure::value(error.to_string())
    }
}
