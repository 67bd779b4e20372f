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
        self.ring.head().lost.load(Ordering::Relaxed).saturating_add(self.unreadable)
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
        // A place is taken only after it was emptied: who claims more than the ring holds wrote over its head.
        let taken = self.ring.head().taken.load(Ordering::Relaxed);
        let more = number == until && (1..=CAPACITY).contains(&taken.saturating_sub(until));
        if more { Drained::More } else { Drained::All }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Writer;
    use crate::record::What;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// What happens to a ring.
    #[derive(Debug, Clone)]
    enum Step {
        Write(u32),
        Drain,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = prop_oneof![1_u32..100, 1..2 * CAPACITY as u32];
        prop::collection::vec(prop_oneof![write.prop_map(Step::Write), Just(Step::Drain)], 1..12)
    }

    fn ring() -> (tempfile::TempDir, Writer, Reader) {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path()).unwrap();
        let reader = Reader::open(writer.path()).unwrap().unwrap();
        (folder, writer, reader)
    }

    /// Drains until nothing is left, as `busbw profile` does.
    fn drain(reader: &mut Reader, ended: bool) -> Vec<Record> {
        let mut read = Vec::new();
        for _ in 0..8 {
            if reader.drain(ended, |record| read.push(record)) == Drained::All {
                return read;
            }
        }
        panic!("a ring of {CAPACITY} events does not end");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Beside a queue of the same room: the same events come out in the same order, and the same number is lost.
        #[test]
        fn a_ring_is_a_queue_that_counts_what_finds_no_room(steps in steps()) {
            let (_folder, writer, mut reader) = ring();
            let (mut queue, mut lost, mut written) = (VecDeque::new(), 0, 0_u64);
            for step in steps.into_iter().chain([Step::Drain]) {
                match step {
                    Step::Write(count) => for _ in 0..count {
                        writer.note(7, written, What::Stop);
                        if (queue.len() as u64) < CAPACITY { queue.push_back(written) } else { lost += 1 }
                        written += 1;
                    },
                    Step::Drain => {
                        let read: Vec<u64> = drain(&mut reader, false).iter().map(|record| record.parent).collect();
                        prop_assert!(read.iter().eq(queue.iter()), "{} read, {} in the queue", read.len(), queue.len());
                        queue.clear();
                    }
                }
                prop_assert_eq!(reader.lost(), lost);
            }
        }

        /// Whatever a process writes over its own ring: the reader ends, and hands on what makes sense.
        #[test]
        fn a_ring_that_was_written_over_does_no_harm(
            honest in 0_u64..1000,
            patches in prop::collection::vec((0_u64..40_000, prop::collection::vec(any::<u8>(), 1..200)), 1..8),
            counts in prop::collection::vec(prop_oneof![Just(u64::MAX), Just(0), any::<u64>()], 2),
            ended: bool,
        ) {
            let (_folder, writer, mut reader) = ring();
            (0..honest).for_each(|number| writer.note(7, number, What::Stop));
            let file = File::options().write(true).open(writer.path()).unwrap();
            // Not the first words: a reader that is there has looked at them.
            patches.iter().for_each(|(at, bytes)| file.write_all_at(bytes, 128 + at).unwrap());
            let head = reader.ring.head();
            head.taken.store(counts[0], Ordering::Relaxed);
            head.lost.store(counts[1], Ordering::Relaxed);
            prop_assert!(drain(&mut reader, ended).len() as u64 <= 2 * CAPACITY);
            drain(&mut reader, true);
            prop_assert!(reader.lost() >= counts[1]);
        }
    }
}
