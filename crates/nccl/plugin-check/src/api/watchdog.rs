//! NCCL's rule that no call waits: a call that does not come back is told by its name.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The name of the call under way, and how many calls there were. Two plain writes per call, for measurements make millions.
static UNDER_WAY: AtomicPtr<&'static str> = AtomicPtr::new(null_mut());
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Marks a call as under way until it is dropped.
pub(super) struct CallGuard;

#[inline]
pub(super) fn entered(call: &'static &'static str) -> CallGuard {
    CALLS.store(CALLS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    UNDER_WAY.store(std::ptr::from_ref(call).cast_mut(), Ordering::Release);
    CallGuard
}

impl Drop for CallGuard {
    #[inline]
    fn drop(&mut self) {
        UNDER_WAY.store(null_mut(), Ordering::Release);
    }
}

/// Looks at calls from a thread of its own.
pub(crate) struct Watchdog;

impl Watchdog {
    /// Calls `expired` for the first call that takes longer than `limit`.
    pub fn start(limit: Duration, expired: Arc<dyn Fn(&'static str) + Send + Sync>) -> std::io::Result<()> {
        let look = move || {
            let (mut seen, mut since) = (0, Instant::now());
            loop {
                std::thread::sleep(LOOK);
                let call = UNDER_WAY.load(Ordering::Acquire);
                let now = CALLS.load(Ordering::Relaxed);
                if call.is_null() || now != seen {
                    (seen, since) = (now, Instant::now());
                } else if since.elapsed() > limit {
                    // SAFETY: only addresses of constants are stored.
                    return expired(unsafe { *call });
                }
            }
        };
        std::thread::Builder::new().name("watchdog".into()).spawn(look).map(drop)
    }
}
