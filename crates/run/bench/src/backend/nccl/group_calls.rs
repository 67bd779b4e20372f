//! The ranks that nccl-tests drives from one thread (`-g`): here each has a thread, and the first one makes NCCL's calls for
//! all of them, as one group.

use crate::{Error, Result};
use busbw_gpu::nccl::{CommunicatorUse, Nccl};
use busbw_transport::Cancellation;
use busbw_transport::wait::{Cores, Waiter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a rank wants to have called; gives what must be held until the group of calls has ended.
pub type Call = Box<dyn FnOnce() -> busbw_gpu::Result<Option<CommunicatorUse>> + Send>;

/// How often a thread that waits for NCCL looks at its cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// Ranks whose calls are made together.
pub struct GroupCalls {
    nccl: Arc<Nccl>,
    calls: Vec<Mutex<Option<Call>>>,
    arrived: AtomicUsize,
    round: AtomicU64,
    ended: Mutex<std::result::Result<(), String>>,
}

/// One rank of those whose calls are made together.
#[derive(Clone)]
pub struct Caller {
    group: Arc<GroupCalls>,
    number: usize,
    cancel: Arc<Cancellation>,
}

impl GroupCalls {
    /// For calls of `size` ranks.
    pub fn new(nccl: &Arc<Nccl>, size: usize) -> Arc<Self> {
        Arc::new(GroupCalls {
            nccl: Arc::clone(nccl),
            calls: (0..size).map(|_| Mutex::new(None)).collect(),
            arrived: AtomicUsize::new(0),
            round: AtomicU64::new(0),
            ended: Mutex::new(Ok(())),
        })
    }

    fn call_all(&self, calls: Vec<Call>) -> std::result::Result<(), String> {
        let mut held = Vec::new();
        let called = self.nccl.group(|| {
            calls.into_iter().try_for_each(|call| {
                held.extend(call()?);
                Ok(())
            })
        });
        drop(held);
        called.map_err(|error| error.to_string())
    }

    pub fn size(&self) -> usize {
        self.calls.len()
    }
}

impl Caller {
    /// Rank `number` of a group, whose waits end with `cancel`.
    pub fn new(group: &Arc<GroupCalls>, number: usize, cancel: &Arc<Cancellation>) -> Self {
        Caller { group: Arc::clone(group), number, cancel: Arc::clone(cancel) }
    }

    /// Whether this rank is all of the group.
    pub fn is_alone(&self) -> bool {
        self.group.calls.len() == 1
    }

    /// Has `call` made in a group with those of all other ranks of the group; returns when all have returned.
    pub fn together(&self, call: Call) -> Result<()> {
        self.meet(call, |group, calls| Ok(group.call_all(calls)))
    }

    /// Has one call made for all ranks of the group, by the first, outside of ncclGroupStart and ncclGroupEnd; returns when it has
    /// returned. Every rank brings the same.
    pub fn once(&self, call: Call) -> Result<()> {
        self.meet(call, |_, calls| {
            let first = calls.into_iter().next();
            Ok(first.map_or(Ok(()), |call| call().map(drop)).map_err(|error| error.to_string()))
        })
    }

    /// As [`Caller::together`], for calls that may block for ever when a peer dies, and that nobody can end: they run on a
    /// thread that is left behind when the job is cancelled, or after `patience`.
    pub fn together_apart(&self, call: Call, patience: Option<Duration>) -> Result<()> {
        self.meet(call, |group, calls| {
            let group = Arc::clone(group);
            apart(&self.cancel, patience, move || group.call_all(calls))
        })
    }

    /// The first rank does `work` with the calls of all when all are there; the others wait for it.
    fn meet(
        &self,
        call: Call,
        work: impl FnOnce(&Arc<GroupCalls>, Vec<Call>) -> Result<std::result::Result<(), String>>,
    ) -> Result<()> {
        let group = &self.group;
        let round = group.round.load(Ordering::Acquire);
        *lock(&group.calls[self.number]) = Some(call);
        group.arrived.fetch_add(1, Ordering::AcqRel);
        let mut waiter = Waiter::new(&self.cancel, Cores::Shared);
        if self.number > 0 {
            while group.round.load(Ordering::Acquire) == round {
                waiter.pause()?;
            }
        } else {
            while group.arrived.load(Ordering::Acquire) < group.calls.len() {
                waiter.pause()?;
            }
            group.arrived.store(0, Ordering::Release);
            let calls = group.calls.iter().filter_map(|call| lock(call).take()).collect();
            let ended = work(group, calls)?;
            *lock(&group.ended) = ended;
            group.round.fetch_add(1, Ordering::AcqRel);
        }
        let ended = lock(&group.ended).clone();
        ended.map_err(Error::Job)
    }
}

/// Does `work`, which may block for ever, on a thread that is left behind when the job is cancelled, or after `patience`.
pub fn apart(
    cancel: &Cancellation,
    patience: Option<Duration>,
    work: impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
) -> Result<std::result::Result<(), String>> {
    let (tell, told) = channel();
    // Nobody listens any more once the job is cancelled.
    let work = move || drop(tell.send(work()));
    let started = std::thread::Builder::new().name("nccl".into()).spawn(work);
    started.map_err(|error| Error::Job(format!("a thread for NCCL cannot be started: {error}")))?;
    let since = Instant::now();
    loop {
        match told.recv_timeout(LOOK) {
            Ok(ended) => return Ok(ended),
            Err(RecvTimeoutError::Disconnected) => return Ok(Err("NCCL's thread panicked".into())),
            Err(RecvTimeoutError::Timeout) if patience.is_some_and(|most| since.elapsed() > most) => {
                return Ok(Err(not_connected(since.elapsed())));
            }
            Err(RecvTimeoutError::Timeout) => cancel.check()?,
        }
    }
}

fn not_connected(waited: Duration) -> String {
    format!(
        "NCCL has not connected its ranks after {} seconds (--stall-timeout): check that hosts reach each other (NCCL_SOCKET_IFNAME, \
         firewall); NCCL_DEBUG=INFO shows where it waits",
        waited.as_secs()
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
