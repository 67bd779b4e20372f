//! This process's ring: made when the first communicator is, if somebody wants to read it.

use crate::record::{Function, Kind, Record, What};
use crate::ring::{COMMUNICATORS, Ring, mark};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The folder in which rings are made, or [`ATTACH`]. Without it there are none.
pub const VARIABLE: &str = "BUSBW_PROFILE";
/// The ring is memory of the process's own, for readers that come while it runs. Nothing is written while there is none.
pub const ATTACH: &str = "attach";
/// What the kernel calls such memory: /proc/PID/fd has links to `/memfd:NAME`. It goes with the process, however that ends, and
/// who may open it is whom the kernel lets look into the process.
pub(crate) const MEMORY: &str = "busbw-events";

/// Writes events of this process. A child of a fork that uses its parent's writer writes nothing.
pub struct Writer {
    ring: Ring,
    mark: &'static AtomicU64,
    /// Things that got a number; communicators count by themselves.
    numbered: AtomicU64,
    communicators: AtomicU64,
    /// How many collectives each communicator had.
    sequences: Box<[AtomicU64; COMMUNICATORS]>,
    path: PathBuf,
    /// Memory that others find by its descriptor.
    _memory: Option<File>,
}

/// What this process has: not asked yet, none, or a writer.
static CURRENT: Mutex<Option<Result<Option<&'static Writer>, String>>> = Mutex::new(None);

/// This process's writer, made when it is asked for first; `None` where nobody reads.
///
/// # Errors
/// Why the ring could not be made. The answer stays the same as long as the process lives; a child of a fork gets one of its own.
pub fn writer() -> Result<Option<&'static Writer>, String> {
    let current = &mut *CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    match current {
        Some(Ok(Some(writer))) if !writer.is_own() => {}
        Some(known) => return known.clone(),
        None => {}
    }
    let made = match std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => {
            let writer = if folder == ATTACH { Writer::in_memory() } else { Writer::create(Path::new(&folder)) };
            let failed = |error| {
                let folder = folder.to_string_lossy();
                format!(
                    "{VARIABLE}={folder}: {error}; give a folder of this host, or {ATTACH} for busbw profile --attach"
                )
            };
            writer.map(|writer| Some(&*Box::leak(Box::new(writer)))).map_err(failed)
        }
        None => Ok(None),
    };
    current.insert(made).clone()
}

impl Writer {
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        let (file, path) = new_file(folder, &host)?;
        let ring = new_ring(&file, true).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        Self::of(ring, path, None)
    }

    pub(crate) fn in_memory() -> io::Result<Self> {
        let memory = memfd_create(MEMORY, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let ring = new_ring(&File::from(memory.try_clone()?), false)?;
        // A reader of memory that shrinks would be killed.
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()).into();
        Self::of(ring, path, Some(memory.into()))
    }

    fn of(ring: Ring, path: PathBuf, memory: Option<File>) -> io::Result<Self> {
        let (numbered, communicators) = Default::default();
        let sequences = Box::new([const { AtomicU64::new(0) }; COMMUNICATORS]);
        Ok(Writer { ring, mark: mark()?, numbered, communicators, sequences, path, _memory: memory })
    }

    /// Whether this process made it, and not one that it was forked from.
    pub fn is_own(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == 1
    }

    /// The ring's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events that found no room so far.
    pub fn lost(&self) -> u64 {
        self.ring.head().lost.load(Ordering::Relaxed)
    }

    /// Begins a thing; its number.
    pub fn begin(&self, kind: Kind, parent: u64, what: What) -> u64 {
        let counted = if kind == Kind::Communicator { &self.communicators } else { &self.numbered };
        let id = kind.number(counted.fetch_add(1, Ordering::Relaxed));
        let sequence = self.sequence(what);
        let record = |time_ns| Record { time_ns, id, parent, sequence, what };
        match kind {
            Kind::Communicator if self.is_own() && self.ring.keep(Kind::count(id), &record(now())) => {}
            _ => self.write(record),
        }
        id
    }

    /// Notes what happens to a thing.
    pub fn note(&self, id: u64, parent: u64, what: What) {
        self.write(|time_ns| Record { time_ns, id, parent, sequence: None, what });
    }

    /// Counts a collective, whether anybody reads or not; how many its communicator had before.
    fn sequence(&self, what: What) -> Option<u64> {
        let What::Operation { communicator, function: Function::Collective(_), .. } = what else { return None };
        let counted = self.sequences.get(Kind::count(communicator.into()))?;
        Some(counted.fetch_add(1, Ordering::Relaxed))
    }

    fn write(&self, record: impl FnOnce(u64) -> Record) {
        let wanted = self.is_own() && self.ring.head().wanted.load(Ordering::Relaxed) != 0;
        if wanted {
            self.ring.write(&record(now()));
        }
    }
}

