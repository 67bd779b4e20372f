//! A trace for ui.perfetto.dev and Chrome: a process per rank, a thread per communicator, a slice per operation.
//!
//! The form is Chrome's trace events as a JSON array, written as it happens: readers bear an array that was cut off.

use crate::ledger::Operation;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Writes a trace.
pub struct Trace {
    out: Box<dyn Write + Send>,
    named: BTreeSet<u32>,
    first: bool,
}

impl Trace {
    /// Begins a trace.
    ///
    /// # Errors
    /// What the writer returns.
    pub fn new(mut out: Box<dyn Write + Send>) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Trace { out, named: BTreeSet::new(), first: true })
    }

    /// Adds an operation of process `pid`, whose times are `since_1970_ns` more.
    ///
    /// # Errors
    /// What the writer returns.
    pub fn add(&mut self, operation: &Operation, pid: u32, since_1970_ns: u64) -> io::Result<()> {
        let Some(time_ns) = operation.time_ns() else { return Ok(()) };
        if self.named.insert(pid) {
            let name = format!("rank {}", operation.communicator.rank);
            self.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
        }
        let begin_us = operation.begin_ns.wrapping_add(since_1970_ns) as f64 / 1e3;
        let args = json!({"bytes": operation.bytes, "number": operation.of.1, "ranks": operation.communicator.ranks});
        self.event(&json!({
            "ph": "X", "name": operation.collective.name(), "cat": "collective", "pid": pid, "tid": operation.of.0,
            "ts": begin_us, "dur": time_ns as f64 / 1e3, "args": args,
        }))
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if std::mem::replace(&mut self.first, false) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// What the writer returns.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }
}
