//! What a folder holds: every file below it, in order of name.

use crate::source::{ReadError, Source};
use std::fs;
use std::path::{Path, PathBuf};

impl Source {
    /// What a path of a command line stands for: itself, `-` standard input, or, where it is a folder, every file below it in
    /// order of name. Hidden files and what is no regular file are left out, and told.
    ///
    /// # Errors
    /// The folder cannot be listed, or no file is in it.
    pub fn all(path: &Path) -> Result<Vec<Source>, ReadError> {
        if !path.is_dir() {
            return Ok(vec![Source::from_arg(path)]);
        }
        let mut sources = Vec::new();
        walk(path, &mut sources)?;
        if sources.iter().any(|source| matches!(source, Source::Found(_))) {
            return Ok(sources);
        }
        Err(ReadError::EmptyFolder(path.to_path_buf()))
    }
}

fn walk(folder: &Path, sources: &mut Vec<Source>) -> Result<(), ReadError> {
    let failed = |error| ReadError::of(folder, error);
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for path in entries {
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
            sources.push(Source::LeftOut(path, "hidden"));
            continue;
        }
        // A link to a folder could lead back here; one to a file is as good as the file.
        let is_link = path.symlink_metadata().map_err(failed)?.is_symlink();
        match path.metadata() {
            Ok(meta) if meta.is_file() => sources.push(Source::Found(path)),
            Ok(meta) if meta.is_dir() && !is_link => walk(&path, sources)?,
            Ok(meta) if meta.is_dir() => sources.push(Source::LeftOut(path, "a link to a folder")),
            // Opening a pipe would wait for whoever writes to it.
            Ok(_) => sources.push(Source::LeftOut(path, "no regular file")),
            Err(_) => sources.push(Source::LeftOut(path, "a link that leads nowhere")),
        }
    }
    Ok(())
}
