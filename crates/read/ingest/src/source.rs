//! Opening inputs and reading them in blocks of whole lines.
//!
//! Blocks are read, not mapped: a log may shrink while it is read, and a pipe cannot be mapped at all.

use crate::clean::indent;
use crate::envelope::Envelope;
use crate::passed_on::{PassedOn, Tried};
use busbw_model::Run;
use memchr::memrchr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why an input could not be read. Every message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no input; name files, or - for standard input")]
    NoInput,
    #[error("{}: no such file; check the path", .0.display())]
    NotFound(PathBuf),
    #[error("{}: is a directory; name the files in it, for example {}/*.log", .0.display(), .0.display())]
    Directory(PathBuf),
    #[error("{}: no file in it that could be read; give the folder with the results, or the files", .0.display())]
    EmptyFolder(PathBuf),
    #[error("{}: permission denied; run as a user who may read it", .0.display())]
    Permission(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A part of a folder that is not read.
    #[error("{}: left out: {why}", path.display())]
    LeftOut { path: PathBuf, why: &'static str },
    #[error(
        "{}: is empty; if a command writes it, check that the command ran and that its output was redirected with 2>&1",
        if .0 == "-" { "standard input" } else { .0.as_str() }
    )]
    Empty(String),
    /// The input is a program, an archive or other data.
    #[error("{name}: is not text but {kind}; give the log itself")]
    Binary { name: String, kind: &'static str },
    /// The inputs are text, and nothing in them is known.
    #[error(
        "{0}: nothing that busbw knows (nccl-tests tables, NCCL logs, nvidia-smi topo -m, NCCL topology XML, perftest, dmesg, tracebacks); \
         give the output of the run, with NCCL_DEBUG=INFO"
    )]
    Unknown(String),
    /// The inputs have something known that cannot be read: of which, and why.
    #[error("{0}: {1}")]
    Problem(String, String),
}

impl ReadError {
    /// The error of a run whose inputs told nothing.
    pub fn unknown(run: &Run) -> Self {
        if let Some(problem) = run.problems.first() {
            let name = run.inputs.get(problem.place.input as usize).map_or("", |input| &input.path);
            return ReadError::Problem(name.to_owned(), problem.text.clone());
        }
        let paths: Vec<&str> = run.inputs.iter().map(|input| input.path.as_str()).collect();
        ReadError::Unknown(match paths.as_slice() {
            [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
            all => all.join(", "),
        })
    }

    /// Why an input is passed over, where its name stands before.
    pub(crate) fn reason(&self) -> String {
        match self {
            ReadError::Binary { kind, .. } => format!("left out: {kind}"),
            ReadError::LeftOut { why, .. } => format!("left out: {why}"),
            ReadError::Permission(_) => "left out: permission denied".into(),
            ReadError::Io { source, .. } => format!("left out: {source}"),
            other => other.to_string(),
        }
    }

    /// The error of opening or reading a path.
    pub(crate) fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => ReadError::NotFound(path),
            io::ErrorKind::IsADirectory => ReadError::Directory(path),
            io::ErrorKind::PermissionDenied => ReadError::Permission(path),
            _ => ReadError::Io { path, source },
        }
    }
}

/// An input to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Path(PathBuf),
    /// A file that a folder holds: where it cannot be read, that is noted and the others are.
    Found(PathBuf),
    /// A part of a folder that is not read, and why.
    LeftOut(PathBuf, &'static str),
    Stdin,
    /// Text at hand, with the name to show for it.
    Bytes(String, Vec<u8>),
}

impl Source {
    /// `-` is standard input, anything else a path.
    pub fn from_arg(arg: &Path) -> Self {
        if arg == Path::new("-") { Source::Stdin } else { Source::Path(arg.to_path_buf()) }
    }

    pub fn name(&self) -> String {
        match self {
            Source::Path(path) | Source::Found(path) | Source::LeftOut(path, _) => path.display().to_string(),
            Source::Stdin => "-".to_string(),
            Source::Bytes(name, _) => name.clone(),
        }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Read + Send + '_>, ReadError> {
        match self {
            Source::LeftOut(path, why) => Err(ReadError::LeftOut { path: path.clone(), why }),
            Source::Path(path) | Source::Found(path) => {
                let file = File::open(path).map_err(|e| ReadError::of(path, e))?;
                let is_dir = file.metadata().is_ok_and(|m| m.is_dir());
                if is_dir { Err(ReadError::Directory(path.clone())) } else { Ok(Box::new(file)) }
            }
            Source::Stdin => Ok(Box::new(io::stdin())),
            Source::Bytes(_, bytes) => Ok(Box::new(bytes.as_slice())),
        }
    }

