//! A trace for ui.perfetto.dev and Chrome: a process per rank, a thread per communicator, a slice per operation.
//!
//! The form is Chrome's trace events as a JSON array, written as it happens: readers bear an array that was cut off. What the arguments
//! of an event hold is all that is known of an operation, so that traces of several hosts can be put together ([`crate::merge()`]).

use crate::ledger::{Communicator, Operation, Steps};
use busbw_events::Source;
use busbw_model::{Collective, Datatype, ProfileSource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// What a file of ours begins with, in the arguments of a first event.
pub(crate) const FORMAT: &str = "busbw.profile.trace/1";

/// Writes a trace.
pub struct Trace {
    out: Box<dyn Write + Send>,
    /// The numbers that processes have in the trace, by ring: two hosts may have the same.
    numbers: BTreeMap<usize, u32>,
    /// When its times begin, of the first operation ([`origin_of`]).
    origin_ns: Option<u64>,
    first: bool,
}

/// A process, as a trace names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced<'a> {
    pub host: &'a str,
    pub pid: u32,
    pub since_1970_ns: u64,
}

/// One event, as it is read. Unknown ones are passed over.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub ph: String,
    pub name: String,
    pub pid: u32,
    #[serde(default)]
    pub tid: u32,
    pub args: Arguments,
}

/// The arguments of an event that are of ours.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Arguments {
    Operation(Box<OfOperation>),
    Process(OfProcess),
    End(OfEnd),
    Other(serde::de::IgnoredAny),
}

/// What is known of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OfProcess {
    /// For people.
    pub name: String,
    pub host: String,
    pub process: u32,
    pub since_1970_ns: u64,
    pub format: String,
}

/// What is known when reading ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OfEnd {
    pub events: u64,
    pub lost: u64,
}

/// All of an operation that its slice does not say. Times are `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OfOperation {
    pub bytes: u64,
    /// How many its communicator had before.
    pub number: u64,
    pub ranks: u32,
    pub nodes: u32,
    pub rank: u32,
    pub communicator: String,
    pub source: ProfileSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datatype: Option<String>,
    /// Algorithm, protocol and channels, as events number them.
    pub way: [u8; 3],
    pub begin_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    #[serde(default, skip_serializing_if = "Steps::is_none")]
    pub steps: Steps,
}

/// Whose events these are, as documents name it.
pub(crate) fn told(source: Source) -> ProfileSource {
    match source {
        Source::Nccl => ProfileSource::Nccl,
        Source::Engine => ProfileSource::Engine,
        Source::Torch => ProfileSource::Torch,
    }
}

impl OfOperation {
    /// The operation, of the number `of` in this ring; `None` where it makes no sense.
    pub fn operation(&self, collective: &str, ring: usize, of: u32) -> Option<Operation> {
        let [algorithm, protocol, channels] = self.way;
        let source = *[Source::Nccl, Source::Engine, Source::Torch].iter().find(|one| told(**one) == self.source)?;
        let hash = u64::from_str_radix(&self.communicator, 16).ok()?;
        let (ranks, nodes, rank) = (self.ranks, self.nodes, self.rank);
        Some(Operation {
            ring,
            communicator: Communicator { hash, ranks, nodes, rank, source },
            of: (of, self.number),
            collective: Collective::from_name(collective)?,
            datatype: self.datatype.as_deref().and_then(Datatype::from_name),
            algorithm,
            protocol,
            channels,
            bytes: self.bytes,
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            replayed: self.replayed,
            peer: self.peer,
            steps: self.steps,
        })
    }

    fn of(operation: &Operation) -> Self {
        let Communicator { hash, ranks, nodes, rank, source } = operation.communicator;
        OfOperation {
            bytes: operation.bytes,
            number: operation.of.1,
            ranks,
            nodes,
            rank,
            communicator: format!("{hash:016x}"),
            source: told(source),
            datatype: operation.datatype.map(|datatype| datatype.name().to_owned()),
            way: [operation.algorithm, operation.protocol, operation.channels],
            begin_ns: operation.begin_ns,
            end_ns: operation.end_ns,
            replayed: operation.replayed,
            peer: operation.peer,
            steps: operation.steps,
        }
    }
}

impl Trace {
    /// Begins a trace.
    pub fn new(mut out: Box<dyn Write + Send>) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Trace { out, numbers: BTreeMap::new(), origin_ns: None, first: true })
    }

    /// Adds an operation of a process. One without an end is a moment.
    pub(crate) fn add(&mut self, operation: &Operation, of: Traced) -> io::Result<()> {
        let Traced { host, pid, since_1970_ns } = of;
        let number = match self.numbers.get(&operation.ring) {
            Some(number) => *number,
            None => {
                let taken: BTreeSet<u32> = self.numbers.values().copied().collect();
                let number = (pid..).find(|number| !taken.contains(number)).unwrap_or(pid);
                self.numbers.insert(operation.ring, number);
                let (name, format) = (format!("rank {}", operation.communicator.rank), FORMAT.to_owned());
                let process = OfProcess { name, host: host.to_owned(), process: pid, since_1970_ns, format };
                self.event(&json!({"ph": "M", "name": "process_name", "pid": number, "args": process}))?;
                self.event(&json!({"ph": "M", "name": "process_labels", "pid": number, "args": {"labels": host}}))?;
                number
            }
        };
        let begin_ns = operation.begin_ns.wrapping_add(since_1970_ns);
        let origin_ns = *self.origin_ns.get_or_insert_with(|| origin_of(begin_ns));
        let begin_us = begin_ns.saturating_sub(origin_ns) as f64 / 1e3;
        let (ph, length) = match operation.time_ns() {
            Some(time_ns) => ("X", ("dur", json!(time_ns as f64 / 1e3))),
            // A moment of its thread.
            None => ("i", ("s", json!("t"))),
        };
        self.event(&json!({
            "ph": ph, "name": operation.collective.name(), "cat": "collective", "pid": number, "tid": operation.of.0,
            "ts": begin_us, length.0: length.1, "args": OfOperation::of(operation),
        }))
    }

    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if std::mem::replace(&mut self.first, false) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    pub(crate) fn finish(mut self, end: OfEnd) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": "busbw_profile", "pid": 0, "args": end}))?;
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }
}

/// The full hour before the last one: what another rank began earlier comes behind it, and traces of other hosts begin with the same.
///
/// Readers take a time for a double of microseconds. Since 1970 it would be right to a quarter of a microsecond: slices of a thread
/// would overlap, and Perfetto drops those.
fn origin_of(begin_ns: u64) -> u64 {
    const HOUR_NS: u64 = 3_600_000_000_000;
    (begin_ns / HOUR_NS).saturating_sub(1) * HOUR_NS
}
