//! Makes operations of events: when each began and ended, and where its steps' time went.
//!
//! Of NCCL's operations, the event's own end is that of enqueueing. Such an operation ends with the last of its parts (kernels'
//! channels, proxy operations), which begin later and on other threads, so it is done when no part has been open for a while.

mod steps;

pub use steps::Steps;

use busbw_events::{Function, Kind, Record, Source, State, What, kind_of};
use busbw_model::{Collective, Datatype};
use rustc_hash::{FxHashMap, FxHashSet};
use steps::Step;

/// An operation without an open part is done after so long.
const QUIET_NS: u64 = 100_000_000;
/// Parts of so many operations may wait for them.
const MOST_EARLY: usize = 1 << 16;
/// An operation that no part ever belonged to is given up after so long: its end is not known.
const PATIENCE_NS: u64 = 10_000_000_000;

/// A communicator, as its process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Communicator {
    /// The same in all its processes; 0 where NCCL does not tell.
    pub hash: u64,
    pub ranks: u32,
    pub nodes: u32,
    pub rank: u32,
    pub source: Source,
}

/// An operation that is over. Times are `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Which process's, by the order in which the rings were found.
    pub ring: usize,
    pub communicator: Communicator,
    /// Its communicator's number in the process, and how many operations that had before.
    pub of: (u32, u64),
    pub collective: Collective,
    pub datatype: Option<Datatype>,
    pub algorithm: u8,
    pub protocol: u8,
    pub channels: u8,
    /// As nccl-tests counts them.
    pub bytes: u64,
    /// When the rank was there: its GPU, where that is known, else its program.
    pub begin_ns: u64,
    /// `None` where no event tells.
    pub end_ns: Option<u64>,
    /// A CUDA graph replayed it.
    pub replayed: bool,
    /// The rank that it sends to, where it sends to one.
    pub peer: Option<u32>,
    pub steps: Steps,
}

impl Operation {
    pub fn time_ns(&self) -> Option<u64> {
        self.end_ns.map(|end| end.saturating_sub(self.begin_ns))
    }
}

#[cfg(test)]
impl Operation {
    /// An all-reduce of 8 bytes, each rank with a ring of its own.
    pub(crate) fn of_rank(communicator: Communicator, number: u64, begin_ns: u64, end_ns: u64) -> Self {
        Operation {
            ring: communicator.rank as usize,
            communicator,
            of: (1, number),
            collective: Collective::AllReduce,
            datatype: None,
            algorithm: 0,
            protocol: 0,
            channels: 0,
            bytes: 8,
            begin_ns,
            end_ns: Some(end_ns),
            replayed: false,
            peer: None,
            steps: Steps::default(),
        }
    }
}

/// An operation that is not over.
struct Open {
    operation: Operation,
    /// What the application's time tells, until the GPU's is known.
    arrived: bool,
    queued_ns: Option<u64>,
    parts: u32,
    last_ns: Option<u64>,
    /// The GPU's first and last time.
    timer: Option<(u64, u64)>,
}

/// Something that belongs to an operation, maybe of another process.
#[derive(Clone, Copy)]
struct Part {
    ring: usize,
    operation: u64,
    step: Option<Step>,
    sends: bool,
}

#[derive(Default)]
struct Process {
    communicators: FxHashMap<u32, (Communicator, u64)>,
    captured: FxHashSet<u64>,
    /// The first operation whose begin was seen: of those before, only parts may come.
    first: Option<u64>,
    open: FxHashMap<u64, Open>,
    parts: FxHashMap<u64, Part>,
    /// Parts of operations whose event was not read yet, since it is in another process's ring: how many are open, and the last's end.
    early: FxHashMap<u64, (u32, Option<u64>)>,
}

/// The operations of all processes.
#[derive(Default)]
pub struct Ledger {
    processes: Vec<Process>,
    /// Rings by process; those of NCCL, which tell proxies' parents.
    by_pid: FxHashMap<u32, usize>,
    finished: Vec<Operation>,
    orphans: u64,
}

impl Ledger {
    /// Adds a ring of a process; its number.
    pub fn add(&mut self) -> usize {
        self.processes.push(Process::default());
        self.processes.len() - 1
    }

    /// Adds an operation that another ledger finished, with its communicator.
    pub(crate) fn restore(&mut self, operation: Operation) {
        let communicators = &mut self.processes[operation.ring].communicators;
        communicators.entry(operation.of.0).or_insert((operation.communicator, 0));
        self.finished.push(operation);
    }

    /// The communicators of a process.
    pub fn communicators(&self, ring: usize) -> impl Iterator<Item = Communicator> {
        self.processes[ring].communicators.values().map(|(communicator, _)| *communicator)
    }

    /// Operations that have begun and are not over.
    pub fn open(&self) -> usize {
        self.processes.iter().map(|process| process.open.len()).sum()
    }

