//! The sending end of a connection between two ranks of a host.

use super::channel::{CHUNK, CHUNKS, Carried, Channel, Header, INLINE, SLOTS};
use super::group::Shared;
use super::link::Message;
use super::windows::Named;
use crate::{Error, Request, Result, Sender};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The sending end of a connection; see [`super::Group::connect`]. At most 32 messages are under way.
pub struct SendComm {
    shared: Arc<Shared>,
    peer: usize,
    channel: Channel,
    posted: u64,
    done: u64,
    /// First message whose bytes are not all in chunks yet, of those that are staged.
    staging: u64,
    messages: [Outgoing; SLOTS as usize],
}

#[derive(Clone, Copy)]
struct Outgoing {
    data: *const u8,
    len: usize,
    carried: Carried,
    staged: usize,
}

// SAFETY: the pointers are of memory that the caller of `isend` keeps readable wherever the connection is tested.
unsafe impl Send for SendComm {}

impl SendComm {
    pub(super) fn open(shared: &Arc<Shared>, peer: usize) -> Result<Self> {
        let channel = Channel::create(!shared.cross_memory())?;
        shared.tell(peer, &Message::Channel(&channel.mapping))?;
        let none = Outgoing { data: std::ptr::null(), len: 0, carried: Carried::Inline, staged: 0 };
        let messages = [none; SLOTS as usize];
        Ok(SendComm { shared: Arc::clone(shared), peer, channel, posted: 0, done: 0, staging: 0, messages })
    }

    fn message(&mut self, number: u64) -> &mut Outgoing {
        &mut self.messages[(number % SLOTS) as usize]
    }

    /// Messages that the receiver is done with: it counts them, and cannot have more than were sent.
    fn consumed(&self) -> u64 {
        self.channel.consumed().load(Ordering::Acquire).min(self.posted)
    }

    /// Fills chunks, and counts what the receiver is done with.
    fn progress(&mut self) {
        while self.staging < self.posted {
            let (staging, channel) = (self.staging, &self.channel);
            let message = &mut self.messages[(staging % SLOTS) as usize];
            while message.carried == Carried::Staged && message.staged < message.len {
                let put = channel.chunks_put().load(Ordering::Relaxed);
                if put - channel.chunks_taken().load(Ordering::Acquire).min(put) >= CHUNKS {
                    break;
                }
                let len = CHUNK.min(message.len - message.staged);
                // SAFETY: the caller of `isend` keeps the bytes readable; the receiver has emptied this chunk.
                unsafe { channel.chunk(put).copy_from_nonoverlapping(message.data.add(message.staged), len) };
                message.staged += len;
                channel.chunks_put().store(put.wrapping_add(1), Ordering::Release);
            }
            if message.carried == Carried::Staged && message.staged < message.len {
                break;
            }
            self.staging += 1;
        }
        let consumed = self.consumed();
        while self.done < self.posted && (self.done < consumed || self.message(self.done).carried == Carried::Inline) {
            self.done += 1;
        }
    }
}

#[cfg(test)]
impl SendComm {
    /// Shows the receiver a message that this end would never send.
    pub(super) fn publish(&self, header: Header) {
        self.channel.publish(self.posted, header);
    }
}

impl Sender for SendComm {
    unsafe fn isend(&mut self, data: *const u8, len: usize, tag: u32) -> Result<Option<Request>> {
        if self.posted - self.consumed() >= SLOTS {
            return Ok(None);
        }
        let number = self.posted;
        let (named, carried) = if len <= INLINE {
            if len > 0 {
                // SAFETY: the caller vouches for the bytes, and the slot is free.
                unsafe { self.channel.inline(number).copy_from_nonoverlapping(data, len) };
            }
            (Named::NOTHING, Carried::Inline)
        } else {
            let named = self.shared.name_for(data, len, Some(self.peer))?;
            let plain = if self.shared.cross_memory() { Carried::Cross } else { Carried::Staged };
            (named, if named.window == Named::PLAIN { plain } else { Carried::Window })
        };
        *self.message(number) = Outgoing { data, len, carried, staged: 0 };
        let Named { window, offset } = named;
        self.channel.publish(number, Header { len: len as u64, window, offset, tag, carried: carried as u32 });
        self.posted += 1;
        self.progress();
        Ok(Some(Request(number)))
    }

    /// The size of a message is remembered until 32 more are posted; after that a done request has size 0.
    fn test(&mut self, request: Request) -> Result<Option<usize>> {
        let Request(number) = request;
        if number >= self.posted {
            return Err(Error::Config(format!("send request {number} was never posted")));
        }
        if number >= self.done {
            // Asked before moving: what a peer did before it ended still counts.
            let ended = self.shared.has_ended(self.peer)?;
            self.progress();
            if number >= self.done {
                return if ended { Err(Error::Closed { peer: self.shared.name(self.peer) }) } else { Ok(None) };
            }
        }
        let remembered = self.posted - number <= SLOTS;
        Ok(Some(if remembered { self.message(number).len } else { 0 }))
    }
}
