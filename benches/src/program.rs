//! What every program of the benchmarks does alike: it ends with its error, and names the file that failed.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// A file or folder that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    path: String,
    error: io::Error,
}

impl FileError {
    /// Makes the error of an operation on `path`: `fs::read(path).map_err(FileError::at(path))`.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError {
        let path = path.display().to_string();
        move |error| FileError { path, error }
    }
}

/// What a benchmark gives, or why it did not finish, in words.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub fn failed(command: &str, how: &str, said: &str) -> Box<dyn std::error::Error + Send + Sync> {
    let said = if said.is_empty() { String::new() } else { format!(":\n{said}") };
    format!("{command} {how}{said}").into()
}

/// The exit status of the program called `name`: 2 after an error, which is printed.
pub fn exit<E: Display>(name: &str, result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}
