//! Puts together what several hosts saw: the traces that each wrote become one report.

use crate::clocks::{Clocks, clocks};
use crate::ledger::{Ledger, Operation};
use crate::report::Report;
use crate::trace::{Arguments, Event, FORMAT, OfEnd, OfProcess};
use busbw_model::{Profile, counted};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why traces cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: line {line}: {what}; it is no trace of busbw profile", path.display())]
    Form { path: PathBuf, line: usize, what: String },
    #[error("{}: no operation of a process; give traces that busbw profile --trace of this version wrote", path.display())]
    Empty { path: PathBuf },
    #[error("{} and {}: both have process {process} of {host}; give each trace once", first.display(), second.display())]
    Twice { first: PathBuf, second: PathBuf, host: String, process: u32 },
    #[error("the trace cannot be written: {0}")]
    Output(io::Error),
}

/// What a file holds.
#[derive(Default)]
struct Read {
    /// By the number in the file.
    processes: BTreeMap<u32, OfProcess>,
    /// Each with the number of its process in the file.
    operations: Vec<(u32, Operation)>,
    end: Option<OfEnd>,
}

/// A process of all files.
struct Process {
    host: usize,
    about: OfProcess,
    file: usize,
}

/// What the traces in these files cost together, with clocks brought into line.
///
/// # Errors
/// A file is no trace of ours, or has a process that another has too; what the report writes cannot be written.
pub fn merge(paths: &[PathBuf], mut report: Report) -> Result<Profile, MergeError> {
    let (mut hosts, mut processes, mut operations): (Vec<String>, Vec<Process>, Vec<Operation>) = Default::default();
    let (mut end, mut notes) = (OfEnd { events: 0, lost: 0 }, Vec::new());
    for (file, path) in paths.iter().enumerate() {
        let read = read(path)?;
        if read.operations.is_empty() {
            return Err(MergeError::Empty { path: path.clone() });
        }
        let mut rings = FxHashMap::default();
        for (number, about) in read.processes {
            let host = hosts.iter().position(|host| *host == about.host).unwrap_or_else(|| {
                hosts.push(about.host.clone());
                hosts.len() - 1
            });
            let same = |one: &&Process| one.host == host && one.about.process == about.process && one.file != file;
            if let Some(other) = processes.iter().find(same) {
                let (first, second) = (paths[other.file].clone(), path.clone());
                return Err(MergeError::Twice { first, second, host: about.host, process: about.process });
            }
            rings.insert(number, processes.len());
            processes.push(Process { host, about, file });
        }
        let known = |(number, one): (u32, Operation)| Some(Operation { ring: *rings.get(&number)?, ..one });
        operations.extend(read.operations.into_iter().filter_map(known));
        match read.end {
            Some(of) => (end.events, end.lost) = (end.events + of.events, end.lost.saturating_add(of.lost)),
            None => notes.push(format!("{} was cut off: what was not written is missing", path.display())),
        }
    }
    notes.extend(strangers(&processes, &operations, paths));
    let error_ns = align(&mut operations, &processes, &hosts, &mut notes);
    let mut ledger = Ledger::default();
    for process in &processes {
        ledger.add();
        report.add_process(&Arc::from(process.about.host.as_str()), process.about.process, 0);
    }
    report.across_hosts(error_ns);
    // As they would have come from rings: what is compared is kept only so long.
    operations.sort_by_key(|operation| operation.end_ns.unwrap_or(operation.begin_ns));
    let begin = operations.iter().map(|operation| operation.begin_ns).min().unwrap_or(0);
    let last = operations.iter().filter_map(|operation| operation.end_ns).max().unwrap_or(begin);
    operations.into_iter().for_each(|operation| ledger.restore(operation));
    let mut profile = report.finish(&mut ledger, end.events, end.lost).map_err(MergeError::Output)?;
    profile.notes.extend(notes);
    Ok(Profile { wall_us: last.saturating_sub(begin) as f64 / 1e3, ..profile })
}

