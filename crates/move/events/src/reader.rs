//! Reads a process's ring from outside.

use crate::process::MEMORY;
use crate::record::Record;
use crate::ring::{CAPACITY, Ring};
use nix::fcntl::{FcntlArg, Flock, FlockArg, SealFlag, fcntl};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The reader of a ring. A ring has one, which empties it.
pub struct Reader {
    ring: Ring,
    next: u64,
    /// Communicators that were handed on.
    communicators: usize,
    /// Events that were begun and never written, or that make no sense.
    unreadable: u64,
    /// Events that were lost before.
    lost_before: u64,
    /// Keeps others from reading. The kernel takes it back when this process ends.
    _lock: Flock<File>,
}

/// What a look at a ring brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All that was there.
    All,
    /// As much as the ring holds; there is more.
    More,
}

/// A ring in the memory of a process that runs ([`crate::ATTACH`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    path: PathBuf,
    /// Children of a fork have their parent's descriptors: by this, one ring is known as one.
    pub inode: u64,
}

impl Memory {
    /// The rings of a process; none where it has none, or has ended.
    pub fn of(pid: u32) -> io::Result<Vec<Self>> {
        let is_ring = |path: &PathBuf| {
            let link = std::fs::read_link(path).ok();
            let name = link.as_deref().and_then(Path::to_str).and_then(|link| link.strip_prefix("/memfd:"));
            name.and_then(|name| name.strip_prefix(MEMORY)).is_some_and(|rest| rest.is_empty() || rest == " (deleted)")
        };
        let descriptors = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            descriptors => descriptors?,
        };
        let paths = descriptors.filter_map(|entry| Some(entry.ok()?.path())).filter(is_ring);
        Ok(paths.filter_map(|path| Some(Memory { inode: path.metadata().ok()?.ino(), path })).collect())
    }

    /// Opens the ring, for what is written from now on; `None` while its process still makes it.
    ///
    /// # Errors
    /// As of [`Reader::open`]; `InvalidData` where the process could take the memory away from its reader.
    pub fn open(&self) -> io::Result<Option<Reader>> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        if seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Ok(Reader::of(file)?.map(Reader::beginning_now));
        }
        // It is not mapped, but read: it could shrink before another look at it.
        let mut magic = [0; size_of::<u64>()];
        file.read_at(&mut magic, 0)?;
        match magic {
            [0, ..] => Ok(None),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not sealed, as busbw's are")),
        }
    }
}

