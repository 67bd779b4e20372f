//! What one block of an input says: the worker's result, which the assembler puts in order.
//!
//! Hosts, speakers, streams and transports are numbered per worker and keep their number from block to block; a block brings
//! those that are new. What depends on the blocks before (how often a wording came, who told the driver's version) is left to the
//! assembler, so that the answer is the same whoever scans a block.

use crate::command::ShellLine;
use crate::cursor::{kept, text};
use crate::ends::{EndLine, Follower, MOST_SHOWN};
use crate::inspector::Sample;
use crate::nccl_log::LogMessage;
use crate::steps::Loops;
use busbw_model::{Edge, Speaker, Transport};

/// No speaker: the prefix was torn, or the line is a program's.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A block's facts. Line numbers count from 0 within the block; indices are the worker's.
#[derive(Debug, Default)]
pub(crate) struct BlockFacts {
    /// The worker that scanned the block.
    pub worker: usize,
    /// Number of line ends in the block.
    pub lines: u64,
    pub nccl_lines: u64,
    pub unknown_lines: u64,
    pub warn_lines: u64,
    pub new_hosts: Vec<Box<str>>,
    pub new_speakers: Vec<SpeakerFact>,
    pub new_streams: Vec<Box<str>>,
    /// With the line in the block that names it first, and its text.
    pub new_transports: Vec<(Transport, u32, Box<str>)>,
    /// Warnings, each with its first line.
    pub new_warnings: Vec<WarnLine>,
    /// Lines per host, in the order in which the hosts spoke first.
    pub spoken: Vec<HostLines>,
    /// The last lines of a wording that the block has before, by stream.
    pub known_lines: Vec<(u32, KnownLines)>,
    /// The first line of each wording, and all lines that stand behind an end of their stream only.
    pub first_lines: Vec<FirstLine>,
    /// The last line of each stream that is of no traceback.
    pub last_lines: Vec<LastLine>,
    /// The tracebacks that go on in the next block.
    pub open: Follower,
    /// The loops of programs.
    pub loops: Loops,
    pub events: Vec<Event>,
}

impl BlockFacts {
    /// Adds what a line of no speaker says.
    pub fn of_nobody(&mut self, line: u32, what: Fact) {
        self.events.push(Event { speaker: NOBODY, line, what });
    }
}

/// How often a host spoke.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HostLines {
    /// The worker's number of the host, and the first speaker of it in the block.
    pub host: u32,
    pub speaker: u32,
    pub lines: u32,
    /// Lines whose prefix nothing ran into.
    pub clean_lines: u32,
}

/// A line that shows that its stream goes on, where the wording is known.
#[derive(Debug)]
pub(crate) struct FirstLine {
    pub stream: u32,
    pub line: u32,
    pub wording: u64,
}

/// The last lines of a stream whose wording the block has before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KnownLines {
    pub lines: [u32; MOST_SHOWN],
    pub count: u8,
}

impl KnownLines {
    pub fn lines(&self) -> &[u32] {
        &self.lines[..usize::from(self.count)]
    }
}

/// The last line of a stream that is of no traceback.
#[derive(Debug)]
pub(crate) struct LastLine {
    pub stream: u32,
    pub line: u32,
    pub text: Box<str>,
    /// Not one of a library's, which stands for an output of which the block holds no other.
    pub of_program: bool,
}

/// A speaker seen in a block.
#[derive(Debug)]
pub(crate) struct SpeakerFact {
    /// The worker's number of the host.
    pub host: u32,
    pub pid: u64,
    pub tid: u64,
    pub device: Option<u32>,
}

/// Something a line says.
#[derive(Debug)]
pub(crate) struct Event {
    /// The worker's index of the speaker, or [`NOBODY`].
    pub speaker: u32,
    /// Line within the block.
    pub line: u32,
    pub what: Fact,
}

/// What a line says; no larger than a connection, of which a log has millions.
#[derive(Debug)]
pub(crate) enum Fact {
    /// The transport is the worker's.
    Edge(Edge),
    /// RCCL names the communicator of the edge that follows.
    EdgeComm(u64),
    LogMessage(Box<MessageLine>),
    /// The next event is what all ranks of a host say alike: it counts once. A number stands for the message.
    Once(u64),
    /// The process tells the driver's version.
    Driver,
    /// The worker's number of a warning.
    Warn(u32),
    Text(Box<TextFact>),
    /// An operation that the NCCL Inspector measured, and the line.
    Inspector(Box<(Sample, Box<str>)>),
    End(Box<EndFact>),
    Statement(Box<StatementFact>),
    Shell(Box<CommandLine>),
}

/// A line that nobody makes a fact of, and who prints it.
#[derive(Debug)]
pub(crate) struct StatementFact {
    pub by: Speaker,
    pub wording: u64,
    pub text: Box<str>,
}

/// A line, or a part of one, for the line readers.
#[derive(Debug)]
pub(crate) struct TextFact {
    pub stream: u32,
    pub text: Box<str>,
    pub offered: Offered,
}

/// Which readers a line of text is offered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Json,
    /// All but PyTorch's, whose words it lacks.
    Lines,
    All,
}

/// A line that may belong to the end of a process, and the line.
#[derive(Debug)]
pub(crate) struct EndFact {
    pub stream: u32,
    pub said: EndLine,
    pub text: Box<str>,
}

/// A message and, where it may serve as evidence, the whole line it stands in.
#[derive(Debug)]
pub(crate) struct MessageLine {
    pub said: LogMessage,
    pub text: Box<str>,
}

/// A WARN message.
#[derive(Debug, Default)]
pub(crate) struct WarnLine {
    pub site: Option<String>,
    pub message: String,
    pub text: Box<str>,
}

impl WarnLine {
    /// The place in the source and the message of a line.
    pub fn of((site, message): (Option<&[u8]>, &[u8]), line: &[u8]) -> Self {
        WarnLine { site: site.map(text), message: text(message.trim_ascii()), text: kept(line) }
    }
}

/// A printed line of a shell.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub line: ShellLine,
    pub text: Box<str>,
}

/// Blocks of events are most of the memory that reading takes.
const _: () = assert!(size_of::<Event>() <= 40);
