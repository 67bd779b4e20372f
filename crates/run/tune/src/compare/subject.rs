//! What is compared: a run read from files, from a folder of files, or from a saved result of `busbw doctor`.

use busbw_diagnose::diagnose;
use busbw_ingest::own::{Schema, explained};
use busbw_ingest::{ReadError, ReadOptions, Source, read};
use busbw_model::{ComparedFinding, Run};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// What is read to see whether a file is one.
const START: u64 = 256;

/// A run under its name.
#[derive(Debug)]
pub struct Subject {
    /// The path as given.
    pub name: String,
    pub run: Run,
    /// What `explain` makes of it: code and title.
    pub findings: Vec<ComparedFinding>,
}

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{}: no files in it; give the output of a run", .0.display())]
    EmptyFolder(PathBuf),
    /// A saved result that cannot be read.
    #[error("{}: {reason}", path.display())]
    Saved { path: PathBuf, reason: String },
}

impl Subject {
    /// Reads a run. A folder is a run whose files are its own; files of other kinds in it (programs, archives) are passed over.
    pub fn read(path: &Path) -> Result<Self, SubjectError> {
        let name = path.display().to_string();
        if let Some(saved) = read_saved(path)? {
            return Ok(Subject { name, run: saved.run, findings: saved.findings });
        }
        let run =
            if path.is_dir() { read_folder(path)? } else { read(&[Source::from_arg(path)], &ReadOptions::default())? };
        let findings = diagnose(&run)
            .findings
            .into_iter()
            .map(|found| ComparedFinding { code: found.code, title: found.title })
            .collect();
        Ok(Subject { name, run, findings })
    }
}

/// A result that `busbw doctor` or `busbw explain --json` saved (schema `busbw.explain/1`).
struct Saved {
    /// Its tables, versions and variables.
    run: Run,
    findings: Vec<ComparedFinding>,
}

/// The saved run of a file; `None` where the file is something else.
fn read_saved(path: &Path) -> Result<Option<Saved>, SubjectError> {
    // If the file cannot be opened, reading it as a log reports the error.
    let Ok(mut file) = File::open(path).map(|file| file.take(START)) else { return Ok(None) };
    let mut start = Vec::new();
    if !path.is_file() || file.read_to_end(&mut start).is_err() || Schema::of(&start) != Some(Schema::Explain) {
        return Ok(None);
    }
    let failed = |reason: String| SubjectError::Saved { path: path.to_path_buf(), reason };
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let explained = explained(&text).map_err(|error| failed(format!("no whole result of busbw.explain/1: {error}")))?;
    let findings = explained.findings.into_iter().map(|(code, _, title)| ComparedFinding { code, title }).collect();
    Ok(Some(Saved { run: explained.run, findings }))
}

fn read_folder(folder: &Path) -> Result<Run, SubjectError> {
    let failed = |source| SubjectError::Folder { path: folder.to_path_buf(), source };
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(|path| is_text(path)).collect();
    files.sort();
    if files.is_empty() {
        return Err(SubjectError::EmptyFolder(folder.to_path_buf()));
    }
    let sources: Vec<Source> = files.into_iter().map(Source::Path).collect();
    Ok(read(&sources, &ReadOptions::default())?)
}

/// Whether a file can be read at all, by itself: an archive beside the logs must not hide them.
fn is_text(path: &Path) -> bool {
    path.is_file()
        && !matches!(
            read(&[Source::Path(path.to_path_buf())], &ReadOptions::default()),
            Err(ReadError::Binary { .. } | ReadError::Empty(_))
        )
}
