//! The last operations of each rank, in the form of PyTorch's flight recorder: `explain` answers about both alike, and so does `fr_trace`.
//!
//! Keys are those of `torch/csrc/distributed/c10d/FlightRecorder.hpp`, dump version 2.10.

use super::{Process, Report};
use crate::ledger::{Ledger, Operation};
use busbw_model::Collective;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Operations of a process that are kept.
pub(super) const KEPT: usize = 1 << 11;

/// Which operations a recording holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Those that are over: of a job that goes on, each rank is in another one at any moment.
    Over,
    /// Those that have begun as well: they show where a rank of a job that stands still is.
    Begun,
}

/// What a rank recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub rank: u32,
    /// A dump of a flight recorder.
    pub dump: Value,
}

impl Report {
    /// What each rank did last, where the report keeps that.
    pub fn recordings(&self, ledger: &Ledger, which: Recorded) -> Vec<Recording> {
        let members = self.members_by_rank(ledger);
        let recording = |(ring, process): (usize, &Process)| {
            let rank = process.rank()?;
            let mut operations: Vec<Operation> = process.last.iter().copied().collect();
            operations.extend(ledger.begun(ring).filter(|_| which == Recorded::Begun));
            operations.sort_by_key(|operation| operation.begin_ns);
            let of_job = process.largest.map_or(0, |largest| largest.hash);
            let dump = Dump { since_1970_ns: process.since_1970_ns, of_job, members: &members }.of(&operations);
            (!operations.is_empty()).then_some(Recording { rank, dump })
        };
        self.processes.iter().enumerate().filter_map(recording).collect()
    }

    /// The ranks of each communicator of which all are known, in its order.
    fn members_by_rank(&self, ledger: &Ledger) -> BTreeMap<u64, Vec<u32>> {
        let mut members: BTreeMap<u64, BTreeMap<u32, u32>> = BTreeMap::new();
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (ring, process) in self.processes.iter().enumerate() {
            let Some((rank, largest)) = process.rank().zip(process.largest) else { continue };
            for communicator in ledger.communicators(ring).filter(|communicator| communicator.hash != 0) {
                let all = members.entry(communicator.hash).or_default();
                all.insert(communicator.rank, rank);
                if communicator.hash == largest.hash {
                    all.extend((0..largest.ranks).map(|rank| (rank, rank)));
                }
                sizes.insert(communicator.hash, communicator.ranks as usize);
            }
        }
        members.retain(|hash, ranks| sizes.get(hash) == Some(&ranks.len()));
        members.into_iter().map(|(hash, ranks)| (hash, ranks.into_values().collect())).collect()
    }
}

/// The operations of a communicator in the process: the last that began, and the last that is over.
struct Standing {
    hash: u64,
    begun: u64,
    over: u64,
}

/// What the operations of one process are written with.
struct Dump<'a> {
    since_1970_ns: u64,
    /// The communicator of the whole job.
    of_job: u64,
    members: &'a BTreeMap<u64, Vec<u32>>,
}

impl Dump<'_> {
    fn of(&self, operations: &[Operation]) -> Value {
        let mut groups: BTreeMap<u32, Standing> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.collective != Collective::SendRecv) {
            let (number, hash) = (sequence(operation), operation.communicator.hash);
            let group = groups.entry(operation.of.0).or_insert(Standing { hash, begun: 0, over: 0 });
            group.begun = number.max(group.begun);
            if operation.end_ns.is_some() {
                group.over = number.max(group.over);
            }
        }
        let status = |(group, Standing { begun, over, .. }): (&u32, &Standing)| {
            let status = json!({
                "last_enqueued_collective": begun, "last_started_collective": begun, "last_completed_collective": over,
            });
            (group.to_string(), status)
        };
        let config = |(group, Standing { hash, .. }): (&u32, &Standing)| {
            let [name, description] = self.name(*hash);
            let ranks = format!("{:?}", self.members.get(hash)?);
            Some((group.to_string(), json!({"name": name, "desc": description, "ranks": ranks})))
        };
        let entries = operations.iter().enumerate().map(|(number, operation)| self.entry(number, operation));
        json!({
            "version": "2.10",
            "writer": concat!("busbw ", env!("CARGO_PKG_VERSION")),
            "pg_config": groups.iter().filter_map(config).collect::<Map<_, _>>(),
            "pg_status": groups.iter().map(status).collect::<Map<_, _>>(),
            "entries": entries.collect::<Vec<_>>(),
        })
    }

    fn entry(&self, record: usize, operation: &Operation) -> Value {
        let is_p2p = operation.collective == Collective::SendRecv;
        let elements = operation.bytes / operation.datatype.map_or(1, |datatype| datatype.size()).max(1);
        let over = operation.end_ns.is_some();
        json!({
            "record_id": record,
            "pg_id": operation.of.0,
            "process_group": self.name(operation.communicator.hash),
            "collective_seq_id": if is_p2p { 0 } else { sequence(operation) },
            "is_p2p": is_p2p,
            "profiling_name": format!("busbw:{}", operation.collective.name()),
            "time_created_ns": operation.begin_ns.wrapping_add(self.since_1970_ns),
            "duration_ms": operation.time_ns().map(|time| time as f64 / 1e6),
            "input_sizes": [[elements]],
            "input_dtypes": operation.datatype.map(|datatype| datatype.name()).into_iter().collect::<Vec<_>>(),
            "state": if over { "completed" } else { "started" },
            "retired": over,
        })
    }

    /// Name and description of a group, as PyTorch gives them to that of all ranks.
    fn name(&self, hash: u64) -> [String; 2] {
        [format!("{hash:016x}"), if hash == self.of_job { "default_pg".into() } else { String::new() }]
    }
}

/// PyTorch counts from one.
fn sequence(operation: &Operation) -> u64 {
    operation.of.1 + 1
}