    /// Whether a folder held it, and nobody named it.
    pub(crate) fn is_of_folder(&self) -> bool {
        matches!(self, Source::Found(_) | Source::LeftOut(..))
    }

    pub(crate) fn error(&self, source: io::Error) -> ReadError {
        ReadError::of(Path::new(&self.name()), source)
    }

    /// The size, where it is known beforehand: what a progress bar needs.
    pub fn size(&self) -> Option<u64> {
        match self {
            Source::Path(path) | Source::Found(path) => path.metadata().ok().filter(|m| m.is_file()).map(|m| m.len()),
            Source::Stdin | Source::LeftOut(..) => None,
            Source::Bytes(_, bytes) => Some(bytes.len() as u64),
        }
    }
}

/// A buffer of which the first part holds whole lines. The rest is kept, so that it need not be cleared again.
#[derive(Default)]
pub(crate) struct Block {
    buffer: Vec<u8>,
    length: usize,
    indent: Vec<u8>,
    passed_on: Option<Arc<PassedOn>>,
    envelope: Option<Arc<Envelope>>,
}

impl Block {
    pub fn lines(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// The blanks that the lines of the input's first block all begin with.
    pub fn indent(&self) -> &[u8] {
        &self.indent
    }

    /// What stands in front of its lines, since the first block that shows it.
    pub fn passed_on(&self) -> Option<&PassedOn> {
        self.passed_on.as_deref()
    }

    /// What its lines are records of, since the first block that shows it.
    pub fn envelope(&self) -> Option<&Envelope> {
        self.envelope.as_deref()
    }
}

/// Cuts an input into blocks of whole lines.
pub(crate) struct Blocks<R> {
    reader: R,
    /// The beginning of a line whose end is not read yet.
    rest: Vec<u8>,
    /// How much to read next: little at first, as most inputs are small.
    step: usize,
    /// How much is read at a time, at most.
    most: usize,
    indent: Option<Vec<u8>>,
    passed_on: Option<Arc<PassedOn>>,
    tried: Tried,
    envelope: Option<Arc<Envelope>>,
    blocks: usize,
    done: bool,
}

impl<R: Read> Blocks<R> {
    /// How much is read at a time, at most: little enough to stay in a core's cache from reading to scanning.
    pub const SIZE: usize = 256 << 10;
    const FIRST: usize = 64 << 10;
    /// Blocks in which records are looked for: JSON of another kind takes long to read.
    const FOR_RECORDS: usize = 8;
    /// A line longer than this is cut: no line of a log is, and memory must stay bounded whatever comes.
    pub const LONGEST_LINE: usize = 64 << 20;

    pub fn new(reader: R) -> Self {
        Blocks {
            reader,
            rest: Vec::new(),
            step: Self::FIRST,
            most: Self::SIZE,
            indent: None,
            passed_on: None,
            tried: Tried::default(),
            envelope: None,
            blocks: 0,
            done: false,
        }
    }

    /// Blocks of another size: answers do not depend on it.
    #[cfg(test)]
    pub fn sized(self, size: usize) -> Self {
        Blocks { step: size, most: size, ..self }
    }

    pub fn into_inner(self) -> R {
        self.reader
    }

    /// Fills `block` with whole lines; false at the end of the input.
    pub fn next(&mut self, block: &mut Block) -> io::Result<bool> {
        let any = self.fill_block(block)?;
        let indent = self.indent.get_or_insert_with(|| indent(block.lines()).to_vec());
        block.indent.clone_from(indent);
        if self.passed_on.is_none() && self.envelope.is_none() {
            self.blocks += 1;
            let lines = Some(block.lines()).filter(|_| self.blocks <= Self::FOR_RECORDS);
            self.envelope = lines.and_then(Envelope::of).map(Arc::new);
            let lines = Some(block.lines()).filter(|_| self.envelope.is_none());
            let learnt = lines.and_then(|lines| PassedOn::of(lines, &mut self.tried));
            self.passed_on = learnt.map(Arc::new);
        }
        block.passed_on.clone_from(&self.passed_on);
        block.envelope.clone_from(&self.envelope);
        Ok(any)
    }

