//! Results that `busbw doctor` and `busbw explain --json` saved (schema `busbw.explain/1`).

use super::SubjectError;
use busbw_ingest::own::{Schema, explained};
use busbw_model::{Code, Run};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// What is read to see whether a file is one.
const START: u64 = 256;

/// A saved run.
pub struct Saved {
    /// Its tables, versions and variables.
    pub run: Run,
    pub findings: Vec<(Code, String)>,
}

/// The saved run of a file; `None` where the file is something else.
pub fn read(path: &Path) -> Result<Option<Saved>, SubjectError> {
    // If the file cannot be opened, reading it as a log reports the error.
    let Ok(mut file) = File::open(path).map(|file| file.take(START)) else { return Ok(None) };
    let mut start = Vec::new();
    if !path.is_file() || file.read_to_end(&mut start).is_err() || Schema::of(&start) != Some(Schema::Explain) {
        return Ok(None);
    }
    let failed = |reason: String| SubjectError::Saved { path: path.to_path_buf(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let explained = explained(&text).map_err(|error| failed(format!("no whole result of busbw.explain/1: {error}")))?;
    let findings = explained.findings.into_iter().map(|(code, _, title)| (code, title)).collect();
    Ok(Some(Saved { run: explained.run, findings }))
}
