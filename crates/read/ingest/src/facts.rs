//! What one block of an input says: the worker's result, which the assembler puts in order.
//!
//! Speakers, streams and transports are numbered per worker and keep their number from block to block; a block brings
//! those that are new.

use crate::ends::EndLine;
use crate::inspector::Sample;
use crate::nccl_log::Said;
use busbw_model::{Edge, Speaker, Transport};
use std::sync::Arc;

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
    pub new_speakers: Vec<SpeakerFact>,
    pub new_streams: Vec<Box<str>>,
    /// With the line in the block that names it first, and its text.
    pub new_transports: Vec<(Transport, u32, Box<str>)>,
    /// Lines per host since the worker's last block.
    pub spoken: Vec<Spoken>,
    /// The last lines of known wording, by stream.
    pub known_lines: Vec<(u32, Vec<u32>)>,
    pub events: Vec<Event>,
}

/// How often a host spoke.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spoken {
    /// A speaker of the host.
    pub speaker: u32,
    pub lines: u32,
    /// Lines whose prefix nothing ran into.
    pub clean_lines: u32,
}

/// A speaker seen in a block.
#[derive(Debug)]
pub(crate) struct SpeakerFact {
    pub host: Arc<[u8]>,
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
    pub what: What,
}

/// What a line says; no larger than a connection, of which a log has millions.
#[derive(Debug)]
pub(crate) enum What {
    /// The transport is the worker's.
    Edge(Edge),
    /// RCCL names the communicator of the edge that follows.
    EdgeComm(u64),
    Said(Box<SaidLine>),
    Warn(Box<WarnLine>),
    Text(Box<TextFact>),
    /// An operation that the NCCL Inspector measured, and the line.
    Inspector(Box<(Sample, Box<str>)>),
    End(Box<EndFact>),
    /// A line that nobody makes a fact of, and who prints it.
    Statement(Box<(Speaker, Box<str>)>),
    Variables(Box<CommandLine>),
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
    /// That of JSON.
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
pub(crate) struct SaidLine {
    pub said: Said,
    pub text: Box<str>,
}

/// A WARN message.
#[derive(Debug)]
pub(crate) struct WarnLine {
    pub site: Option<String>,
    pub message: String,
    pub text: Box<str>,
}

/// NCCL's variables that a printed command sets.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub variables: Vec<(String, String)>,
    pub text: Box<str>,
}

/// Blocks of events are most of the memory that reading takes.
const _: () = assert!(size_of::<Event>() <= 40);
