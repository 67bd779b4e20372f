//! The control socket of a receiving end: small messages, whole, one after the other.
//!
//! It is read into a buffer of our own, because a message may be smaller than its room: what the kernel wrote behind it
//! would be of the next one, and NCCL's rooms are not ours to scribble in. Only what is missing of a message whose beginning
//! is there goes straight into its room.

use super::failure::Failure;
use super::rooms::{Landing, ReceiveShared};
use super::socket::{self, Received};
use super::wire::InlineHeader;
use std::os::fd::OwnedFd;

/// The control socket and what was read from it.
pub(super) struct Control {
    fd: OwnedFd,
    ended: bool,
    buffer: Box<[u8]>,
    /// What is in the buffer and not used yet lies from `from` to `to`.
    from: usize,
    to: usize,
    landing: Option<Landing>,
    /// Messages since the last acknowledgement that was asked for.
    unacknowledged: u32,
}

/// What a step came to.
pub(super) enum Step {
    /// So many bytes moved.
    Moved(usize),
    /// Nothing can be done now.
    Nothing,
}

impl Control {
    /// Room for some messages of the smallest kinds. What is longer is copied only so far.
    const BUFFER: usize = 8 << 10;
    /// Bytes go one way only, so no answer carries TCP's acknowledgements: each would be a packet of its own, at once after
    /// each small message, and cost as much as the message. They are asked for after this many messages instead, which is
    /// fewer than a sender may have under way (TCP's initial window of 10).
    const ACKNOWLEDGE_EVERY: u32 = 8;
    /// With nothing to do, half as many messages suffice.
    const ACKNOWLEDGE_IDLE: u32 = 4;

    pub fn new(fd: OwnedFd) -> Self {
        // An optimisation: if the kernel refuses, go on without it.
        let _ = socket::set_option(&fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0);
        Control {
            fd,
            ended: false,
            buffer: vec![0; Self::BUFFER].into_boxed_slice(),
            from: 0,
            to: 0,
            landing: None,
            unacknowledged: 0,
        }
    }

    /// Whether the peer has closed it, and all that came before is used.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Where it comes from.
    pub fn socket(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether the next step needs the socket.
    pub fn reads_next(&self) -> bool {
        self.landing.is_some() || self.to - self.from < InlineHeader::SIZE
    }

    /// Lands what is buffered, or else reads.
    pub fn step(&mut self, shared: &ReceiveShared) -> Result<Step, Failure> {
        if self.landing.is_none() {
            match self.buffer[self.from..self.to].first_chunk() {
                Some(header) => return self.begin(InlineHeader::from_bytes(header, shared.checked)?, shared),
                None if self.ended => return Ok(Step::Nothing),
                None => {}
            }
        }
        self.read(shared)
    }

    /// A header is there: lands what is there of its message.
    fn begin(&mut self, header: InlineHeader, shared: &ReceiveShared) -> Result<Step, Failure> {
        let len = header.len as usize;
        let Some(room) = shared.begin(header.message, len, header.tag)? else { return Ok(Step::Nothing) };
        shared.claim(header.message, &room, 0, len)?;
        self.from += InlineHeader::SIZE;
        let mut landing = Landing::new(header.message, &room, 0, len, header.sum);
        let there = len.min(self.to - self.from);
        let early = &self.buffer[self.from..self.from + there];
        // SAFETY: the room has `len` writable bytes, by the promise of `irecv`, and is none of ours.
        unsafe { std::ptr::copy_nonoverlapping(early.as_ptr(), landing.rest().0, there) };
        self.from += there;
        if landing.land(there, shared)? {
            self.landed();
        } else {
            self.landing = Some(landing);
        }
        Ok(Step::Moved(InlineHeader::SIZE + there))
    }

    /// One receive: what is missing of a message, and what comes behind it.
    fn read(&mut self, shared: &ReceiveShared) -> Result<Step, Failure> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let (next, missing) = self.landing.as_ref().map_or((std::ptr::null_mut(), 0), Landing::rest);
        let free = &mut self.buffer[self.to..];
        let mut parts = [socket::part(next, missing), socket::part(free.as_mut_ptr(), free.len())];
        // SAFETY: the room is writable by the promise of `irecv`, and only the control socket brings this message; the
        // buffer is ours.
        match unsafe { socket::receive(&self.fd, &mut parts) }? {
            Received::Bytes(received) => {
                let of_message = received.min(missing);
                self.to += received - of_message;
                if let Some(landing) = &mut self.landing
                    && landing.land(of_message, shared)?
                {
                    self.landed();
                }
                Ok(Step::Moved(received))
            }
            Received::Nothing => {
                if self.unacknowledged >= Self::ACKNOWLEDGE_IDLE {
                    self.acknowledge();
                }
                Ok(Step::Nothing)
            }
            Received::Ended if self.landing.is_some() || self.to > 0 => Err(Failure::Closed),
            Received::Ended => {
                self.ended = true;
                Ok(Step::Nothing)
            }
        }
    }

    fn landed(&mut self) {
        self.landing = None;
        self.unacknowledged += 1;
        if self.unacknowledged >= Self::ACKNOWLEDGE_EVERY {
            self.acknowledge();
        }
    }

    /// Sends TCP's acknowledgement now, and goes on delaying the next ones.
    fn acknowledge(&mut self) {
        for quick in [1, 0] {
            let _ = socket::set_option(&self.fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, quick);
        }
        self.unacknowledged = 0;
    }
}
