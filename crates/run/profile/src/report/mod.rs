//! Adds up what operations cost.

mod recordings;

use crate::ledger::{Communicator, Ledger, Operation, Steps};
use crate::rounds::Rounds;
use crate::spans::Busy;
use crate::tally::Times;
use crate::trace::{self, OfEnd, Trace, Traced};
use busbw_collectives::algorithms;
use busbw_events::Source;
use busbw_model::{Collective, Datatype, GBps, Profile, ProfiledOperation, ProfiledRank, StepTimes, WorstOperation};
pub use recordings::{Recorded, Recording};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// So many of a kind's longest are kept, and so many are told.
const KEPT: usize = 8;
const TOLD: usize = 10;
/// An operation is told as bad from this multiple of its kind's median on.
const BAD: f64 = 2.0;

/// Operations that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sort {
    source: Source,
    collective: Collective,
    bytes: u64,
    datatype: Option<Datatype>,
    ranks: u32,
    nodes: u32,
    algorithm: u8,
    protocol: u8,
}

#[derive(Default)]
struct Sum {
    times: Times,
    count: u64,
    replayed: u64,
    channels: u8,
    /// The longest: time, begin, ring.
    longest: Vec<(u64, u64, usize)>,
}

/// What is known of a process.
struct Process {
    host: Arc<str>,
    pid: u32,
    since_1970_ns: u64,
    busy: Busy,
    steps: Steps,
    largest: Option<Communicator>,
    /// Its last operations, where the report keeps them.
    last: VecDeque<Operation>,
}

/// The operations of a job.
#[derive(Default)]
pub struct Report {
    sums: FxHashMap<Sort, Sum>,
    processes: Vec<Process>,
    rounds: Rounds,
    first_ns: Option<u64>,
    trace: Option<Trace>,
    keeps_last: bool,
}

impl Report {
    /// With a trace beside it.
    pub fn new(trace: Option<Trace>) -> Self {
        Report { trace, ..Report::default() }
    }

    /// With each rank's last operations kept, for [`Report::recordings`].
    pub fn recording() -> Self {
        Report { keeps_last: true, ..Report::default() }
    }

    /// Adds a process, in the order of the ledger's rings.
    pub fn add_process(&mut self, host: &Arc<str>, pid: u32, since_1970_ns: u64) {
        let (host, (busy, steps, last)) = (Arc::clone(host), Default::default());
        self.processes.push(Process { host, pid, since_1970_ns, busy, steps, largest: None, last });
    }

    /// Processes are on several hosts, whose clocks may be wrong by so much beside each other.
    pub(crate) fn across_hosts(&mut self, error_ns: f64) {
        let hosts = self.hosts();
        let number = |process: &Process| hosts.iter().position(|host| **host == *process.host).unwrap_or(0);
        self.rounds.across(self.processes.iter().map(number).collect(), error_ns);
    }

    /// The hosts, in the order in which they came.
    fn hosts(&self) -> Vec<Arc<str>> {
        let mut hosts: Vec<Arc<str>> = Vec::new();
        for process in &self.processes {
            if !hosts.contains(&process.host) {
                hosts.push(Arc::clone(&process.host));
            }
        }
        hosts
    }

    /// Adds what a ledger has finished.
    pub fn take(&mut self, ledger: &mut Ledger) -> io::Result<()> {
        let finished = ledger.take();
        let members = self.members(ledger);
        for operation in &finished {
            let members = members.get(&operation.communicator.hash).copied().unwrap_or(0);
            self.add(operation, members)?;
        }
        for (ring, process) in self.processes.iter_mut().enumerate() {
            process.busy.settle(ledger.open_since(ring));
        }
        Ok(())
    }

    /// How many ranks of each communicator are seen.
    fn members(&self, ledger: &Ledger) -> FxHashMap<u64, usize> {
        let mut members = FxHashMap::default();
        for communicator in (0..self.processes.len()).flat_map(|ring| ledger.communicators(ring)) {
            *members.entry(communicator.hash).or_default() += 1;
        }
        members
    }

