//! The page by which a rank tells each peer how many messages wait for it, and that it has left in good order.

use super::memory::Mapping;
use crate::Result;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const LEFT: usize = 0;
const CORE: usize = 8;
const PROBE: usize = 64;
const POSTED: usize = 128;

/// One rank's control page, as its owner or a peer sees it.
pub(super) struct Control {
    mapping: Mapping,
    size: usize,
}

impl Control {
    fn bytes(size: usize) -> usize {
        POSTED + size * size_of::<AtomicU32>()
    }

    /// The page of this rank, among `size` ranks.
    pub(super) fn create(size: usize) -> Result<Self> {
        let control = Control { mapping: Mapping::create(Self::bytes(size))?, size };
        control.core().store(u32::MAX, Ordering::Relaxed);
        Ok(control)
    }

    /// The page of a peer.
    pub(super) fn adopt(file: OwnedFd, size: usize, peer: &str) -> Result<Self> {
        Ok(Control { mapping: Mapping::adopt(file, Self::bytes(size), peer)?, size })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    /// Not 0 once the rank has left in good order.
    pub(super) fn left(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned, and only ever used as an atomic.
        unsafe { &*self.mapping.address().add(LEFT).cast() }
    }

    /// The core on which the rank was last seen waiting.
    pub(super) fn core(&self) -> &AtomicU32 {
        // SAFETY: as in `left`.
        unsafe { &*self.mapping.address().add(CORE).cast() }
    }

    /// A random number by which peers see whether they can read this process's memory.
    pub(super) fn probe(&self) -> &AtomicU64 {
        // SAFETY: as in `left`.
        unsafe { &*self.mapping.address().add(PROBE).cast() }
    }

    /// How many messages this rank has sent to `peer`.
    pub(super) fn posted(&self, peer: usize) -> &AtomicU32 {
        assert!(peer < self.size, "ranks are checked when the group is joined");
        // SAFETY: as in `left`; the index was checked.
        unsafe { &*self.mapping.address().add(POSTED).cast::<AtomicU32>().add(peer) }
    }
}
