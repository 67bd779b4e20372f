//! The folder in which a session keeps what it saw: `busbw explain FOLDER` answers about it at any later time.

use busbw_model::Watched;
use busbw_model::answer::Document;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Of what a job prints, this much is kept from its beginning, and as much to twice as much from its end.
const PIECE: u64 = 4 << 20;
/// The names of what is kept of it: the beginning, the piece before the last, the last.
const PIECES: [&str; 3] = ["output-1.log", "output-2.log", "output-3.log"];

/// Where recordings of a job that goes on lie.
const STRAGGLERS: &str = "stragglers";

/// Where facts are kept.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    output: Arc<Mutex<Option<Kept>>>,
    /// The folders that were made for it, the inner one first.
    made: Vec<PathBuf>,
}

#[derive(Debug)]
struct Kept {
    file: File,
    piece: usize,
    bytes: u64,
}

impl Folder {
    /// Makes the folder, or takes one of an earlier session, whose files it removes.
    ///
    /// # Errors
    /// It cannot be made, or it holds files that are none of a session's.
    pub fn make(path: &Path) -> io::Result<Self> {
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        fs::create_dir_all(path)?;
        let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        let names: Vec<String> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        if let Some(foreign) = names.iter().find(|name| !is_own(name)) {
            let why = format!("it holds {foreign}, which busbw watch did not write; choose another folder");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let folder = Folder { path: path.to_owned(), output: Arc::default(), made };
        folder.without_stragglers()?;
        let files = names.iter().filter(|name| *name != STRAGGLERS);
        files.into_iter().try_for_each(|name| fs::remove_file(path.join(name)))?;
        Ok(folder)
    }

    /// Removes it again where nothing was kept, and what was made around it.
    pub fn leave(&self) {
        // A folder with anything in it stays.
        let _ = self.made.iter().try_for_each(fs::remove_dir);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps what a job printed. Where the disk is full, the job goes on and this is lost.
    pub fn take(&self, bytes: &[u8]) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.as_ref().is_none_or(|kept| kept.bytes >= PIECE) {
            let piece = output.as_ref().map_or(0, |kept| (kept.piece + 1).min(PIECES.len() - 1));
            if output.as_ref().is_some_and(|kept| kept.piece == piece) {
                let _ = fs::rename(self.path.join(PIECES[2]), self.path.join(PIECES[1]));
            }
            *output = File::create(self.path.join(PIECES[piece])).ok().map(|file| Kept { file, piece, bytes: 0 });
        }
        if let Some(kept) = output.as_mut() {
            let _ = kept.file.write_all(bytes);
            kept.bytes += bytes.len() as u64;
        }
    }

    /// Writes a file of it, whole or not at all.
    pub fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        // Hidden files are none of explain's inputs.
        let hidden = self.path.join(format!(".{name}"));
        fs::write(&hidden, text)?;
        fs::rename(hidden, self.path.join(name))
    }

    /// Writes what each rank recorded of its collectives, by the names that PyTorch's flight recorder gives its files.
    pub fn write_recordings(&self, recordings: &[(u32, Vec<u8>)]) -> io::Result<()> {
        recordings.iter().try_for_each(|(rank, dump)| self.write(&recording_name(*rank), dump))
    }

    /// The folder in this one for recordings of a job that goes on, empty.
    pub fn for_stragglers(&self) -> io::Result<Folder> {
        let path = self.path.join(STRAGGLERS);
        self.without_stragglers()?;
        fs::create_dir_all(&path)?;
        Ok(Folder { path, output: Arc::default(), made: Vec::new() })
    }

    /// Removes that folder: later recordings say more.
    pub fn without_stragglers(&self) -> io::Result<()> {
        let path = self.path.join(STRAGGLERS);
        if path.is_dir() { fs::remove_dir_all(path) } else { Ok(()) }
    }

    pub fn write_facts(&self, facts: &Watched) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&Document::new(facts))?;
        text.push(b'\n');
        self.write("ranks.json", &text)
    }
}

pub(crate) fn recording_name(rank: u32) -> String {
    format!("flight_recorder_rank_{rank}")
}

/// Whether a session writes a file of this name.
fn is_own(name: &str) -> bool {
    let name = name.trim_start_matches('.');
    let stacks = name.starts_with("stacks-") && name.ends_with(".txt");
    let dumps = name.starts_with("flight_recorder_rank_");
    PIECES.contains(&name) || stacks || dumps || [STRAGGLERS, "ranks.json", "ras.txt", "report.html"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_output_the_beginning_and_the_end_are_kept() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::make(place.path()).expect("empty");
        let line = [b'x'; 1 << 10];
        folder.take(b"first\n");
        for _ in 0..(5 * PIECE / line.len() as u64) {
            folder.take(&line);
        }
        folder.take(b"last\n");
        let read = |name: &str| fs::read(place.path().join(name)).expect("kept");
        assert!(read(PIECES[0]).starts_with(b"first\n") && read(PIECES[2]).ends_with(b"last\n"));
        assert!(PIECES.iter().map(|name| read(name).len() as u64).sum::<u64>() <= 3 * PIECE + 4096);
    }

    #[test]
    fn a_folder_in_which_nothing_is_kept_goes_away() {
        let place = tempfile::tempdir().expect("a folder");
        let inner = place.path().join("busbw-watch/host");
        Folder::make(&inner).expect("made").leave();
        assert!(!place.path().join("busbw-watch").exists());
        let folder = Folder::make(&inner).expect("made");
        folder.take(b"x");
        folder.leave();
        assert!(inner.join(PIECES[0]).exists());
        let there = Folder::make(place.path());
        assert!(there.is_err() && place.path().exists(), "it holds busbw-watch");
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::make(place.path()).expect("empty");
        folder.write("ras.txt", b"x").expect("room");
        Folder::make(place.path()).expect("its own files");
        assert!(!place.path().join("ras.txt").exists());
        fs::write(place.path().join("thesis.tex"), "x").expect("room");
        let refused = Folder::make(place.path()).expect_err("not its own");
        assert!(refused.to_string().contains("thesis.tex"), "{refused}");
    }
}
