//! Helper threads: each moves the bytes of its own data sockets, and sleeps while there is nothing to move.

use super::failure::{Failure, FirstFailure};
use super::socket::{Epoll, Wakeup};
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A group of data sockets that one thread moves.
pub(super) trait Lane: Sized + Send + 'static {
    /// Moves what can be moved, without waiting; the number of bytes moved.
    fn progress(&mut self) -> std::result::Result<usize, Failure>;
    /// Reports readiness of the sockets, and of the helper's wakeup.
    fn epoll(&self) -> &Epoll;
    /// Notes that a socket has changed.
    fn note(&mut self, index: usize, events: u32);
    /// Gives half of the sockets away; `None` where that is not possible, and nothing has changed.
    fn split(&mut self) -> Result<Option<Self>>;
    /// Takes the sockets of another lane.
    fn absorb(&mut self, other: Self) -> Result<()>;
    /// Where to say why the connection is unusable.
    fn failure(&self) -> &FirstFailure;
}

/// Number under which a lane's epoll reports the wakeup.
pub(super) const WAKEUP: usize = usize::MAX;

struct Signals {
    stop: AtomicBool,
    sleeping: AtomicBool,
    wakeup: Wakeup,
}

/// The threads of one end of a connection. They end when it is dropped.
pub(super) struct Helpers<L> {
    threads: Vec<Helper<L>>,
}

struct Helper<L> {
    thread: JoinHandle<Option<L>>,
    signals: Arc<Signals>,
}

impl<L> Helper<L> {
    fn stop(&self) {
        self.signals.stop.store(true, Ordering::SeqCst);
        self.signals.wakeup.trigger();
    }
}

/// Passes without a byte before a helper sleeps: some hundred microseconds.
const PATIENCE: u32 = 1000;
/// Longest sleep, in milliseconds; only a guard, since a wakeup or a socket ends it.
const SLEEP_MS: i32 = 100;

impl<L: Lane> Helpers<L> {
    /// Nobody yet.
    pub fn new() -> Self {
        Helpers { threads: Vec::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Starts a thread for a lane; the lane comes back where that is not possible.
    pub fn start(&mut self, lane: L) -> std::result::Result<(), (Error, Option<L>)> {
        let wakeup = match Wakeup::new()
            .and_then(|wakeup| lane.epoll().add(wakeup.fd(), WAKEUP, libc::EPOLLIN).map(|()| wakeup))
        {
            Ok(wakeup) => wakeup,
            Err(error) => return Err((error, Some(lane))),
        };
        let signals = Arc::new(Signals { stop: AtomicBool::new(false), sleeping: AtomicBool::new(false), wakeup });
        // A thread that cannot be started drops what it was given; from here, the lane can be taken back.
        let given = Arc::new(Mutex::new(Some(lane)));
        let (its_signals, its_lane) = (Arc::clone(&signals), Arc::clone(&given));
        let started = std::thread::Builder::new()
            .name("busbw-tcp".into())
            .spawn(move || take(&its_lane).map(|lane| run(lane, &its_signals)));
        match started {
            Ok(thread) => {
                self.threads.push(Helper { thread, signals });
                Ok(())
            }
            Err(error) => Err((Error::system("start a helper thread", error), take(&given))),
        }
    }

    /// Ends the newest, and gives its lane back.
    pub fn stop_newest(&mut self) -> Option<L> {
        let newest = self.threads.pop()?;
        newest.stop();
        newest.thread.join().ok().flatten()
    }

    /// Tells the helpers that something was posted.
    pub fn wake(&self) {
        for helper in &self.threads {
            if helper.signals.sleeping.load(Ordering::SeqCst) {
                helper.signals.wakeup.trigger();
            }
        }
    }
}

impl<L> Drop for Helpers<L> {
    fn drop(&mut self) {
        self.threads.iter().for_each(Helper::stop);
        for helper in self.threads.drain(..) {
            // A helper that panicked returns no lane.
            let _ = helper.thread.join();
        }
    }
}

fn take<L>(given: &Mutex<Option<L>>) -> Option<L> {
    given.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Moves what there is until it is told to stop, or the connection fails.
fn run<L: Lane>(mut lane: L, signals: &Signals) -> L {
    let mut idle = 0;
    while !signals.stop.load(Ordering::SeqCst) {
        // Set the flag before the last look: a caller that posts after that look sees the flag and wakes this thread.
        let sleepy = idle >= PATIENCE;
        signals.sleeping.store(sleepy, Ordering::SeqCst);
        match lane.progress() {
            Ok(0) if sleepy => {
                let mut changed = Vec::new();
                lane.epoll().wait(SLEEP_MS, |ready| changed.push(ready));
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
                return lane;
            }
        }
    }
    lane
}