/// A ring in an empty file.
fn new_ring(file: &File, wanted: bool) -> io::Result<Ring> {
    let since_1970 = nanoseconds(ClockId::CLOCK_REALTIME).wrapping_sub(now());
    Ring::create(file, std::process::id(), since_1970, wanted)
}

/// A file that nobody else has: a process may have several, one for each library that writes.
fn new_file(folder: &Path, host: &str) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    for number in 0..1000 {
        let path = folder.join(format!("{host}.{process}.{number}.ring"));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return Ok((other?, path)),
        }
    }
    Err(io::Error::other("a process has a thousand rings there"))
}

/// The kernel answers without a system call (vDSO), unless the machine's clock has to be asked.
fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).map(|time| (time.tv_sec() as u64, time.tv_nsec() as u64));
    time.map_or(0, |(seconds, rest)| seconds * 1_000_000_000 + rest)
}

fn now() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{CAPACITY, Drained, Reader};
    use std::collections::HashMap;

    pub(crate) fn ring() -> (tempfile::TempDir, Writer, Reader) {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::create(folder.path()).unwrap();
        let reader = Reader::open(writer.path()).unwrap().unwrap();
        (folder, writer, reader)
    }

    fn step(number: u64) -> What {
        What::ProxyStep { step: number as u32 }
    }

    #[test]
    fn threads_write_at_once_and_nothing_is_torn_lost_or_disordered() {
        const THREADS: u64 = 4;
        const EACH: u64 = 200_000;
        let (_folder, writer, mut reader) = ring();
        let mut seen: HashMap<u64, u64> = HashMap::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let writer = &writer;
                scope.spawn(move || {
                    // As a thread of NCCL has: pauses, so that the reader keeps up.
                    for number in 0..EACH {
                        writer.note(thread, number, step(number));
                        while writer.ring.head().taken.load(Ordering::Relaxed) - writer.numbered.load(Ordering::Relaxed)
                            > CAPACITY / 2
                        {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while seen.values().sum::<u64>() < THREADS * EACH {
                reader.drain(false, |record| {
                    let next = seen.entry(record.id).or_default();
                    assert_eq!((record.parent, record.what), (*next, step(*next)), "thread {}", record.id);
                    *next += 1;
                });
                // What was read, for the writers above.
                writer.numbered.store(seen.values().sum(), Ordering::Relaxed);
            }
        });
        assert_eq!(reader.lost(), 0);
    }

    #[test]
    fn a_full_ring_keeps_the_first_and_counts_the_rest() {
        let (_folder, writer, mut reader) = ring();
        (0..CAPACITY + 1000).for_each(|number| writer.note(1, number, step(number)));
        assert_eq!(reader.lost(), 1000);
        let mut read = Vec::new();
        assert_eq!(reader.drain(false, |record| read.push(record.parent)), Drained::All);
        assert!(read.iter().copied().eq(0..CAPACITY));
        // There is room again.
        writer.note(1, 7, What::Stop);
        reader.drain(false, |record| read.push(record.parent));
        assert_eq!((read.last(), read.len() as u64, reader.lost()), (Some(&7), CAPACITY + 1, 1000));
    }

    #[test]
    fn what_a_process_did_not_finish_is_lost_when_it_is_gone() {
        let (_folder, writer, mut reader) = ring();
        writer.note(1, 1, What::Stop);
        // As if a thread had been killed between taking a place and writing it.
        writer.ring.head().taken.fetch_add(1, Ordering::Relaxed);
        writer.note(1, 3, What::Stop);
        let mut read = Vec::new();
        reader.drain(false, |record| read.push(record.parent));
        assert_eq!((read.as_slice(), reader.lost()), (&[1][..], 0));
        reader.drain(true, |record| read.push(record.parent));
        assert_eq!((read.as_slice(), reader.lost()), (&[1, 3][..], 1));
    }

    #[test]
    fn the_child_of_a_fork_does_not_write_into_its_parents_ring() {
        let (_folder, writer, mut reader) = ring();
        // SAFETY: the child makes no call but to write an event and to end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            writer.note(1, 99, What::Stop);
            // SAFETY: nothing of this process is to run at its end.
            unsafe { libc::_exit(i32::from(writer.is_own())) };
        }
        let mut status = -1;
        // SAFETY: a place for the status.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((waited, status), (child, 0));
        writer.note(1, 5, What::Stop);
        let mut read = Vec::new();
        reader.drain(true, |record| read.push(record.parent));
        assert_eq!(read, [5]);
    }

    #[test]
    fn a_ring_is_its_owners_alone_and_an_unfinished_one_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, writer, reader) = ring();
        assert_eq!(writer.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(reader.process(), std::process::id());
        let other = Writer::create(folder.path()).unwrap();
        assert_ne!(other.path(), writer.path());
        let unfinished = folder.path().join("x");
        std::fs::write(&unfinished, [0; 4096]).unwrap();
        assert!(Reader::open(&unfinished).unwrap().is_none());
        assert!(Writer::create(&folder.path().join("none")).is_err());
    }
}
