//! Ranks that are threads of this process, with the simplest collectives there are; reductions are the engine's.

use busbw_bench::{Backend, Combine, Context, Device, Error, Flags, Memory, NicBytes, Outcome, Result, run};
use busbw_collectives::reduction::{Store, combine};
use busbw_collectives::{Data, Operation, Room};
use busbw_model::Collective;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

/// Ranks meet here; each brings bytes and takes what all have brought.
pub struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: u64,
    brought: Vec<Option<Vec<u8>>>,
    taken: Arc<Vec<Vec<u8>>>,
    gone: bool,
}

impl Meeting {
    fn new(nranks: usize) -> Arc<Self> {
        let state = Mutex::new(State { brought: vec![None; nranks], ..Default::default() });
        Arc::new(Meeting { state, changed: Condvar::new() })
    }

    fn meet(&self, rank: usize, bytes: Vec<u8>) -> Result<Arc<Vec<Vec<u8>>>> {
        let mut state = self.state.lock().unwrap();
        let round = state.round;
        state.brought[rank] = Some(bytes);
        if state.brought.iter().all(Option::is_some) {
            state.taken = Arc::new(state.brought.iter_mut().map(|bytes| bytes.take().unwrap()).collect());
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round {
            if state.gone {
                return Err(Error::Job("a rank has gone".into()));
            }
            let (next, waited) = self.changed.wait_timeout(state, Duration::from_secs(60)).unwrap();
            assert!(!waited.timed_out(), "rank {rank} waits alone");
            state = next;
        }
        Ok(Arc::clone(&state.taken))
    }

    fn leave(&self) {
        self.state.lock().unwrap().gone = true;
        self.changed.notify_all();
    }
}

/// What goes wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// One element of this rank's result is changed, in operations of this many elements.
    Corrupt { rank: usize, count: usize },
    /// This rank fails at its n-th operation.
    Fail { rank: usize, operation: usize },
}

/// One rank.
pub struct Threads {
    meeting: Arc<Meeting>,
    rank: usize,
    /// Ranks of the group, by their rank of the job.
    group: Vec<usize>,
    color: u32,
    fault: Option<Fault>,
    operations: usize,
    available: u64,
}

impl Threads {
    fn exchange<T: Copy + 'static>(
        &self,
        mine: &[T],
        to: fn(T) -> [u8; 8],
        from: fn([u8; 8]) -> T,
    ) -> Result<Vec<Vec<T>>> {
        let bytes = mine.iter().flat_map(|value| to(*value)).collect();
        let all = self.meeting.meet(self.rank, bytes)?;
        Ok(all.iter().map(|bytes| bytes.as_chunks().0.iter().map(|chunk| from(*chunk)).collect()).collect())
    }
}

impl Backend for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }
    fn rank(&self) -> usize {
        self.group.iter().position(|rank| *rank == self.rank).unwrap()
    }
    fn nranks(&self) -> usize {
        self.group.len()
    }
    fn describe(&self) -> Device {
        let (bus_id, name) = ("0000:00:00".to_string(), "Test processor".to_string());
        let (rank, group, pid, device) = (self.rank, self.color, 4711, self.rank);
        Device { rank, group, pid, host: "hosta".into(), device, bus_id, name }
    }
    fn available_bytes(&self) -> u64 {
        self.available
    }
    fn used_bytes(&self) -> u64 {
        3 << 20
    }
    fn alloc(&mut self, bytes: usize) -> Result<Memory> {
        let mut room = vec![0u64; bytes.div_ceil(size_of::<u64>())];
        Ok(Memory::new(room.as_mut_ptr().cast(), bytes, Box::new(room)))
    }
    fn run(&mut self, operation: &Operation<'_>) -> Result<()> {
        self.operations += 1;
        if self.fault == Some(Fault::Fail { rank: self.rank, operation: self.operations }) {
            self.meeting.leave();
            return Err(Error::Job("rank 1 on hostb has died".into()));
        }
        let sends = self.exchange(&[operation.send.as_ptr() as usize], usize::to_le_bytes, usize::from_le_bytes)?;
        let sends: Vec<usize> = self.group.iter().map(|rank| sends[*rank][0]).collect();
        // SAFETY: every rank waits below until all have read, and its buffers are as large as the operation says.
        let result = unsafe { result(operation, self.rank(), &sends) };
        self.barrier()?;
        if let Some(mut result) = result {
            if self.fault == Some(Fault::Corrupt { rank: self.rank, count: operation.count }) {
                result[0] ^= 1;
            }
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(result.as_ptr(), operation.receive.as_ptr(), result.len()) };
        }
        self.barrier()
    }
    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
    fn barrier(&mut self) -> Result<()> {
        self.meeting.meet(self.rank, Vec::new()).map(|_| ())
    }
    fn all_reduce_f64(&mut self, values: &mut [f64], how: Combine) -> Result<()> {
        let all = self.exchange(values, f64::to_le_bytes, f64::from_le_bytes)?;
        for (index, value) in values.iter_mut().enumerate() {
            let column = all.iter().map(|values| values[index]);
            *value = match how {
                Combine::Sum => column.sum(),
                Combine::Min => column.reduce(f64::min).unwrap(),
                Combine::Max => column.reduce(f64::max).unwrap(),
                Combine::Avg => column.sum::<f64>() / all.len() as f64,
            };
        }
        Ok(())
    }
    fn gather(&mut self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let all = self.meeting.meet(self.rank, mine.to_vec())?;
        Ok((self.rank == 0).then(|| all.to_vec()))
    }
    fn nics(&mut self) -> Result<Vec<NicBytes>> {
        let n = self.operations as u64;
        Ok(vec![NicBytes { host: "hosta".into(), name: "eth0".into(), tx: 1000 * n, rx: 500 * n }])
    }
}

