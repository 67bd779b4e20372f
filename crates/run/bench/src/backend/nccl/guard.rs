//! Ends a communicator whose rank is blocked in a call of NCCL when the job fails: NCCL waits for a dead peer forever.

use busbw_gpu::nccl::Communicator;
use busbw_transport::Cancellation;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long a rank may take to come out of NCCL by itself: NCCL notices many failures, and its own error says more.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches over one rank.
pub struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    cancel: Arc<Cancellation>,
    communicator: Arc<Communicator>,
    inside: AtomicBool,
    over: AtomicBool,
}

impl Guard {
    /// Begins to watch.
    pub fn over(communicator: &Arc<Communicator>, cancel: &Arc<Cancellation>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            cancel: Arc::clone(cancel),
            communicator: Arc::clone(communicator),
            inside: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nccl guard".into()).spawn(move || watched.watch())?;
        Ok(Guard { shared, thread: Some(thread) })
    }

    /// Runs calls of NCCL under the guard's eyes.
    pub fn during<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.shared.inside.store(true, Ordering::Release);
        let value = calls();
        self.shared.inside.store(false, Ordering::Release);
        value
    }
}

impl Shared {
    fn watch(&self) {
        let mut caught: Option<Instant> = None;
        while !self.over.load(Ordering::Acquire) {
            let is_caught = self.inside.load(Ordering::Acquire) && self.cancel.reason().is_some();
            caught = if is_caught { caught.or(Some(Instant::now())) } else { None };
            if caught.is_some_and(|since| since.elapsed() > PATIENCE) {
                return self.communicator.abort();
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there was printed by the thread itself.
            let _ = thread.join();
        }
    }
}