    /// The operations of a process that have begun and are not over, in no order.
    pub fn begun(&self, ring: usize) -> impl Iterator<Item = Operation> {
        self.processes[ring].open.values().map(|open| open.operation)
    }

    /// When the first of a process's operations began that are not over.
    pub fn open_since(&self, ring: usize) -> Option<u64> {
        self.processes[ring].open.values().map(|open| open.operation.begin_ns).min()
    }

    /// Takes the operations that are over.
    pub fn take(&mut self) -> Vec<Operation> {
        std::mem::take(&mut self.finished)
    }

    /// Parts whose operation is not known: of a process that wrote nothing, or whose event was lost.
    pub fn orphans(&self) -> u64 {
        let early = |process: &Process| process.early.keys().filter(|parent| !process.is_before(**parent)).count();
        self.orphans + self.processes.iter().map(early).sum::<usize>() as u64
    }

    /// Reads an event of process `pid`.
    pub fn feed(&mut self, ring: usize, pid: u32, record: &Record) {
        let Record { time_ns, id, parent, what, .. } = *record;
        match what {
            What::Communicator { hash, ranks, nodes, rank, source } => {
                if source == Source::Nccl {
                    self.by_pid.insert(pid, ring);
                }
                let communicator = Communicator { hash, ranks, nodes, rank, source };
                self.processes[ring].communicators.insert(id as u32, (communicator, 0));
            }
            What::Call { captured } => {
                if captured {
                    self.processes[ring].captured.insert(id);
                }
            }
            What::Operation { .. } => self.begin(ring, record),
            What::ProxyOperation { process, peer, sends, .. } => {
                let owner = if process == pid { Some(ring) } else { self.by_pid.get(&process).copied() };
                if owner.is_some_and(|owner| self.processes[owner].is_before(parent)) {
                    return;
                }
                let Some(owner) = owner.filter(|owner| self.processes[*owner].expects(parent)) else {
                    self.orphans += 1;
                    return;
                };
                let part = Part { ring: owner, operation: parent, step: None, sends };
                self.processes[ring].parts.insert(id, part);
                match self.processes[owner].open.get_mut(&parent) {
                    Some(open) => {
                        open.parts += 1;
                        if sends {
                            open.operation.peer = Some(peer);
                        }
                    }
                    None => self.processes[owner].early.entry(parent).or_default().0 += 1,
                }
            }
            What::ProxyStep { .. } => {
                if let Some(part) = self.processes[ring].parts.get(&parent).copied() {
                    let step = Some(Step::begin(time_ns, part.sends));
                    self.processes[ring].parts.insert(id, Part { step, ..part });
                }
            }
            What::Kernel { timer_ns, .. } => {
                let process = &mut self.processes[ring];
                let Some(open) = process.open.get_mut(&parent) else {
                    self.orphans += u64::from(!process.is_before(parent));
                    return;
                };
                open.parts += 1;
                open.arrive(time_ns);
                if timer_ns > 0 {
                    let (first, last) = open.timer.unwrap_or((timer_ns, timer_ns));
                    open.timer = Some((first.min(timer_ns), last));
                }
                let part = Part { ring, operation: parent, step: None, sends: false };
                self.processes[ring].parts.insert(id, part);
            }
            What::State { state, value } => self.change(ring, id, time_ns, state, value),
            What::Stop => self.stop(ring, id, time_ns),
            What::Message { bytes, .. } => {
                if let Some(part) = self.processes[ring].parts.get(&parent).copied()
                    && let Some(open) = self.processes[part.ring].open.get_mut(&part.operation)
                {
                    let sent = &mut open.operation.steps.sent_bytes;
                    *sent = sent.saturating_add(bytes);
                }
            }
        }
    }

    fn begin(&mut self, ring: usize, record: &Record) {
        let What::Operation { communicator: number, function, datatype, algorithm, protocol, channels, count } =
            record.what
        else {
            return;
        };
        let process = &mut self.processes[ring];
        process.first.get_or_insert(record.id);
        let Some((communicator, before)) = process.communicators.get_mut(&number) else { return };
        // What was lost counts too.
        *before = record.sequence.unwrap_or(*before);
        let collective = match function {
            Function::Collective(collective) => collective,
            Function::Send | Function::Receive => Collective::SendRecv,
        };
        let operation = Operation {
            ring,
            communicator: *communicator,
            of: (number, *before),
            collective,
            datatype,
            algorithm,
            protocol,
            channels,
            bytes: bytes(collective, count, datatype, communicator.ranks),
            begin_ns: record.time_ns,
            end_ns: None,
            replayed: process.captured.contains(&record.parent),
            peer: None,
            steps: Steps::default(),
        };
        // Sends and receives come in no order that all ranks share.
        *before += u64::from(matches!(function, Function::Collective(_)));
        let (parts, last_ns) = process.early.remove(&record.id).unwrap_or_default();
        let open = Open { operation, arrived: false, queued_ns: None, parts, last_ns, timer: None };
        process.open.insert(record.id, open);
    }

