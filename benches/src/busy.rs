//! A busy machine: threads that compute beside what is measured, as data loaders do beside training.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};

/// Loops without end on every core; they end when dropped.
#[derive(Debug)]
pub struct Busy {
    stop: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts so many loops for each core.
    pub fn per_core(loops: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = available_parallelism().map_or(1, usize::from);
        let begin = |_| {
            let stop = Arc::clone(&stop);
            spawn(move || compute(&stop))
        };
        Busy { loops: (0..cores * loops).map(begin).collect(), stop }
    }
}

fn compute(stop: &AtomicBool) {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        sum = (0..1 << 16).fold(sum, |sum, step| black_box(sum.wrapping_add(step)));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for one in self.loops.drain(..) {
            // A loop cannot panic, and has nothing to say.
            let _ = one.join();
        }
    }
}
