//! `-T`: how long the operations of one test may take. nccl-tests measures from when it begins to wait for them
//! (`testStreamSynchronize` of 2.19.6's `src/common.cu`); a rank on cores waits while it starts them.

use busbw_transport::Cancellation;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Ends the job when a test takes too long. A thread of its own looks: the rank's may hang in the test.
pub(crate) struct TimeLimit(Option<Arc<Shared>>);

struct Shared {
    limit: Duration,
    cancel: Arc<Cancellation>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Since when a test runs, and which.
    running: Option<(Instant, String)>,
    over: bool,
}

impl TimeLimit {
    /// None where `limit` is 0, or nothing can be ended.
    pub fn new(limit: Duration, cancel: Option<Arc<Cancellation>>) -> Self {
        let shared = cancel.filter(|_| !limit.is_zero()).map(|cancel| {
            let shared = Shared { limit, cancel, state: Mutex::default(), changed: Condvar::new() };
            let shared = Arc::new(shared);
            let watched = Arc::clone(&shared);
            std::thread::spawn(move || watched.watch());
            shared
        });
        TimeLimit(shared)
    }

    pub fn begin(&self, test: impl FnOnce() -> String) {
        if let Some(shared) = &self.0 {
            shared.lock().running = Some((Instant::now(), test()));
            shared.changed.notify_one();
        }
    }

    pub fn end(&self) {
        if let Some(shared) = &self.0 {
            shared.lock().running = None;
        }
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.lock().over = true;
            shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.lock();
        while !state.over {
            let left = match &state.running {
                None => Duration::MAX,
                Some((since, _)) => self.limit.saturating_sub(since.elapsed()),
            };
            if let (Duration::ZERO, Some((_, test))) = (left, &state.running) {
                let seconds = self.limit.as_secs_f64();
                return self.cancel.trigger(format!(
                    "{test}: not done after {seconds} s (-T); give it more time, or look for what is slow"
                ));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A_SECOND: Duration = Duration::from_secs(1);
    /// Far longer than the limit of a second.
    const LONG: Duration = Duration::from_secs(30);

    fn reason_within(cancel: &Cancellation, time: Duration) -> Option<String> {
        let since = Instant::now();
        while cancel.reason().is_none() && since.elapsed() < time {
            std::thread::sleep(Duration::from_millis(10));
        }
        cancel.reason()
    }

    #[test]
    fn a_test_that_does_not_end_is_ended() {
        let cancel = Cancellation::new();
        let limit = TimeLimit::new(A_SECOND, Some(Arc::clone(&cancel)));
        limit.begin(|| "8 bytes".into());
        limit.end();
        limit.begin(|| "16 bytes, in place".into());
        let reason = reason_within(&cancel, LONG).unwrap();
        assert!(reason.starts_with("16 bytes, in place: not done after 1 s (-T)"), "{reason}");
    }

    #[test]
    fn between_tests_and_without_a_limit_nothing_ends() {
        let (between, without) = (Cancellation::new(), Cancellation::new());
        let limit = |limit, cancel: &Arc<Cancellation>| TimeLimit::new(limit, Some(Arc::clone(cancel)));
        let limits = [limit(A_SECOND, &between), limit(Duration::ZERO, &without)];
        limits[0].begin(|| "8 bytes".into());
        limits[0].end();
        limits[1].begin(|| "8 bytes".into());
        assert_eq!(reason_within(&between, Duration::from_secs(2)), None);
        assert_eq!(without.reason(), None);
    }
}
