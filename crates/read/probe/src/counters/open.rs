//! Counter files, kept open: reading one again is a single call.

use super::{Counters, now_us};
use crate::Root;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A number has at most twenty digits; what is longer is no counter.
const LONGEST: usize = 64;

/// A file that is read again and again.
#[derive(Debug)]
pub enum Reread {
    Open(File),
    /// Opened for each reading, because the process may have no more files open.
    Closed(Root, String),
}

impl Reread {
    /// Opens a file.
    pub fn open(root: &Root, path: &str) -> io::Result<Self> {
        match root.open(path) {
            Ok(file) => Ok(Reread::Open(file)),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Ok(Reread::Closed(root.clone(), path.into())),
            Err(error) => Err(error),
        }
    }

    /// Reads the beginning of the file into `block`.
    pub fn read<'a>(&self, block: &'a mut [u8]) -> io::Result<&'a str> {
        let length = match self {
            Reread::Open(file) => file.read_at(block, 0)?,
            Reread::Closed(root, path) => root.open(path)?.read_at(block, 0)?,
        };
        str::from_utf8(&block[..length]).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The number in the file.
    pub fn number(&self) -> io::Result<u64> {
        self.read(&mut [0; LONGEST])?.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The words in the file; empty when it cannot be read.
    pub fn text(&self) -> String {
        self.read(&mut [0; LONGEST]).map(|text| text.trim().to_owned()).unwrap_or_default()
    }
}

/// Counters that lie in a file each.
#[derive(Debug)]
pub struct OpenCounters {
    names: Arc<[Arc<str>]>,
    files: Vec<Reread>,
}

impl OpenCounters {
    /// Opens every file of `folders` that holds a number. Where two folders have a name, the first counts.
    pub fn of_folders(root: &Root, folders: &[String]) -> Self {
        // Among the counters lies how long the kernel keeps them, which may be set.
        let names = |folder| root.list(folder).into_iter().filter(|name| name != "lifespan");
        let files = folders.iter().flat_map(|folder| names(folder).map(move |name| (folder, name)));
        Self::of_files(root, files.map(|(folder, name)| (format!("{folder}/{name}"), name)))
    }

    /// Opens these files, as far as they hold numbers; each comes with the counter's name.
    pub fn of_files(root: &Root, files: impl Iterator<Item = (String, String)>) -> Self {
        let mut found: Vec<(Arc<str>, Reread)> = Vec::new();
        for (path, name) in files {
            let file = Reread::open(root, &path).ok().filter(|file| file.number().is_ok());
            found.extend(file.map(|file| (Arc::from(name), file)));
        }
        // Stable, so that of two with a name the one found first is kept.
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.dedup_by(|(later, _), (first, _)| later == first);
        let (names, files): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        OpenCounters { names: names.into(), files }
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// One cannot be read any more: the device went away or was made anew.
    pub fn read(&self) -> io::Result<Counters> {
        let values = self.files.iter().map(Reread::number).collect::<io::Result<_>>()?;
        Ok(Counters { time_us: now_us(), names: Arc::clone(&self.names), values })
    }
}