    fn add(&mut self, operation: &Operation, members: usize) -> io::Result<()> {
        let Communicator { ranks, nodes, source, .. } = operation.communicator;
        let Operation { collective, bytes, datatype, algorithm, protocol, .. } = *operation;
        let sort = Sort { source, collective, bytes, datatype, ranks, nodes, algorithm, protocol };
        let sum = self.sums.entry(sort).or_default();
        sum.count += 1;
        sum.replayed += u64::from(operation.replayed);
        sum.channels = sum.channels.max(operation.channels);
        let process = &mut self.processes[operation.ring];
        if process.largest.is_none_or(|largest| largest.ranks < ranks) {
            process.largest = Some(operation.communicator);
        }
        if self.keeps_last {
            process.keep(operation);
        }
        let Some((time_ns, end_ns)) = operation.time_ns().zip(operation.end_ns) else { return self.trace(operation) };
        sum.times.add(time_ns);
        sum.keep((time_ns, operation.begin_ns, operation.ring));
        process.busy.add(operation.begin_ns, end_ns);
        process.steps.merge(&operation.steps);
        self.first_ns = Some(self.first_ns.map_or(operation.begin_ns, |first| first.min(operation.begin_ns)));
        self.rounds.add(operation, members);
        self.trace(operation)
    }

    fn trace(&mut self, operation: &Operation) -> io::Result<()> {
        let Process { host, pid, since_1970_ns, .. } = &self.processes[operation.ring];
        let of = Traced { host, pid: *pid, since_1970_ns: *since_1970_ns };
        self.trace.as_mut().map_or(Ok(()), |trace| trace.add(operation, of))
    }

    /// Ends the trace, and tells what the operations cost, of so many events. What only the caller knows of the job is left as it is by
    /// default.
    pub fn finish(mut self, ledger: &mut Ledger, events: u64, lost: u64) -> io::Result<Profile> {
        ledger.settle(None);
        self.take(ledger)?;
        self.processes.iter_mut().for_each(|process| process.busy.settle(None));
        if let Some(trace) = self.trace.take() {
            trace.finish(OfEnd { events, lost })?;
        }
        let all: f64 = self.sums.values().map(|sum| sum.times.total).sum();
        let mut operations: Vec<ProfiledOperation> = self.sums.iter().map(|(sort, sum)| sum.told(sort, all)).collect();
        operations.sort_by(|a, b| {
            b.total_us.total_cmp(&a.total_us).then_with(|| (a.collective, a.bytes).cmp(&(b.collective, b.bytes)))
        });
        let notes = self.notes(ledger);
        let worst = self.worst();
        let stragglers = self.rounds.stragglers();
        let (ranks, host) = (self.ranks(), self.hosts().join(", "));
        Ok(Profile { host, events, lost, ranks, operations, worst, stragglers, notes, ..Profile::default() })
    }

    /// How many ranks of the largest communicator are not seen, of how many.
    fn missing(&self, ledger: &Ledger) -> Option<(usize, usize)> {
        let all = (0..self.processes.len()).flat_map(|ring| ledger.communicators(ring));
        let largest = all.filter(|one| one.ranks > 0 && one.hash != 0).max_by_key(|one| one.ranks)?;
        let (seen, ranks) = (self.members(ledger).get(&largest.hash).copied()?, largest.ranks as usize);
        (seen < ranks).then(|| (ranks - seen, ranks))
    }

    fn ranks(&self) -> Vec<ProfiledRank> {
        let rank = |(ring, process): (usize, &Process)| {
            let (first, last) = process.busy.span?;
            Some(ProfiledRank {
                rank: process.rank(),
                host: process.host.to_string(),
                process: process.pid,
                span_us: (last - first) as f64 / 1e3,
                busy_us: process.busy.busy_ns as f64 / 1e3,
                added_us: process.busy.added_ns as f64 / 1e3,
                waited_us: self.rounds.waited_ns.get(&ring).map(|waited| waited / 1e3),
                steps: process.steps.told(),
            })
        };
        let mut ranks: Vec<ProfiledRank> = self.processes.iter().enumerate().filter_map(rank).collect();
        ranks.sort_by(|a, b| (a.rank, &a.host, a.process).cmp(&(b.rank, &b.host, b.process)));
        ranks
    }

    fn worst(&self) -> Vec<WorstOperation> {
        let mut worst: Vec<WorstOperation> = Vec::new();
        for (sort, sum) in &self.sums {
            let median = sum.times.quantile(0.5);
            let of = |&(time_ns, begin_ns, ring): &(u64, u64, usize)| WorstOperation {
                collective: sort.collective,
                bytes: sort.bytes,
                rank: self.processes[ring].rank(),
                begin_us: begin_ns.saturating_sub(self.first_ns.unwrap_or(0)) as f64 / 1e3,
                time_us: time_ns as f64 / 1e3,
                times_median: time_ns as f64 / median,
            };
            worst.extend(sum.longest.iter().map(of).filter(|operation| operation.times_median >= BAD));
        }
        // What cost the most beyond the usual.
        let beyond = |operation: &WorstOperation| operation.time_us * (1.0 - 1.0 / operation.times_median);
        worst.sort_by(|a, b| beyond(b).total_cmp(&beyond(a)));
        worst.truncate(TOLD);
        worst
    }

