//! A ring of events in a file that its writers and one reader map.
//!
//! Many threads write, one process reads. A place is written only after the reader has emptied it, so that an event is never torn:
//! what finds no room is counted. Each place has a number that says whose turn it is: twice the lap for the writer of that lap, one
//! more when its event is there. A new file is all zeros, and so is ready for lap 0.
//!
//! Communicators have places of their own, which nobody empties: a reader that comes later needs them to understand the events.

use crate::record::{Record, WORDS};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events that a ring holds: a quarter of a second where a million come in each.
pub const CAPACITY: u64 = 1 << 18;
const MAGIC: u64 = u64::from_le_bytes(*b"busbwev2");
/// The head has a page of its own.
const PAGE: usize = 4096;
/// Communicators that have a place; those of a process beyond are events as others.
pub(crate) const COMMUNICATORS: usize = 1 << 10;
/// Those of communicators, then those of events.
const PLACES: usize = COMMUNICATORS + CAPACITY as usize;
const SIZE: usize = PAGE + PLACES * size_of::<Place>();

/// The first page.
#[repr(C)]
pub(crate) struct Head {
    magic: AtomicU64,
    pub process: AtomicU64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`, in nanoseconds.
    pub since_1970: AtomicU64,
    _apart: [u64; 13],
    /// Places that were taken.
    pub taken: AtomicU64,
    _apart_too: [u64; 15],
    /// Events that found no room.
    pub lost: AtomicU64,
    _apart_again: [u64; 15],
    /// Whether events are to be written: 0 where nobody reads.
    pub wanted: AtomicU64,
    /// The next place to read, for the next reader.
    pub read: AtomicU64,
}

/// A cache line.
#[repr(C, align(64))]
struct Place {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A mapping of a ring, which stays: threads write until the process ends.
pub(crate) struct Ring {
    address: *mut u8,
}

// SAFETY: the mapping belongs to no thread, and what is in it are atomics.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Makes an empty file a ring.
    pub fn create(file: &File, process: u32, since_1970: u64, wanted: bool) -> io::Result<Self> {
        // The space is taken now: where none is left later, a write would end the process.
        fallocate(file, FallocateFlags::empty(), 0, SIZE as i64)?;
        let ring = Self::map(file)?;
        let head = ring.head();
        head.process.store(process.into(), Ordering::Relaxed);
        head.since_1970.store(since_1970, Ordering::Relaxed);
        head.wanted.store(wanted.into(), Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        Ok(ring)
    }

    /// Opens a ring that another process made; `None` while it is not one.
    pub fn open(file: &File) -> io::Result<Option<Self>> {
        if file.metadata()?.len() < SIZE as u64 {
            return Ok(None);
        }
        let ring = Self::map(file)?;
        match ring.head().magic.load(Ordering::Acquire) {
            MAGIC => Ok(Some(ring)),
            0 => Ok(None),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "damaged, or of another version of busbw")),
        }
    }

    fn map(file: &File) -> io::Result<Self> {
        let size = NonZeroUsize::new(SIZE).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // Pages are there from the start: an event is not to wait for the kernel.
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let address = unsafe { mmap(None, size, access, flags, file, 0) }?;
        Ok(Ring { address: address.as_ptr().cast() })
    }

    pub fn head(&self) -> &Head {
        // SAFETY: the first page is mapped as long as the ring, aligned, and a head is atomics only.
        unsafe { &*self.address.cast::<Head>() }
    }

    /// The place of an event.
    fn place(&self, number: u64) -> &Place {
        self.at(COMMUNICATORS + (number % CAPACITY) as usize)
    }

    /// The place of a communicator; `None` of one beyond.
    fn communicator(&self, number: usize) -> Option<&Place> {
        (number < COMMUNICATORS).then(|| self.at(number))
    }

    fn at(&self, place: usize) -> &Place {
        assert!(place < PLACES, "a ring has {PLACES} places");
        // SAFETY: the mapping has `PLACES` places behind the first page, aligned; places are atomics only.
        unsafe { &*self.address.add(PAGE).cast::<Place>().add(place) }
    }

    /// Writes a communicator, which stays; false where there is no place for it.
    pub fn keep(&self, number: usize, record: &Record) -> bool {
        let Some(place) = self.communicator(number) else { return false };
        place.words.iter().zip(record.words()).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
        place.turn.store(1, Ordering::Release);
        true
    }

    /// The words of a communicator; `None` while there is none.
    pub fn kept(&self, number: usize) -> Option<[u64; WORDS]> {
        let place = self.communicator(number).filter(|place| place.turn.load(Ordering::Acquire) == 1)?;
        Some(place.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Writes an event, or counts it as lost.
    pub fn write(&self, record: &Record) {
        let head = self.head();
        let mut number = head.taken.load(Ordering::Relaxed);
        let place = loop {
            let place = self.place(number);
            let free = number / CAPACITY * 2;
            match place.turn.load(Ordering::Acquire) {
                turn if turn == free => {
                    // Whoever reads the count finds the communicators of the events that it counts.
                    let taken =
                        head.taken.compare_exchange_weak(number, number + 1, Ordering::Release, Ordering::Relaxed);
                    match taken {
                        Ok(_) => break place,
                        Err(now) => number = now,
                    }
                }
                // The reader is a lap behind.
                turn if turn < free => {
                    head.lost.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                _ => number = head.taken.load(Ordering::Relaxed),
            }
        };
        for (at, word) in place.words.iter().zip(record.words()) {
            at.store(word, Ordering::Relaxed);
        }
        place.turn.store(number / CAPACITY * 2 + 1, Ordering::Release);
    }

    /// Whether an event was read, by a reader that ended before it could say so.
    pub fn was_read(&self, number: u64) -> bool {
        self.place(number).turn.load(Ordering::Acquire) >= number / CAPACITY * 2 + 2
    }

    /// The words of an event, whose place is free then; `None` while it is not there.
    pub fn read(&self, number: u64) -> Option<[u64; WORDS]> {
        let place = self.place(number);
        let turn = number / CAPACITY * 2;
        if place.turn.load(Ordering::Acquire) != turn + 1 {
            return None;
        }
        let words = place.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        place.turn.store(turn + 2, Ordering::Release);
        Some(words)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and references into it end with the ring.
        unsafe { libc::munmap(self.address.cast(), SIZE) };
    }
}

/// A word that is 1 in the process that made it, and 0 in its children: the kernel clears the page when it forks.
pub(crate) fn mark() -> io::Result<&'static AtomicU64> {
    let size = NonZeroUsize::new(PAGE).ok_or(io::ErrorKind::InvalidInput)?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let page = unsafe { mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE) }?;
    // SAFETY: the page was just made, and nobody else knows it.
    unsafe { madvise(page, PAGE, MmapAdvise::MADV_WIPEONFORK) }?;
    // SAFETY: the page stays mapped for good, is aligned, and zeros are a valid atomic.
    let mark = unsafe { page.cast::<AtomicU64>().as_ref() };
    mark.store(1, Ordering::Relaxed);
    Ok(mark)
}
