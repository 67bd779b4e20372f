//! How a rank waits: spinning while it has a core of its own (for longer where others compute on it too), yielding where ranks
//! outnumber cores, and never for a job that has failed.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Triggered once when the job fails: every wait of every thread of the process ends with its reason.
///
/// It also counts what this rank has got done, so that the job can tell a slow rank from a stuck one.
#[derive(Default)]
pub struct Cancellation {
    cancelled: AtomicBool,
    reason: Mutex<Option<String>>,
    progress: AtomicU64,
}

impl Cancellation {
    /// Not cancelled yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Ends every wait with `reason`. The first reason stays.
    pub fn trigger(&self, reason: impl Into<String>) {
        let mut kept = self.reason.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.get_or_insert_with(|| reason.into());
        self.cancelled.store(true, Ordering::Release);
    }

    /// The reason, if the job is cancelled.
    pub fn reason(&self) -> Option<String> {
        if !self.cancelled.load(Ordering::Acquire) {
            return None;
        }
        self.reason.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// `Err` with the reason, if the job is cancelled.
    pub fn check(&self) -> Result<()> {
        self.reason().map_or(Ok(()), |reason| Err(Error::Cancelled(reason)))
    }

    /// Notes that something was done: a chunk sent, received or reduced.
    pub fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// How often [`Cancellation::advance`] was called.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

/// How the ranks of a host share its cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    /// At least a core for each rank: waiting spins.
    Own,
    /// More ranks than cores: waiting gives the core to another rank.
    Shared,
}

/// One wait: call [`Waiter::pause`] until what is waited for is there.
pub struct Waiter<'a> {
    cancel: &'a Cancellation,
    cores: Cores,
    spins: u32,
    /// When it first came to give up its core, or got it back last.
    since: Option<Instant>,
}

/// Whether others than the job's ranks compute on this process's cores: whoever last gave up its core was away for long.
static CROWDED: AtomicBool = AtomicBool::new(false);

impl<'a> Waiter<'a> {
    /// Spins this often before the first yield when a rank has its own core: some microseconds. Not longer, for the
    /// scheduler may have put the rank that is waited for on the same core nevertheless.
    const PATIENCE: u32 = 256;
    /// Spins this often from one yield to the next when a rank has its own core.
    const BETWEEN_YIELDS: u32 = 16;
    /// Where cores are shared, a peer on another core may still answer within a cache miss or two.
    const PATIENCE_SHARED: u32 = 16;

    /// Whoever is away for so long gave the core to somebody who computes.
    const AWAY: Duration = Duration::from_micros(200);
    /// Giving up a core to somebody who computes costs a slice of the scheduler's, some milliseconds, in which the peers wait too.
    /// So a rank on a crowded core spins for so long first: a small part of a slice, and many an operation.
    const PATIENCE_CROWDED: Duration = Duration::from_micros(500);

    /// A wait that ends when `cancel` is triggered.
    pub fn new(cancel: &'a Cancellation, cores: Cores) -> Self {
        Waiter { cancel, cores, spins: 0, since: None }
    }

    /// Lets a little time pass, and fails when the job is cancelled.
    #[inline]
    pub fn pause(&mut self) -> Result<()> {
        let (patience, between_yields) = match self.cores {
            Cores::Own => (Self::PATIENCE, Self::BETWEEN_YIELDS),
            Cores::Shared => (Self::PATIENCE_SHARED, 1),
        };
        self.spins = self.spins.wrapping_add(1);
        if self.spins < patience || !self.spins.is_multiple_of(between_yields) {
            std::hint::spin_loop();
            return Ok(());
        }
        self.give_way(&CROWDED);
        self.cancel.check()
    }

    /// Gives the core to others, where that does not cost more than it brings.
    fn give_way(&mut self, crowded: &AtomicBool) {
        if self.cores == Cores::Shared {
            return std::thread::yield_now();
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if crowded.load(Ordering::Relaxed) && now.duration_since(since) < Self::PATIENCE_CROWDED {
            return;
        }
        std::thread::yield_now();
        let back = Instant::now();
        crowded.store(back.duration_since(now) > Self::AWAY, Ordering::Relaxed);
        self.since = Some(back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_core_is_kept_for_a_while() {
        let (cancel, crowded) = (Cancellation::new(), AtomicBool::new(true));
        let mut waiter = Waiter::new(&cancel, Cores::Own);
        let began = Instant::now();
        waiter.give_way(&crowded);
        let first = waiter.since;
        while waiter.since == first {
            assert!(began.elapsed() < Duration::from_secs(60), "the core was never given up");
            waiter.give_way(&crowded);
        }
        assert!(first.is_some() && began.elapsed() >= Waiter::PATIENCE_CROWDED);
    }

    #[test]
    fn cancelling_ends_a_wait_with_its_first_reason() {
        for cores in [Cores::Own, Cores::Shared] {
            let cancel = Cancellation::new();
            let canceller = Arc::clone(&cancel);
            let thread = std::thread::spawn(move || {
                canceller.trigger("rank 3 on host b has died");
                canceller.trigger("something later");
            });
            let mut waiter = Waiter::new(&cancel, cores);
            let error = loop {
                if let Err(error) = waiter.pause() {
                    break error;
                }
            };
            thread.join().unwrap();
            assert_eq!(error.to_string(), "rank 3 on host b has died");
        }
    }
}
