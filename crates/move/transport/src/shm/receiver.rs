//! The receiving end of a connection between two ranks of a host.

use super::channel::{CHUNK, Carried, Channel, Header, INLINE, SLOTS};
use super::cross::Way;
use super::group::Shared;
use super::memory::Mapping;
use super::windows::Named;
use crate::{Error, Receiver, Request, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that one call of `test` moves at most, so that its caller can see to other connections.
const STEP: usize = 1 << 20;

/// The receiving end of a connection; see [`super::Group::connect`]. At most 32 messages are under way.
pub struct RecvComm {
    shared: Arc<Shared>,
    peer: usize,
    channel: Channel,
    posted: u64,
    done: u64,
    /// Bytes of message `done` that are here already.
    moved: usize,
    rooms: [Room; SLOTS as usize],
}

#[derive(Clone, Copy)]
struct Room {
    to: *mut u8,
    len: usize,
    tag: u32,
}

// SAFETY: the pointers are of memory that the caller of `irecv` keeps writable wherever the connection is tested.
unsafe impl Send for RecvComm {}

impl RecvComm {
    pub(super) fn open(shared: &Arc<Shared>, peer: usize, theirs: Mapping) -> Result<Self> {
        let channel = Channel::adopt(theirs, !shared.cross_memory(), &shared.name(peer))?;
        let rooms = [Room { to: std::ptr::null_mut(), len: 0, tag: 0 }; SLOTS as usize];
        Ok(RecvComm { shared: Arc::clone(shared), peer, channel, posted: 0, done: 0, moved: 0, rooms })
    }

    fn room(&mut self, number: u64) -> &mut Room {
        &mut self.rooms[(number % SLOTS) as usize]
    }

    fn progress(&mut self) -> Result<()> {
        while self.done < self.posted {
            let Some(header) = self.channel.arrived(self.done) else { return Ok(()) };
            let (len, carried) = self.checked(&header)?;
            let before = self.moved;
            self.advance(&header, len, carried)?;
            if self.moved < len {
                if self.moved > before {
                    self.shared.cancellation().advance();
                }
                return Ok(());
            }
            self.room(self.done).len = len;
            self.moved = 0;
            self.done += 1;
            self.channel.consumed().store(self.done, Ordering::Release);
            self.shared.cancellation().advance();
        }
        Ok(())
    }

    /// The length of a message and how it is carried, as far as these can be: the peer wrote the header, and can write
    /// it again while the message is moved.
    fn checked(&mut self, header: &Header) -> Result<(usize, Carried)> {
        let (room, len) = (*self.room(self.done), header.len as usize);
        if header.tag != room.tag || len > room.len {
            let expected = format!("instead of at most {} bytes with tag {}", room.len, room.tag);
            let what = format!("{len} bytes with tag {} {expected}", header.tag);
            return Err(Error::Mismatch { peer: self.shared.name(self.peer), what });
        }
        let possible = |carried: &Carried| match carried {
            Carried::Inline => len <= INLINE,
            Carried::Window | Carried::Cross => header.offset.checked_add(header.len).is_some(),
            Carried::Staged => self.channel.has_chunks(),
        };
        let carried = header.carried().filter(possible).filter(|_| len >= self.moved);
        carried.map(|carried| (len, carried)).ok_or_else(|| self.strange())
    }

    /// Moves some of the bytes of the oldest message.
    fn advance(&mut self, header: &Header, len: usize, carried: Carried) -> Result<()> {
        let to = self.room(self.done).to.wrapping_add(self.moved);
        let step = STEP.min(len - self.moved);
        if step == 0 {
            return Ok(());
        }
        let from = self.moved as u64;
        match carried {
            Carried::Inline => {
                // SAFETY: the caller of `irecv` gave the room; room and slot hold `len` bytes (`checked`); the slot is ours
                // until consumed.
                unsafe { to.copy_from_nonoverlapping(self.channel.inline(self.done).add(self.moved), step) };
            }
            Carried::Window => {
                let named = Named { window: header.window, offset: header.offset + from };
                let place = self.shared.reach(self.peer, named, step)?;
                let place = place.ok_or_else(|| self.strange())?;
                // SAFETY: as above; the sender keeps its bytes as they are until this message is consumed.
                unsafe { to.copy_from_nonoverlapping(place.as_ptr(), step) };
            }
            Carried::Cross => {
                // SAFETY: as above.
                unsafe { self.shared.cross(Way::FromPeer, self.peer, header.offset + from, to, step)? };
            }
            Carried::Staged => {
                let taken = self.channel.chunks_taken().load(Ordering::Relaxed);
                if self.channel.chunks_put().load(Ordering::Acquire) == taken {
                    return Ok(());
                }
                let step = CHUNK.min(len - self.moved);
                // SAFETY: as above; the chunk is full and stays so until it is counted as taken.
                unsafe { to.copy_from_nonoverlapping(self.channel.chunk(taken), step) };
                self.channel.chunks_taken().store(taken.wrapping_add(1), Ordering::Release);
                self.moved += step;
                return Ok(());
            }
        }
        self.moved += step;
        Ok(())
    }

    fn strange(&self) -> Error {
        Error::Protocol { peer: self.shared.name(self.peer), what: "a message that cannot be".into() }
    }
}

impl Receiver for RecvComm {
    unsafe fn irecv(&mut self, room: *mut u8, len: usize, tag: u32) -> Result<Option<Request>> {
        if self.posted - self.done >= SLOTS {
            return Ok(None);
        }
        let number = self.posted;
        *self.room(number) = Room { to: room, len, tag };
        self.posted += 1;
        Ok(Some(Request(number)))
    }

    /// The size of a message is remembered until 32 more are posted; after that a done request has size 0.
    fn test(&mut self, request: Request) -> Result<Option<usize>> {
        let Request(number) = request;
        if number >= self.posted {
            return Err(Error::Config(format!("receive request {number} was never posted")));
        }
        if number >= self.done {
            // Asked before moving: what a peer did before it ended still counts.
            let ended = self.shared.has_ended(self.peer)?;
            self.progress()?;
            if number >= self.done {
                return if ended { Err(Error::Closed { peer: self.shared.name(self.peer) }) } else { Ok(None) };
            }
        }
        let remembered = self.posted - number <= SLOTS;
        Ok(Some(if remembered { self.room(number).len } else { 0 }))
    }
}