/// What a rank gets, as bytes; nothing where it gets nothing.
unsafe fn result(operation: &Operation<'_>, rank: usize, sends: &[usize]) -> Option<Vec<u8>> {
    let (n, element) = (sends.len(), operation.element());
    let bytes = operation.bytes();
    let piece = |source: usize, start: usize, len: usize| {
        // SAFETY: the caller's promise: sources have what the operation says.
        unsafe { std::slice::from_raw_parts((sends[source] + start) as *const u8, len) }.to_vec()
    };
    let is_root = rank == operation.root;
    Some(match operation.collective {
        Collective::AllReduce => reduce(operation, &(0..n).map(|r| piece(r, 0, bytes)).collect::<Vec<_>>()),
        Collective::Reduce if !is_root => return None,
        Collective::Reduce => reduce(operation, &(0..n).map(|r| piece(r, 0, bytes)).collect::<Vec<_>>()),
        Collective::ReduceScatter => {
            reduce(operation, &(0..n).map(|r| piece(r, rank * bytes, bytes)).collect::<Vec<_>>())
        }
        Collective::Gather if !is_root => return None,
        Collective::AllGather | Collective::HyperCube | Collective::Gather => {
            (0..n).flat_map(|r| piece(r, 0, bytes)).collect()
        }
        Collective::Broadcast => piece(operation.root, 0, bytes),
        Collective::Scatter => piece(operation.root, rank * bytes, bytes),
        Collective::AllToAll => (0..n).flat_map(|r| piece(r, rank * bytes, bytes)).collect(),
        Collective::SendRecv => piece((rank + n - 1) % n, 0, bytes),
        Collective::AllToAllV => (0..n)
            .flat_map(|r| {
                let row = &operation.counts[r * n..][..n];
                piece(r, row[..rank].iter().sum::<usize>() * element, row[rank] * element)
            })
            .collect(),
    })
}

fn reduce(operation: &Operation<'_>, inputs: &[Vec<u8>]) -> Vec<u8> {
    let Operation { datatype, redop, .. } = *operation;
    let (mut reduced, count) = (vec![0; inputs[0].len()], inputs[0].len() / operation.element());
    // SAFETY: the vectors outlive the reduction, and nobody else has them.
    let (out, ins) = unsafe {
        let data = |input: &Vec<u8>| Data::new(input.as_ptr(), input.len());
        (Room::new(reduced.as_mut_ptr(), reduced.len()), inputs.iter().map(data).collect::<Vec<_>>())
    };
    combine(&[out], &ins, count, datatype, redop, inputs.len(), Store::Cached);
    reduced
}

pub struct Job {
    pub collective: Collective,
    pub nranks: usize,
    pub flags: Vec<String>,
    pub env: Vec<(String, String)>,
    pub fault: Option<Fault>,
    pub available: u64,
}

/// What a job printed, and how each rank ended.
pub struct Printed {
    pub text: String,
    pub outcomes: Vec<Result<Outcome>>,
}

impl Printed {
    /// The outcome of a job in which every rank came to the end.
    pub fn outcome(&self) -> Outcome {
        let outcomes: Vec<Outcome> = self.outcomes.iter().map(|outcome| *outcome.as_ref().unwrap()).collect();
        assert!(outcomes.iter().all(|outcome| outcome.ok == outcomes[0].ok));
        outcomes[0]
    }
}

impl Job {
    pub fn new(collective: Collective, nranks: usize, flags: &str) -> Self {
        let flags = flags.split_ascii_whitespace().map(str::to_string).collect();
        Job { collective, nranks, flags, env: Vec::new(), fault: None, available: 1 << 30 }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    fn backend(&self, meeting: &Arc<Meeting>, rank: usize) -> Threads {
        let variable = |name: &str| self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let split = busbw_bench::split::Split::read(variable).unwrap();
        let color = split.color(rank as u32);
        let group = (0..self.nranks).filter(|other| split.color(*other as u32) == color).collect();
        let (fault, available) = (self.fault, self.available);
        Threads { meeting: Arc::clone(meeting), rank, group, color, fault, operations: 0, available }
    }

    /// Runs the job; `flags_of` may change a rank's flags.
    pub fn run_with(&self, flags_of: impl Fn(usize, &mut Flags) + Sync) -> Printed {
        let meeting = Meeting::new(self.nranks);
        let program = format!("{}_perf", self.collective);
        let argv: Vec<String> = std::iter::once(program).chain(self.flags.iter().cloned()).collect();
        let flags = Flags::parse("perf", &argv).unwrap_or_else(|error| panic!("{error}"));
        let context = Context::new(self.collective, argv, self.env.clone(), SystemTime::now());
        let one = |rank: usize| {
            let mut flags = flags.clone();
            flags_of(rank, &mut flags);
            let mut out = Vec::new();
            let outcome = run(&flags, self.collective, &mut self.backend(&meeting, rank), &mut out, &context);
            if outcome.is_err() {
                meeting.leave();
            }
            (String::from_utf8(out).unwrap(), outcome)
        };
        let (texts, outcomes): (Vec<String>, Vec<_>) = std::thread::scope(|scope| {
            let one = &one;
            let ranks: Vec<_> = (0..self.nranks).map(|rank| scope.spawn(move || one(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).unzip()
        });
        assert!(texts[1..].iter().all(String::is_empty), "only rank 0 writes");
        let text = texts.into_iter().next().unwrap();
        Printed { text, outcomes }
    }

    pub fn run(&self) -> Printed {
        self.run_with(|_, _| {})
    }
}
