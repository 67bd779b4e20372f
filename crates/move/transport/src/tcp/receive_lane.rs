//! The data sockets that one thread receives on: each brings chunks, which go straight into the posted room.

use super::failure::{Failure, FirstFailure};
use super::helpers::{Lane, WAKEUP};
use super::rooms::{Landing, ReceiveShared};
use super::socket::{self, Epoll, Received};
use super::turn::Turn;
use super::wire::ChunkHeader;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

struct ReceiveSocket {
    fd: OwnedFd,
    header: [u8; ChunkHeader::SIZE],
    header_received: usize,
    landing: Option<Landing>,
    /// Whether there may be bytes; the kernel reports when there are again.
    readable: bool,
    /// The peer will send no more: its end may hide behind the last bytes, so a short read says nothing.
    hung_up: bool,
    ended: bool,
}

/// Data sockets and who they receive for.
pub(super) struct ReceiveLane {
    sockets: Vec<ReceiveSocket>,
    epoll: Epoll,
    shared: Arc<ReceiveShared>,
    next: usize,
    turn: Turn,
}

impl ReceiveLane {
    pub fn new(sockets: Vec<OwnedFd>, shared: Arc<ReceiveShared>) -> crate::Result<Self> {
        let mut lane =
            ReceiveLane { sockets: Vec::new(), epoll: Epoll::new()?, shared, next: 0, turn: Turn::default() };
        for fd in sockets {
            lane.add(ReceiveSocket {
                fd,
                header: [0; ChunkHeader::SIZE],
                header_received: 0,
                landing: None,
                readable: true,
                hung_up: false,
                ended: false,
            })?;
        }
        Ok(lane)
    }

    fn add(&mut self, socket: ReceiveSocket) -> crate::Result<()> {
        self.epoll.add(&socket.fd, self.sockets.len(), libc::EPOLLIN | libc::EPOLLRDHUP)?;
        self.sockets.push(socket);
        Ok(())
    }
}

impl ReceiveSocket {
    fn note(&mut self, events: u32) {
        self.readable = true;
        self.hung_up |= events & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0;
    }

    /// Receives what is there; stops at a chunk for which no room is posted yet. The bytes received.
    fn pump(&mut self, most: usize, shared: &ReceiveShared) -> Result<usize, Failure> {
        let mut total = 0;
        while self.readable && total < most {
            if self.landing.is_none() && self.header_received == ChunkHeader::SIZE {
                let header = ChunkHeader::from_bytes(&self.header, shared.checked)?;
                let Some(landing) = land(&header, shared)? else { break };
                self.header_received = 0;
                self.landing = Some(landing);
            }
            total += self.receive(shared)?;
        }
        Ok(total)
    }

    /// One receive: the rest of the chunk, and with it the next header.
    fn receive(&mut self, shared: &ReceiveShared) -> Result<usize, Failure> {
        let header = &mut self.header[self.header_received..];
        let (next, missing) = self.landing.as_ref().map_or((std::ptr::null_mut(), 0), Landing::rest);
        let mut parts = [socket::part(next, missing), socket::part(header.as_ptr(), header.len())];
        let asked = missing + header.len();
        // SAFETY: the room is writable by the promise of `irecv`, and nobody else receives this chunk; the header is ours.
        match unsafe { socket::receive(&self.fd, &mut parts, 0) }? {
            Received::Nothing => {
                self.readable = false;
                Ok(0)
            }
            Received::Ended => {
                if missing > 0 || self.header_received > 0 {
                    return Err(Failure::Closed);
                }
                self.readable = false;
                self.ended = true;
                shared.ended_sockets.fetch_add(1, Ordering::Release);
                Ok(0)
            }
            Received::Bytes(received) => {
                self.readable = received == asked || self.hung_up;
                let of_data = received.min(missing);
                self.header_received += received - of_data;
                if let Some(landing) = &mut self.landing
                    && landing.land(of_data, shared)?
                {
                    self.landing = None;
                }
                Ok(of_data)
            }
        }
    }
}

/// Finds the room of a chunk; `None` while none is posted.
fn land(header: &ChunkHeader, shared: &ReceiveShared) -> Result<Option<Landing>, Failure> {
    let (offset, len) = (header.offset as usize, header.len as usize);
    let room = shared.begin(header.message, header.total as usize, header.tag)?;
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > header.total as usize) {
        return Err(Failure::Protocol(format!("a chunk that lies outside of message {}", header.message)));
    }
    let Some(room) = room else { return Ok(None) };
    shared.claim(header.message, &room, offset, len)?;
    Ok(Some(Landing::new(header.message, &room, offset, len, header.sum)))
}

impl Lane for ReceiveLane {
    fn progress(&mut self) -> Result<usize, Failure> {
        let sockets = &mut self.sockets;
        self.epoll.wait(0, |ready| {
            if let Some(socket) = sockets.get_mut(ready.index) {
                socket.note(ready.events);
            }
        });
        let most = self.turn.begin();
        let mut received = 0;
        for _ in 0..sockets.len() {
            let at = self.next;
            self.next = (at + 1) % sockets.len();
            if sockets[at].readable && !sockets[at].ended {
                received += sockets[at].pump(most - received, &self.shared)?;
            }
            if received >= most {
                break;
            }
        }
        self.turn.end();
        Ok(received)
    }

    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn split(&mut self) -> crate::Result<Option<Self>> {
        if self.sockets.len() < 2 {
            return Ok(None);
        }
        // If no descriptor is left for its epoll, the lane keeps its sockets.
        let Ok(mut other) = ReceiveLane::new(Vec::new(), Arc::clone(&self.shared)) else { return Ok(None) };
        for socket in self.sockets.split_off(self.sockets.len().div_ceil(2)) {
            self.epoll.remove(&socket.fd);
            other.add(socket)?;
        }
        self.next = 0;
        Ok(Some(other))
    }

    fn absorb(&mut self, other: Self) -> crate::Result<()> {
        other.sockets.into_iter().try_for_each(|socket| self.add(socket))
    }

    fn note(&mut self, index: usize, events: u32) {
        if index != WAKEUP {
            self.sockets[index].note(events);
        }
    }

    fn failure(&self) -> &FirstFailure {
        &self.shared.failure
    }
}
