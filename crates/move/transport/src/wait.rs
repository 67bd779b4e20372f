//! How a rank waits: spinning while it has a core of its own, yielding where ranks outnumber cores, and never for a job that
//! has failed.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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
    spins_before_yield: u32,
    between_yields: u32,
    spins: u32,
}

impl<'a> Waiter<'a> {
    /// Spins this often before the first yield when a rank has its own core: some microseconds. Not longer, for the
    /// scheduler may have put the rank that is waited for on the same core nevertheless.
    const PATIENCE: u32 = 256;
    /// Spins this often from one yield to the next when a rank has its own core.
    const BETWEEN_YIELDS: u32 = 16;
    /// Where cores are shared, a peer on another core may still answer within a cache miss or two.
    const PATIENCE_SHARED: u32 = 16;

    /// A wait that ends when `cancel` is triggered.
    pub fn new(cancel: &'a Cancellation, cores: Cores) -> Self {
        let (spins_before_yield, between_yields) = match cores {
            Cores::Own => (Self::PATIENCE, Self::BETWEEN_YIELDS),
            Cores::Shared => (Self::PATIENCE_SHARED, 1),
        };
        Waiter { cancel, spins_before_yield, between_yields, spins: 0 }
    }

    /// Lets a little time pass, and fails when the job is cancelled.
    #[inline]
    pub fn pause(&mut self) -> Result<()> {
        self.spins = self.spins.wrapping_add(1);
        if self.spins < self.spins_before_yield || !self.spins.is_multiple_of(self.between_yields) {
            std::hint::spin_loop();
            return Ok(());
        }
        std::thread::yield_now();
        self.cancel.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