    fn notes(&self, ledger: &Ledger) -> Vec<String> {
        let mut notes = Vec::new();
        if self.processes.is_empty() {
            notes.push(
                "no process wrote an event: NCCL loads the plugin when the first communicator is made, and busbw.torch and busbw \
                 bench need none"
                    .to_owned(),
            );
        }
        let missing = self.missing(ledger);
        if let Some((ranks, all)) = missing {
            notes.push(format!(
                "{ranks} of the {all} ranks of the largest communicator wrote no event here: they have no BUSBW_PROFILE, or run on \
                 other hosts: profile each host with --trace, and put the traces together with busbw profile --merge"
            ));
        }
        if ledger.open() > 0 {
            notes.push(format!("{} operations were not over at the end", ledger.open()));
        }
        if ledger.orphans() > 0 {
            notes.push(format!("{} parts belong to operations of processes that are not seen here", ledger.orphans()));
        }
        let untimed: u64 = self.sums.values().map(|sum| sum.count - sum.times.count).sum();
        if untimed > 0 {
            notes.push(format!(
                "{untimed} operations have no end: before NCCL 2.26, only those that use the network have one"
            ));
        }
        notes
    }
}

impl Process {
    fn keep(&mut self, operation: &Operation) {
        if self.last.len() == recordings::KEPT {
            self.last.pop_front();
        }
        self.last.push_back(*operation);
    }

    /// Rank in the largest communicator, where its size is known.
    fn rank(&self) -> Option<u32> {
        self.largest.filter(|largest| largest.ranks > 0).map(|largest| largest.rank)
    }
}

impl Sum {
    fn keep(&mut self, operation: (u64, u64, usize)) {
        if self.longest.len() < KEPT || self.longest.last().is_some_and(|last| *last < operation) {
            let at = self.longest.partition_point(|other| *other > operation);
            self.longest.insert(at, operation);
            self.longest.truncate(KEPT);
        }
    }

    fn told(&self, sort: &Sort, all: f64) -> ProfiledOperation {
        let Times { count, total, most, .. } = self.times;
        let algorithm = match sort.source {
            Source::Nccl => busbw_events::algorithm(sort.algorithm).map(|algorithm| algorithm.name()),
            Source::Engine => algorithms::name_of(sort.algorithm),
            Source::Torch => None,
        };
        let median = self.times.quantile(0.5);
        let busbw = (sort.ranks > 0 && median > 0.0).then(|| {
            let algbw = GBps(sort.bytes as f64 / median);
            sort.collective.busbw(algbw, sort.ranks).0
        });
        ProfiledOperation {
            collective: sort.collective,
            source: trace::told(sort.source),
            bytes: sort.bytes,
            datatype: sort.datatype,
            ranks: sort.ranks,
            nodes: sort.nodes,
            algorithm: algorithm.map(str::to_owned),
            protocol: busbw_events::protocol(sort.protocol).map(|protocol| protocol.name().to_owned()),
            channels: self.channels.into(),
            count: self.count,
            replayed: self.replayed,
            untimed: self.count - count,
            total_us: total / 1e3,
            share: if all > 0.0 { total / all } else { 0.0 },
            median_us: median / 1e3,
            p99_us: self.times.quantile(0.99) / 1e3,
            most_us: most as f64 / 1e3,
            busbw_gbs: busbw,
            expected_us: None,
        }
    }
}

impl Steps {
    fn merge(&mut self, other: &Steps) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.count, other.count);
        add(&mut self.send_gpu, other.send_gpu);
        add(&mut self.send_peer, other.send_peer);
        add(&mut self.send_network, other.send_network);
        add(&mut self.receive_network, other.receive_network);
        add(&mut self.receive_gpu, other.receive_gpu);
        add(&mut self.sent_bytes, other.sent_bytes);
    }

    fn told(&self) -> StepTimes {
        let us = |time_ns: u64| time_ns as f64 / 1e3;
        StepTimes {
            steps: self.count,
            send_gpu_us: us(self.send_gpu),
            send_peer_us: us(self.send_peer),
            send_network_us: us(self.send_network),
            receive_network_us: us(self.receive_network),
            receive_gpu_us: us(self.receive_gpu),
            sent_bytes: self.sent_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
