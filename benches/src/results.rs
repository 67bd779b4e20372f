//! Where results go: `benches/results`, a file per kind and day.

use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A result could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file or folder cannot be written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The result could not be put into JSON.
    #[error("the result is no JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes a result as JSON to `path`, and its tables, if any, as markdown beside it. Returns where the tables are.
///
/// # Errors
/// A file cannot be written.
pub fn record(path: &Path, result: &impl Serialize, tables: Option<String>) -> Result<PathBuf, RecordError> {
    let failed = |path: &Path, error| RecordError::File { path: path.display().to_string(), error };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    let mut json = serde_json::to_string_pretty(result)?;
    json.push('\n');
    fs::write(path, json).map_err(|error| failed(path, error))?;
    let beside = path.with_extension("md");
    if let Some(tables) = tables {
        fs::write(&beside, tables).map_err(|error| failed(&beside, error))?;
    }
    Ok(beside)
}

/// The first name of the day that no file has: `benches/results/peers-2026-03-31.json`; a second result of a day gets `-2`.
/// `date` is a time as RFC 3339 writes it.
pub fn free_name(kind: &str, date: &str) -> PathBuf {
    let day = date.split('T').next().unwrap_or_default();
    let name = |suffix: &str| PathBuf::from(format!("benches/results/{kind}-{day}{suffix}.json"));
    let mut path = name("");
    let mut number = 2;
    while path.exists() {
        path = name(&format!("-{number}"));
        number += 1;
    }
    path
}
