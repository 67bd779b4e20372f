//! Helper threads: each moves the bytes of its own data sockets, and sleeps while there is nothing to move.

use super::failure::{Failure, FirstFailure};
use super::socket::{Bell, Epoll};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A group of data sockets that one thread moves.
pub(super) trait Lane: Send + 'static {
    /// Moves what can be moved, without waiting; the number of bytes moved.
    fn progress(&mut self) -> std::result::Result<usize, Failure>;
    /// Reports readiness of the sockets, and of the helper's bell.
    fn epoll(&self) -> &Epoll;
    /// Notes that a socket has changed.
    fn note(&mut self, index: usize, events: u32);
    /// Where to say why the connection is unusable.
    fn failure(&self) -> &FirstFailure;
}

/// Number under which a lane's epoll reports the bell.
pub(super) const BELL: usize = usize::MAX;

struct Signals {
    stop: AtomicBool,
    sleeping: AtomicBool,
    bell: Bell,
}

/// The threads of one connection. They end when it is dropped.
#[derive(Default)]
pub(super) struct Helpers {
    threads: Vec<(JoinHandle<()>, Arc<Signals>)>,
}

impl Helpers {
    /// Passes without a byte before a helper sleeps: some hundred microseconds.
    const PATIENCE: u32 = 1000;
    /// Longest sleep, in milliseconds; only a guard, since a bell or a socket ends it.
    const SLEEP_MS: i32 = 100;

    /// Starts a thread for each lane.
    pub fn start<L: Lane>(lanes: Vec<L>) -> Result<Self> {
        let mut helpers = Helpers::default();
        for lane in lanes {
            let signals = Arc::new(Signals {
                stop: AtomicBool::new(false),
                sleeping: AtomicBool::new(false),
                bell: Bell::new()?,
            });
            lane.epoll().add(signals.bell.fd(), BELL, libc::EPOLLIN)?;
            let own = Arc::clone(&signals);
            let thread = std::thread::Builder::new()
                .name("busbw-tcp".into())
                .spawn(move || run(lane, &own))
                .map_err(|e| Error::system("start a helper thread", e))?;
            helpers.threads.push((thread, signals));
        }
        Ok(helpers)
    }

    /// Tells the helpers that something was posted.
    pub fn wake(&self) {
        for (_, signals) in &self.threads {
            if signals.sleeping.load(Ordering::SeqCst) {
                signals.bell.ring();
            }
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        for (_, signals) in &self.threads {
            signals.stop.store(true, Ordering::SeqCst);
            signals.bell.ring();
        }
        for (thread, _) in self.threads.drain(..) {
            // A helper that panicked has nothing left to hand over.
            let _ = thread.join();
        }
    }
}

fn run<L: Lane>(mut lane: L, signals: &Signals) {
    let mut idle = 0;
    while !signals.stop.load(Ordering::SeqCst) {
        // The flag goes up before the last look, so that whoever posts after that look rings the bell.
        let sleepy = idle >= Helpers::PATIENCE;
        signals.sleeping.store(sleepy, Ordering::SeqCst);
        match lane.progress() {
            Ok(0) if sleepy => {
                let mut changed = Vec::new();
                lane.epoll().wait(Helpers::SLEEP_MS, |ready| changed.push(ready));
                changed.into_iter().for_each(|ready| lane.note(ready.index, ready.events));
                idle = 0;
            }
            Ok(0) => {
                idle += 1;
                std::hint::spin_loop();
            }
            Ok(_) => idle = 0,
            Err(failure) => {
                lane.failure().set(failure);
                return;
            }
        }
    }
}