impl Reader {
    /// Opens a ring; `None` while its process still makes it.
    ///
    /// # Errors
    /// The file cannot be read, written or mapped, or it is no ring (`InvalidData`); another reads it (`WouldBlock`).
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        Self::of(OpenOptions::new().read(true).write(true).open(path)?)
    }

    fn of(file: File) -> io::Result<Option<Self>> {
        let Some(ring) = Ring::open(&file)? else { return Ok(None) };
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        let head = ring.head();
        let taken = head.taken.load(Ordering::Acquire);
        // An earlier reader may have been killed, and the number be anything.
        let mut next = head.read.load(Ordering::Acquire).clamp(taken.saturating_sub(CAPACITY), taken);
        while next < taken && ring.was_read(next) {
            next += 1;
        }
        head.wanted.store(1, Ordering::Release);
        Ok(Some(Reader { ring, next, communicators: 0, unreadable: 0, lost_before: 0, _lock: lock }))
    }

    /// Passes over what is there, and what was lost.
    fn beginning_now(mut self) -> Self {
        let until = self.until();
        // What is being written just now stays.
        self.events(until, false, |_| ());
        self.unreadable = 0;
        self.lost_before = self.ring.head().lost.load(Ordering::Relaxed);
        self
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
        let lost = self.ring.head().lost.load(Ordering::Relaxed).saturating_sub(self.lost_before);
        lost.saturating_add(self.unreadable)
    }

    /// Hands on events in their order, as many as the ring holds at most, and frees their places. `ended`: the process is gone, and
    /// what it did not finish is passed over.
    pub fn drain(&mut self, ended: bool, mut each: impl FnMut(Record)) -> Drained {
        let until = self.until();
        // Whoever began these events had noted their communicators before.
        while let Some(words) = self.ring.kept(self.communicators) {
            Record::of(words).into_iter().for_each(&mut each);
            self.communicators += 1;
        }
        self.events(until, ended, each)
    }

    fn until(&self) -> u64 {
        self.ring.head().taken.load(Ordering::Acquire).min(self.next.saturating_add(CAPACITY))
    }

    fn events(&mut self, until: u64, ended: bool, mut each: impl FnMut(Record)) -> Drained {
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
        self.ring.head().read.store(number, Ordering::Release);
        // A place is taken only after it was emptied: who claims more than the ring holds wrote over its head.
        let taken = self.ring.head().taken.load(Ordering::Relaxed);
        let more = number == until && (1..=CAPACITY).contains(&taken.saturating_sub(until));
        if more { Drained::More } else { Drained::All }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ring.head().wanted.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Writer;
    use crate::process::tests::ring;
    use crate::record::{Function, Kind, Source, What};
    use busbw_model::Collective;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::io::Write;
    use std::os::fd::AsRawFd;
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

    fn operation(communicator: u64) -> What {
        let function = Function::Collective(Collective::AllReduce);
        let (algorithm, protocol, channels, count) = (0, 0, 0, 8);
        What::Operation {
            communicator: communicator as u32,
            function,
            datatype: None,
            algorithm,
            protocol,
            channels,
            count,
        }
    }

    #[test]
    fn a_ring_in_memory_is_found_while_its_process_runs_and_begins_where_its_reader_comes() {
        let rings = || Memory::of(std::process::id()).unwrap();
        let before = rings();
        let writer = Writer::in_memory().unwrap();
        let new: Vec<Memory> = rings().into_iter().filter(|ring| !before.contains(ring)).collect();
        // Other tests of this process make such rings too.
        let own = new.into_iter().find(|ring| ring.path == writer.path()).unwrap();
        let what = What::Communicator { hash: 7, ranks: 2, nodes: 1, rank: 1, source: Source::Engine };
        let communicator = writer.begin(Kind::Communicator, 0, what);
        let run = |times| {
            for _ in 0..times {
                writer.begin(Kind::Operation, 0, operation(communicator));
            }
        };
        run(3);
        for (begins, lost) in [(3, 0), (4 + CAPACITY, 10)] {
            let mut reader = own.open().unwrap().unwrap();
            let other = own.open().err().unwrap();
            assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
            run(1);
            let read = drain(&mut reader, false);
            let [first, next] = &read[..] else { panic!("{read:?}") };
            assert_eq!((first.what, first.id, next.sequence), (what, communicator, Some(begins)));
            run(CAPACITY + lost);
            drain(&mut reader, false);
            assert_eq!(reader.lost(), lost);
            drop(reader);
        }
        // Without a reader, nothing is written and nothing is lost.
        run(2 * CAPACITY);
        assert_eq!((writer.lost(), drain(&mut own.open().unwrap().unwrap(), false).len()), (10, 1));
    }

    #[test]
    fn memory_that_is_no_ring_or_could_shrink_is_refused() {
        let made = |bytes: &[u8]| {
            let memory = memfd_create(MEMORY, MFdFlags::MFD_CLOEXEC).unwrap();
            let mut file = File::from(memory);
            file.set_len(32 << 20).unwrap();
            file.write_all(bytes).unwrap();
            let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
            (file, Memory { path, inode: 0 })
        };
        let (_damaged, of) = made(b"busbwev1");
        assert_eq!(of.open().err().unwrap().kind(), io::ErrorKind::InvalidData);
        let (_unsealed, of) = made(b"busbwev2");
        assert!(of.open().err().unwrap().to_string().contains("sealed"));
        let (_unfinished, of) = made(&[0; 8]);
        assert!(of.open().unwrap().is_none());
        assert_eq!(Memory::of(u32::MAX).unwrap(), []);
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
