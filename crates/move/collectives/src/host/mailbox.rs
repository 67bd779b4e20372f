//! The mailboxes of a host's ranks: what each rank shows its peers of the operation under way.
//!
//! A rank has two of everything and uses them in turn. It comes to the same one again two operations later, and to finish
//! the operation between, it has waited for every peer to begin that one, hence to be done with the one before.

use super::signature::Signature;
use crate::Room;
use busbw_transport::Result;
use busbw_transport::shm::{Board, Group, Named};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a mailbox for data.
pub(super) const ROOM: usize = 64 << 10;
/// Bytes that fit beside the flag, in its cache line.
pub(super) const BESIDE: usize = 56;

const TURNS: usize = 2;
/// Two cache lines, for the prefetcher fetches lines in pairs.
const APART: usize = 128;
const FLAGS: usize = 0;
const SIGNATURES: usize = FLAGS + TURNS * APART;
const DONE: usize = SIGNATURES + TURNS * APART;
const ROOMS: usize = 4096;
const BYTES: usize = ROOMS + TURNS * ROOM;

/// Where a rank's buffers are.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Announcement {
    pub(super) send: Named,
    pub(super) receive: Named,
}

/// The mailboxes, seen by one rank.
pub(super) struct Mailboxes {
    board: Board,
    rank: usize,
    sequence: u32,
}

impl Mailboxes {
    pub(super) fn open(group: &mut Group) -> Result<Self> {
        Ok(Mailboxes { board: group.board(BYTES)?, rank: group.rank(), sequence: 0 })
    }

    pub(super) fn next(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn place(&self, rank: usize, at: usize, apart: usize) -> *mut u8 {
        self.board.part(rank).wrapping_add(at + (self.sequence as usize % TURNS) * apart)
    }

    fn atomic(&self, rank: usize, at: usize, apart: usize) -> &AtomicU64 {
        // SAFETY: inside the rank's part of the board, aligned, and only ever used as an atomic.
        unsafe { &*self.place(rank, at, apart).cast() }
    }

    /// The room for `bytes` of data of `rank` in this operation: [`ROOM`] bytes at most.
    pub(super) fn data(&self, rank: usize, bytes: usize) -> Room {
        let (place, len) =
            if bytes <= BESIDE { (self.beside_flag(rank), BESIDE) } else { (self.place(rank, ROOMS, ROOM), ROOM) };
        // SAFETY: inside the rank's part of the board, and its own until it raises its flag; then its peers read it.
        unsafe { Room::new(place, len) }
    }

    fn beside_flag(&self, rank: usize) -> *mut u8 {
        self.place(rank, FLAGS, APART).wrapping_add(size_of::<AtomicU64>())
    }

    /// Writes where this rank's buffers are, in the place of small data.
    pub(super) fn announce(&self, announcement: Announcement) {
        const { assert!(size_of::<Announcement>() <= BESIDE) };
        // SAFETY: the place is this rank's until it raises its flag, and is aligned to eight bytes.
        unsafe { self.beside_flag(self.rank).cast::<Announcement>().write(announcement) };
    }

    /// Where `rank`'s buffers are. Only after [`Mailboxes::wait_for_all`].
    pub(super) fn announced(&self, rank: usize) -> Announcement {
        // SAFETY: written before the flag that was waited for.
        unsafe { self.beside_flag(rank).cast::<Announcement>().read() }
    }

    /// Shows what was written to all peers.
    pub(super) fn raise_flag(&self, signature: &Signature, hash: u32) {
        // SAFETY: the place is this rank's until it raises its flag, and is aligned to a cache line.
        unsafe { self.place(self.rank, SIGNATURES, APART).cast::<Signature>().write(*signature) };
        let flag = u64::from(self.sequence) << 32 | u64::from(hash);
        self.atomic(self.rank, FLAGS, APART).store(flag, Ordering::Release);
    }

    /// Waits for the flags of all peers; whether all came with the same `hash`.
    pub(super) fn wait_for_all(&self, group: &Group, hash: u32) -> Result<bool> {
        let mut agree = true;
        for peer in self.peers() {
            let flag = self.atomic(peer, FLAGS, APART);
            let mut seen = 0;
            group.wait_for(peer, || {
                seen = flag.load(Ordering::Acquire);
                (seen >> 32) as u32 == self.sequence
            })?;
            agree &= seen as u32 == hash;
        }
        Ok(agree)
    }

    /// What every rank runs. Only after [`Mailboxes::wait_for_all`].
    pub(super) fn signatures(&self) -> Vec<Signature> {
        // SAFETY: written before the flag that was waited for.
        let read = |rank| unsafe { self.place(rank, SIGNATURES, APART).cast::<Signature>().read() };
        (0..self.board.size()).map(read).collect()
    }

    /// Says that this rank touches no peer's buffers any more in this operation.
    pub(super) fn done(&self) {
        self.atomic(self.rank, DONE, 0).store(u64::from(self.sequence), Ordering::Release);
    }

    /// Waits until no peer touches this rank's buffers any more.
    pub(super) fn wait_until_done(&self, group: &Group) -> Result<()> {
        for peer in self.peers() {
            let done = self.atomic(peer, DONE, 0);
            group.wait_for(peer, || done.load(Ordering::Acquire) == u64::from(self.sequence))?;
        }
        Ok(())
    }

    /// The other ranks, beginning after this one so that not all wait for the same.
    fn peers(&self) -> impl Iterator<Item = usize> {
        let (rank, size) = (self.rank, self.board.size());
        (1..size).map(move |step| if rank + step < size { rank + step } else { rank + step - size })
    }
}
