//! Numbers of requests: which are posted, which are done, in order, and how long their messages were.

use super::MOST_REQUESTS;

/// Sizes are remembered for so many of the latest requests.
const REMEMBERED: usize = 4 * MOST_REQUESTS;

/// The requests of one connection, counted from 0.
pub(super) struct Requests {
    posted: u64,
    finished: u64,
    sizes: Box<[usize; REMEMBERED]>,
}

impl Requests {
    pub fn new() -> Self {
        Requests { posted: 0, finished: 0, sizes: Box::new([0; REMEMBERED]) }
    }

    /// How many were posted: the number of the next one.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// How many are done: the number of the first one that is not.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    pub fn under_way(&self) -> usize {
        (self.posted - self.finished) as usize
    }

    pub fn post(&mut self) -> u64 {
        self.posted += 1;
        self.posted - 1
    }

    /// The first unfinished request is done.
    pub fn finish(&mut self, size: usize) {
        self.sizes[self.finished as usize % REMEMBERED] = size;
        self.finished += 1;
    }

    /// The size of a finished request. One that is asked for again long after it was done has the size 0.
    pub fn size(&self, number: u64) -> Option<usize> {
        if number >= self.finished {
            return None;
        }
        let remembered = number + REMEMBERED as u64 >= self.finished;
        Some(if remembered { self.sizes[number as usize % REMEMBERED] } else { 0 })
    }
}