/// Makes times nanoseconds since 1970, by the clock of the first host as far as the operations tell; by how much they may be wrong.
fn align(operations: &mut [Operation], processes: &[Process], hosts: &[String], notes: &mut Vec<String>) -> f64 {
    // Ranks of one host have one clock; what its processes read of it when they began may differ.
    let mut since = vec![None; hosts.len()];
    for process in processes {
        since[process.host].get_or_insert(process.about.since_1970_ns);
    }
    for operation in operations.iter_mut() {
        move_by(operation, since[processes[operation.ring].host].unwrap_or(0));
    }
    let with_host = operations.iter().map(|operation| (processes[operation.ring].host, operation));
    let Clocks { ahead_ns, error_ns } = clocks(with_host, hosts.len());
    for operation in operations.iter_mut() {
        move_by(operation, ahead_ns[processes[operation.ring].host].cast_unsigned());
    }
    let us = |ns: i64| ns as f64 / 1e3;
    for (host, ahead) in hosts.iter().zip(&ahead_ns).filter(|(_, ahead)| **ahead != 0) {
        let way = if *ahead < 0 { "ahead of" } else { "behind" };
        let by = us(ahead.saturating_abs());
        notes.push(format!("the clock of {host} is {by:.1} us {way} that of {}, and was corrected", hosts[0]));
    }
    if hosts.len() > 1 {
        notes.push(match error_ns {
            Some(error) => format!(
                "the operations show how far the hosts' clocks are apart to {:.1} us: who is late by less than that is not named",
                us(error)
            ),
            None => "no operation shows how far the hosts' clocks are apart: who is late is named within a host only".into(),
        });
    }
    error_ns.map_or(f64::INFINITY, |error| error as f64)
}

fn move_by(operation: &mut Operation, ns: u64) {
    operation.begin_ns = operation.begin_ns.wrapping_add(ns);
    operation.end_ns = operation.end_ns.map(|end| end.wrapping_add(ns));
}

/// Files that have no communicator in common with others, though these have ranks elsewhere.
fn strangers(processes: &[Process], operations: &[Operation], paths: &[PathBuf]) -> Option<String> {
    let mut files: FxHashMap<u64, FxHashSet<usize>> = FxHashMap::default();
    for operation in operations.iter().filter(|operation| operation.communicator.hash != 0) {
        files.entry(operation.communicator.hash).or_default().insert(processes[operation.ring].file);
    }
    let shared: FxHashSet<usize> = files.into_values().filter(|files| files.len() > 1).flatten().collect();
    let alone: Vec<String> = (0..paths.len())
        .filter(|file| paths.len() > 1 && !shared.contains(file))
        .map(|file| paths[file].display().to_string())
        .collect();
    let names = alone.join(", ");
    let which = counted(alone.len(), "trace");
    (!alone.is_empty()).then(|| {
        format!(
            "{which} shares no communicator with the others, as traces of another job or another time would: {names}"
        )
    })
}

fn read(path: &Path) -> Result<Read, MergeError> {
    let file = File::open(path).map_err(|error| MergeError::File { path: path.to_owned(), error })?;
    let mut found = Read::default();
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(file));
    match json.deserialize_seq(Events(&mut found)) {
        Ok(()) => Ok(found),
        // A file that was cut off has what was written.
        Err(error) if error.is_eof() && !found.operations.is_empty() => Ok(Read { end: None, ..found }),
        Err(error) if error.is_io() => Err(MergeError::File { path: path.to_owned(), error: error.into() }),
        Err(error) => {
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or_default().to_owned();
            Err(MergeError::Form { path: path.to_owned(), line: error.line(), what })
        }
    }
}

/// Takes one event after the other: a trace may be larger than the memory that its text would take.
struct Events<'a>(&'a mut Read);

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an array of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while let Some(Event { ph, name, pid, tid, args }) = all.next_element()? {
            match (ph.as_str(), args) {
                ("X" | "i", Arguments::Operation(told)) => {
                    // The ring is known when all processes are.
                    self.0.operations.extend(told.operation(&name, 0, tid).map(|operation| (pid, operation)));
                }
                ("M", Arguments::Process(process)) if process.format == FORMAT => {
                    self.0.processes.insert(pid, process);
                }
                ("M", Arguments::End(end)) => self.0.end = Some(end),
                _ => {}
            }
        }
        Ok(())
    }
}
