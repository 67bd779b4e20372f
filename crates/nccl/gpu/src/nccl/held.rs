//! Who uses a communicator, and its end: freed only when nobody uses it any more, or those who do are caught inside NCCL.

use busbw_nccl_abi::library::Comm;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the end waits for users. Between taking hold and NCCL's function lie a few instructions; who is still there after
/// this waits within NCCL for a peer, and NCCL lets another thread abort such a communicator.
const GRACE: Duration = Duration::from_millis(200);

/// A communicator of NCCL until its end.
pub(super) struct Life {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    /// Null after its end.
    raw: Comm,
    users: usize,
}

// SAFETY: the pointer is NCCL's, whose functions may be called from any thread; it is not looked at here.
unsafe impl Send for State {}

/// The right to use a communicator: it is not freed meanwhile, unless it is aborted while its user is caught inside NCCL.
pub struct CommunicatorUse {
    life: Arc<Life>,
    raw: Comm,
}

// SAFETY: its pointer is only handed to NCCL's functions, which may be called from any thread.
unsafe impl Send for CommunicatorUse {}

impl Life {
    /// That of `raw`; of one that has ended if it is null.
    pub(super) fn of(raw: Comm) -> Arc<Self> {
        Arc::new(Life { state: Mutex::new(State { raw, users: 0 }), left: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes hold of it; `None` after its end.
    pub(super) fn hold(self: &Arc<Self>) -> Option<CommunicatorUse> {
        let mut state = self.lock();
        if state.raw.is_null() {
            return None;
        }
        state.users += 1;
        Some(CommunicatorUse { life: Arc::clone(self), raw: state.raw })
    }

    /// Takes it from everybody, to end it; `None` when somebody has.
    pub(super) fn take(&self) -> Option<Comm> {
        let mut state = self.lock();
        let raw = std::mem::replace(&mut state.raw, std::ptr::null_mut());
        if raw.is_null() {
            return None;
        }
        let waited = self.left.wait_timeout_while(state, GRACE, |state| state.users > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        Some(raw)
    }
}

impl CommunicatorUse {
    /// NCCL's pointer, for as long as this is kept.
    pub(super) fn raw(&self) -> Comm {
        self.raw
    }
}

impl Drop for CommunicatorUse {
    fn drop(&mut self) {
        self.life.lock().users -= 1;
        self.life.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Instant;

    fn something() -> Comm {
        std::ptr::without_provenance_mut(64)
    }

    #[test]
    fn it_ends_once_and_is_held_by_nobody_after_that() {
        let life = Life::of(something());
        assert_eq!(life.hold().map(|held| held.raw()), Some(something()));
        assert_eq!((life.take(), life.take()), (Some(something()), None));
        assert!(life.hold().is_none());
        assert!(Life::of(std::ptr::null_mut()).hold().is_none());
    }

    #[test]
    fn who_is_caught_inside_does_not_keep_it_from_its_end() {
        let life = Life::of(something());
        let held = life.hold();
        let start = Instant::now();
        assert!(life.take().is_some() && start.elapsed() >= GRACE);
        drop(held);
    }

    #[test]
    fn nobody_uses_what_was_freed() {
        for _ in 0..50 {
            let (life, freed, used) = (Life::of(something()), AtomicBool::new(false), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while let Some(held) = life.hold() {
                            std::thread::yield_now();
                            assert!(!freed.load(Ordering::SeqCst), "used after its end");
                            used.fetch_add(1, Ordering::Relaxed);
                            drop(held);
                        }
                    });
                }
                while used.load(Ordering::Relaxed) < 20 {
                    std::thread::yield_now();
                }
                assert!(life.take().is_some());
                freed.store(true, Ordering::SeqCst);
            });
        }
    }
}
