//! The memory of one direction of a connection: slots for messages, and chunks for what neither side can map or read.

use super::memory::Mapping;
use crate::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages that may be under way.
pub(super) const SLOTS: u64 = 32;
const SLOT: usize = 4096;
const HEADER: usize = 64;
/// The longest message that travels in its slot.
pub(super) const INLINE: usize = SLOT - HEADER;
/// Chunks of staged messages.
pub(super) const CHUNKS: u64 = 4;
/// Bytes of a chunk.
pub(super) const CHUNK: usize = 128 << 10;

const CONSUMED: usize = 0;
const CHUNKS_TAKEN: usize = 64;
const CHUNKS_PUT: usize = 128;
const FIRST_SLOT: usize = 4096;
const FIRST_CHUNK: usize = FIRST_SLOT + SLOTS as usize * SLOT;

/// How a message's bytes reach the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Carried {
    /// In the slot.
    Inline = 0,
    /// The receiver copies them out of the sender's window.
    Window = 1,
    /// The receiver copies them out of the sender's plain memory by system call.
    Cross = 2,
    /// The sender puts them into chunks.
    Staged = 3,
}

/// What the slot says of a message.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Header {
    pub(super) len: u64,
    pub(super) window: u64,
    pub(super) offset: u64,
    pub(super) tag: u32,
    pub(super) carried: u32,
}

impl Header {
    pub(super) fn carried(&self) -> Option<Carried> {
        [Carried::Inline, Carried::Window, Carried::Cross, Carried::Staged]
            .into_iter()
            .find(|carried| *carried as u32 == self.carried)
    }
}

/// One direction of a connection, as either side sees it.
pub(super) struct Channel {
    pub(super) mapping: Mapping,
}

impl Channel {
    fn bytes(staged: bool) -> usize {
        FIRST_CHUNK + if staged { CHUNKS as usize * CHUNK } else { 0 }
    }

    /// A new channel, with chunks if messages may be `staged`.
    pub(super) fn create(staged: bool) -> Result<Self> {
        Ok(Channel { mapping: Mapping::create(Self::bytes(staged))? })
    }

    /// The channel that `peer` has made.
    pub(super) fn adopt(mapping: Mapping, staged: bool, peer: &str) -> Result<Self> {
        if mapping.bytes() < Self::bytes(staged) {
            return Err(Error::Protocol { peer: peer.into(), what: "a channel that is too small".into() });
        }
        Ok(Channel { mapping })
    }

    /// Whether there is room for staged messages.
    pub(super) fn has_chunks(&self) -> bool {
        self.mapping.bytes() >= Self::bytes(true)
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: all counters lie inside the mapping, aligned, and are only ever used as atomics.
        unsafe { &*self.mapping.address().add(at).cast() }
    }

    /// Messages that the receiver is done with.
    pub(super) fn consumed(&self) -> &AtomicU64 {
        self.counter(CONSUMED)
    }

    /// Chunks that the receiver has emptied.
    pub(super) fn chunks_taken(&self) -> &AtomicU64 {
        self.counter(CHUNKS_TAKEN)
    }

    /// Chunks that the sender has filled.
    pub(super) fn chunks_put(&self) -> &AtomicU64 {
        self.counter(CHUNKS_PUT)
    }

    /// The bytes of chunk number `chunk`.
    pub(super) fn chunk(&self, chunk: u64) -> *mut u8 {
        self.mapping.address().wrapping_add(FIRST_CHUNK + (chunk % CHUNKS) as usize * CHUNK)
    }

    fn slot(message: u64) -> usize {
        FIRST_SLOT + (message % SLOTS) as usize * SLOT
    }

    /// Where message number `message` lies if it lies in its slot.
    pub(super) fn inline(&self, message: u64) -> *mut u8 {
        self.mapping.address().wrapping_add(Self::slot(message) + HEADER)
    }

    fn header(&self, message: u64) -> *mut Header {
        self.mapping.address().wrapping_add(Self::slot(message) + size_of::<u64>()).cast()
    }

    /// Shows message number `message` to the receiver.
    pub(super) fn publish(&self, message: u64, header: Header) {
        // SAFETY: the receiver has consumed what was in this slot, and looks at it again only after the store below.
        unsafe { self.header(message).write(header) };
        self.counter(Self::slot(message)).store(message + 1, Ordering::Release);
    }

    /// Message number `message`, if the sender has shown it.
    pub(super) fn arrived(&self, message: u64) -> Option<Header> {
        let shown = self.counter(Self::slot(message)).load(Ordering::Acquire) == message + 1;
        // SAFETY: inside the mapping, aligned, and good whatever the bytes. Volatile, so that what is checked of it is what is
        // used: a peer that writes it again changes nothing of this copy.
        shown.then(|| unsafe { self.header(message).read_volatile() })
    }
}
