//! Reads a process's ring from outside.

use crate::record::Record;
use crate::ring::{CAPACITY, Ring};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The reader of a ring. A ring has one, which empties it.
pub struct Reader {
    ring: Ring,
    next: u64,
    /// Events that were begun and never written, or that make no sense.
    unreadable: u64,
}

/// What a look at a ring brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All that was there.
    All,
    /// As much as the ring holds; there is more.
    More,
}

impl Reader {
    /// Opens a ring; `None` while its process still makes it.
    ///
    /// # Errors
    /// The file cannot be read, written or mapped.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Ring::open(&file)?.map(|ring| Reader { ring, next: 0, unreadable: 0 }))
    }

    /// The process that writes.
    pub fn process(&self) -> u32 {
        self.ring.head().process.load(Ordering::Relaxed) as u32
    }

    /// What to add to an event's time for nanoseconds since 1970.
    pub fn since_1970_ns(&self) -> u64 {
        self.ring.head().since_1970.load(Ordering::Relaxed)
    }

    /// Events that were lost so far: for want of room, or because the process died in the middle of one.
    pub fn lost(&self) -> u64 {
        self.ring.head().lost.load(Ordering::Relaxed) + self.unreadable
    }

    /// Hands on events in their order, as many as the ring holds at most, and frees their places. `ended`: the process is gone, and
    /// what it did not finish is passed over.
    pub fn drain(&mut self, ended: bool, mut each: impl FnMut(Record)) -> Drained {
        let until = self.ring.head().taken.load(Ordering::Acquire).min(self.next.saturating_add(CAPACITY));
        let mut number = self.next;
        while number < until {
            match self.ring.read(number).map(Record::of) {
                Some(Some(record)) => each(record),
                None if !ended => break,
                Some(None) | None => self.unreadable += 1,
            }
            number += 1;
        }
        self.next = number;
        if number == until && self.ring.head().taken.load(Ordering::Relaxed) > until {
            Drained::More
        } else {
            Drained::All
        }
    }
}