    fn fill_block(&mut self, block: &mut Block) -> io::Result<bool> {
        let mut filled = self.rest.len();
        block.buffer.resize(block.buffer.len().max(filled + self.step), 0);
        block.buffer[..filled].copy_from_slice(&self.rest);
        self.rest.clear();
        while !self.done {
            let searched = filled;
            block.buffer.resize(block.buffer.len().max(filled + self.step), 0);
            filled = self.fill(&mut block.buffer, filled)?;
            self.step = (self.step * 4).min(self.most);
            if self.done {
                break;
            }
            if let Some(end) = memrchr(b'\n', &block.buffer[searched..filled]) {
                let end = searched + end + 1;
                self.rest.extend_from_slice(&block.buffer[end..filled]);
                block.length = end;
                return Ok(true);
            }
            if filled >= Self::LONGEST_LINE {
                break;
            }
        }
        block.length = filled;
        Ok(filled > 0)
    }

    /// Reads until as many more bytes as wanted are there or the input ends; returns how much is there then.
    fn fill(&mut self, buffer: &mut [u8], from: usize) -> io::Result<usize> {
        let wanted = &mut buffer[from..from + self.step];
        let length = wanted.len();
        let read = read_up_to(&mut self.reader, wanted)?;
        self.done = read < length;
        Ok(from + read)
    }
}

/// Reads until the buffer is full or the input ends; returns how much was read.
pub(crate) fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Names data that is no text by how it begins.
pub(crate) fn binary_kind(start: &[u8]) -> Option<&'static str> {
    const BEGINNINGS: [(&[u8], &str); 11] = [
        (b"\x7fELF", "a program or library (ELF)"),
        (b"\x1f\x8b", "gzip data (gunzip it first)"),
        (b"\x28\xb5\x2f\xfd", "zstd data (unzstd it first)"),
        (b"BZh", "bzip2 data (bunzip2 it first)"),
        (b"\xfd7zXZ", "xz data (unxz it first)"),
        (b"PK\x03\x04", "a zip archive (unzip it first)"),
        (b"\x89PNG", "a picture (PNG)"),
        (b"%PDF", "a PDF document"),
        (b"\xff\xd8\xff", "a picture (JPEG)"),
        (b"\xff\xfe", "text of two bytes a character (iconv -f UTF-16 -t UTF-8 it first)"),
        (b"\xfe\xff", "text of two bytes a character (iconv -f UTF-16 -t UTF-8 it first)"),
    ];
    if let Some((_, kind)) = BEGINNINGS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Some(kind);
    }
    let sample = &start[..start.len().min(8192)];
    let control =
        sample.iter().filter(|b| **b < 0x20 && !matches!(b, b'\n' | b'\r' | b'\t' | 0x1b | 0x08 | 0x0c | 0x07)).count();
    (control * 10 > sample.len()).then_some("binary data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns a few bytes at a time, as pipes do.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn blocks_put_together_are_the_input(text in proptest::collection::vec(any::<u8>(), 0..500), step in 1usize..50) {
            let mut blocks = Blocks::new(Trickle(&text, step));
            let mut block = Block::default();
            let mut all = Vec::new();
            while blocks.next(&mut block).expect("reading from memory") {
                all.extend_from_slice(block.lines());
            }
            prop_assert_eq!(all, text);
        }
    }

    #[test]
    fn blocks_end_with_lines() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let mut blocks = Blocks::new(text.as_slice());
        let mut block = Block::default();
        let mut count = 0;
        while blocks.next(&mut block).expect("reading from memory") {
            assert_eq!(block.lines().last(), Some(&b'\n'));
            count += 1;
        }
        assert!(count > 1, "the text is larger than a block");
    }

    #[test]
    fn binary_data_is_named() {
        assert_eq!(binary_kind(b"\x7fELF\x02\x01"), Some("a program or library (ELF)"));
        assert_eq!(binary_kind(&[0u8; 100]), Some("binary data"));
        assert_eq!(binary_kind("host:1:2 [0] NCCL INFO é\n".as_bytes()), None);
        assert_eq!(binary_kind(b""), None);
    }
}
