//! What a benchmark found and where that goes: `benches/results`, a file per kind and day.

use crate::machine::{Commit, Machine, utc_now};
use crate::program::{FileError, Outcome};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// How every result begins: its form, and when, of what and on what it was measured.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// The benchmark, with the version of the result's form: `busbw.bench-tune/1`.
    pub schema: &'static str,
    /// As RFC 3339 writes it.
    pub date: String,
    /// What was measured; none outside a git repository.
    pub commit: Option<Commit>,
    /// What measured.
    pub machine: Machine,
}

impl Origin {
    /// A result of now, of the commit checked out here, on this machine.
    pub fn now(schema: &'static str) -> Self {
        Origin { schema, date: utc_now(), commit: Commit::checked_out(), machine: Machine::this() }
    }

    /// The day, `2026-03-31`.
    pub fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or_default()
    }
}

/// Where a result was written.
#[derive(Debug)]
pub struct Recorded {
    json: PathBuf,
    tables: Option<PathBuf>,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.json.display())?;
        self.tables.iter().try_for_each(|tables| write!(f, " and {}", tables.display()))
    }
}

/// Writes a result as JSON to `path`, and its tables, if any, as markdown beside it.
pub fn record(path: PathBuf, result: &impl Serialize, tables: Option<String>) -> Outcome<Recorded> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(FileError::at(folder))?;
    }
    let mut json = serde_json::to_string_pretty(result).map_err(|error| format!("the result is no JSON: {error}"))?;
    json.push('\n');
    fs::write(&path, json).map_err(FileError::at(&path))?;
    let beside = path.with_extension("md");
    if let Some(tables) = &tables {
        fs::write(&beside, tables).map_err(FileError::at(&beside))?;
    }
    Ok(Recorded { json: path, tables: tables.map(|_| beside) })
}

/// The file that was asked for, or the first name of the day that no file has: `benches/results/peers-2026-03-31.json`; a
/// second result of a day gets `-2`.
pub fn place(asked: Option<&Path>, kind: &str, origin: &Origin) -> PathBuf {
    if let Some(path) = asked {
        return path.to_path_buf();
    }
    let name = |suffix: &str| PathBuf::from(format!("benches/results/{kind}-{}{suffix}.json", origin.day()));
    let mut path = name("");
    let mut number = 2;
    while path.exists() {
        path = name(&format!("-{number}"));
        number += 1;
    }
    path
}