    fn change(&mut self, ring: usize, id: u64, time_ns: u64, state: State, value: u64) {
        let Some(part) = self.processes[ring].parts.get_mut(&id) else { return };
        let (owner, operation) = (part.ring, part.operation);
        let left = part.step.as_mut().and_then(|step| step.change(state, time_ns));
        let Some(open) = self.processes[owner].open.get_mut(&operation) else { return };
        if let Some((state, spent)) = left {
            open.operation.steps.add(state, spent);
            // The GPU has filled a buffer: it is there.
            if state == State::SendGpu {
                open.arrive(time_ns);
            }
        }
        if state == State::KernelEnd
            && let Some((_, last)) = &mut open.timer
        {
            *last = value.max(*last);
        }
    }

    fn stop(&mut self, ring: usize, id: u64, time_ns: u64) {
        if kind_of(id) == Some(Kind::Operation) {
            let Some(open) = self.processes[ring].open.get_mut(&id) else { return };
            open.queued_ns = Some(time_ns);
            if open.operation.communicator.source != Source::Nccl {
                open.operation.end_ns = Some(time_ns);
                let over = self.processes[ring].open.remove(&id);
                self.finished.extend(over.map(|open| open.operation));
            }
            return;
        }
        let Some(part) = self.processes[ring].parts.remove(&id) else { return };
        let process = &mut self.processes[part.ring];
        let Some(open) = process.open.get_mut(&part.operation) else {
            if let Some((parts, last_ns)) = process.early.get_mut(&part.operation).filter(|_| part.step.is_none()) {
                (*parts, *last_ns) = (parts.saturating_sub(1), Some(time_ns).max(*last_ns));
            }
            return;
        };
        match part.step {
            Some(step) => {
                if let Some((state, spent)) = step.end(time_ns) {
                    open.operation.steps.add(state, spent);
                }
                open.operation.steps.count += 1;
            }
            None => {
                open.parts = open.parts.saturating_sub(1);
                open.last_ns = open.last_ns.max(Some(time_ns));
            }
        }
    }

    /// Gives up what is not over: reading ends, and the job goes on.
    pub fn cut(&mut self) {
        for process in &mut self.processes {
            process.open.clear();
            process.early.clear();
        }
    }

    /// Ends operations whose parts are all done. `now_ns`: `None` when no event comes any more.
    pub fn settle(&mut self, now_ns: Option<u64>) {
        let passed = |since: u64, limit: u64| now_ns.is_none_or(|now| now.saturating_sub(since) >= limit);
        for process in &mut self.processes {
            let over = process.open.extract_if(|_, open| match (open.last_ns, open.queued_ns) {
                (Some(last), Some(_)) => open.parts == 0 && passed(last, QUIET_NS),
                (None, Some(queued)) => open.parts == 0 && passed(queued, PATIENCE_NS),
                (_, None) => false,
            });
            self.finished.extend(over.map(|(_, open)| open.finish()));
        }
    }
}

impl Process {
    /// Whether an operation began before reading did, or before a gap.
    fn is_before(&self, operation: u64) -> bool {
        self.first.is_some_and(|first| kind_of(operation) == Some(Kind::Operation) && operation < first)
    }

    /// Whether parts of an operation may come: it is open, or its event may be in a ring that was not read yet.
    fn expects(&self, operation: u64) -> bool {
        self.open.contains_key(&operation)
            || kind_of(operation) == Some(Kind::Operation)
                && (self.early.contains_key(&operation) || self.early.len() < MOST_EARLY)
    }
}

impl Open {
    /// Notes that the rank's GPU was there.
    fn arrive(&mut self, time_ns: u64) {
        if !std::mem::replace(&mut self.arrived, true) {
            self.operation.begin_ns = time_ns;
        }
    }

    fn finish(self) -> Operation {
        // The GPU's clock is exact; the proxy looks at the GPU's counters now and then.
        let by_gpu = self.timer.filter(|(first, last)| last > first).map(|(first, last)| last - first);
        let begin_ns = self.operation.begin_ns;
        let end_ns = by_gpu.map(|time| begin_ns.saturating_add(time)).or(self.last_ns);
        Operation { end_ns, ..self.operation }
    }
}

/// Bytes of an operation as nccl-tests counts them: the larger of a rank's two buffers. Elements are counted as NCCL's functions do.
fn bytes(collective: Collective, count: u64, datatype: Option<Datatype>, ranks: u32) -> u64 {
    let given = count.saturating_mul(datatype.map_or(1, Datatype::size));
    match collective {
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter
        | Collective::HyperCube => given.saturating_mul(u64::from(ranks.max(1))),
        _ => given,
    }
}

#[cfg(test)]
mod tests;
