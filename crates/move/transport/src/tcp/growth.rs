//! How many helper threads a connection needs: measured while it carries bytes.
//!
//! Whether a helper thread pays depends on the cores, the NIC and what else runs there, none of which is known beforehand.
//! So one is started, and stays if the connection got faster by it; then the next is tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What to do about helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Go on.
    Stay,
    /// Start one more.
    Grow,
    /// Take the last one back.
    Shrink,
}

/// Cores of this host that the helpers of all connections may use.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub fn new(cores: usize) -> Self {
        Budget(Arc::new(AtomicUsize::new(cores)))
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn give_back(&self, cores: usize) {
        self.0.fetch_add(cores, Ordering::Relaxed);
    }
}

/// The measuring of one connection's end.
pub(super) struct Growth {
    most: usize,
    helpers: usize,
    budget: Budget,
    /// Rate without the newest helper, where there is one, in bytes per second.
    before: Option<f64>,
    best: f64,
    /// Windows that were measured since the last change.
    windows: u32,
    window: Option<(Instant, u64)>,
    last: Option<Instant>,
    settled: bool,
}

impl Growth {
    /// Bytes of a window: at 100 Gbit/s, some milliseconds.
    const WINDOW: u64 = 32 << 20;
    /// Without a byte for so long, nobody had anything to send: what is measured then is not the connection.
    const PAUSE: Duration = Duration::from_millis(2);
    /// The first window after a change is of neither state. Of the others the best counts, which noise only lowers.
    const WINDOWS: u32 = 4;
    /// What a helper must bring, to be worth a core.
    const WORTH: f64 = 1.1;

    pub fn new(most: usize, budget: Budget) -> Self {
        Growth {
            most,
            helpers: 0,
            budget,
            before: None,
            best: 0.0,
            windows: 0,
            window: None,
            last: None,
            settled: false,
        }
    }

    /// Bytes have moved: `total` since the connection was made.
    pub fn note(&mut self, now: Instant, total: u64) -> Advice {
        if self.settled {
            return Advice::Stay;
        }
        let paused = self.last.replace(now).is_none_or(|last| now.duration_since(last) > Self::PAUSE);
        let (since, from) = match self.window {
            Some(window) if !paused => window,
            _ => *self.window.insert((now, total)),
        };
        if total - from < Self::WINDOW {
            return Advice::Stay;
        }
        self.window = Some((now, total));
        self.windows += 1;
        if self.windows > 1 {
            let seconds = now.duration_since(since).as_secs_f64().max(f64::MIN_POSITIVE);
            self.best = self.best.max((total - from) as f64 / seconds);
        }
        if self.windows < Self::WINDOWS { Advice::Stay } else { self.decide() }
    }

    fn decide(&mut self) -> Advice {
        let best = std::mem::take(&mut self.best);
        self.windows = 0;
        if self.before.is_some_and(|before| best < Self::WORTH * before) {
            self.settled = true;
            self.helpers -= 1;
            self.budget.give_back(1);
            return Advice::Shrink;
        }
        if self.helpers == self.most || !self.budget.take() {
            self.settled = true;
            return Advice::Stay;
        }
        self.before = Some(best);
        self.helpers += 1;
        Advice::Grow
    }

    /// The helper that was advised could not be had.
    pub fn failed(&mut self) {
        self.settled = true;
        self.helpers -= 1;
        self.budget.give_back(1);
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.budget.give_back(self.helpers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The helpers of a connection, in the end, that carries `rates[n]` MiB/s with `n` of them.
    fn ends_with(growth: &mut Growth, rates: &[u64]) -> usize {
        let (mut now, mut total, mut helpers) = (Instant::now(), 0, 0);
        for _ in 0..4000 {
            total += 1 << 20;
            now += Duration::from_secs_f64(1.0 / rates[helpers] as f64);
            match growth.note(now, total) {
                Advice::Stay => {}
                Advice::Grow => helpers += 1,
                Advice::Shrink => helpers -= 1,
            }
        }
        helpers
    }

    #[test]
    fn helpers_are_added_while_they_pay() {
        for (rates, most, cores, helpers) in [
            (&[1000, 2000, 3000, 3050, 3100][..], 4, 9, 2),
            (&[1000, 1900, 2800, 3700, 4600], 4, 9, 4),
            (&[1000, 1900, 2800, 3700, 4600], 4, 3, 3),
            (&[1000, 1020], 4, 9, 0),
            (&[1000, 700], 4, 9, 0),
            (&[1000], 4, 0, 0),
            (&[1000], 0, 9, 0),
        ] {
            let budget = Budget::new(cores);
            let mut growth = Growth::new(most, budget.clone());
            assert_eq!(ends_with(&mut growth, rates), helpers, "{rates:?}");
            assert_eq!(budget.0.load(Ordering::Relaxed), cores - helpers);
            drop(growth);
            assert_eq!(budget.0.load(Ordering::Relaxed), cores, "cores are given back");
        }
    }

    #[test]
    fn what_pauses_is_not_measured() {
        let mut growth = Growth::new(4, Budget::new(4));
        let (mut now, mut total) = (Instant::now(), 0);
        for _ in 0..100_000 {
            total += 1 << 20;
            now += Duration::from_millis(3);
            assert_eq!(growth.note(now, total), Advice::Stay);
        }
    }
}
