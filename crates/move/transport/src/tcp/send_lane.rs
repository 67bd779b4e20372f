//! The data sockets that one thread sends on: in turn, each takes the next chunk once it has drained.

use super::failure::{Failure, FirstFailure};
use super::helpers::{Lane, WAKEUP};
use super::liveness::{Silence, Watch};
use super::send::{Chunk, SendShared};
use super::socket::{self, Epoll};
use super::turn::Turn;
use super::wire::ChunkHeader;
use super::zero_copy::Pinned;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

struct SendSocket {
    fd: OwnedFd,
    chunk: Option<Chunk>,
    /// Whether the socket may take bytes; the kernel reports when it may again.
    writable: bool,
    pinned: Pinned,
    silence: Silence,
}

/// Data sockets and who they send for.
pub(super) struct SendLane {
    sockets: Vec<SendSocket>,
    epoll: Epoll,
    shared: Arc<SendShared>,
    /// The socket whose turn it is. Taking turns spreads the bytes evenly, so that no flow meets a cap before the others.
    next: usize,
    turn: Turn,
    blocked: usize,
    /// Sockets with a chunk.
    busy: usize,
    /// Sockets with sends that the kernel still reads from.
    pinned: usize,
    watch: Watch,
}

impl SendLane {
    pub fn new(sockets: Vec<OwnedFd>, shared: Arc<SendShared>, timeout: Option<Duration>) -> crate::Result<Self> {
        let watch = Watch::new(timeout);
        let mut lane = SendLane {
            sockets: Vec::new(),
            epoll: Epoll::new()?,
            shared,
            next: 0,
            turn: Turn::default(),
            blocked: 0,
            busy: 0,
            pinned: 0,
            watch,
        };
        for fd in sockets {
            let (pinned, silence) = Default::default();
            lane.add(SendSocket { fd, chunk: None, writable: true, pinned, silence })?;
        }
        Ok(lane)
    }

    fn add(&mut self, socket: SendSocket) -> crate::Result<()> {
        self.epoll.add(&socket.fd, self.sockets.len(), libc::EPOLLOUT)?;
        self.sockets.push(socket);
        self.count();
        Ok(())
    }

    /// Counts anew, after sockets have come or gone.
    fn count(&mut self) {
        let how_many = |which: fn(&SendSocket) -> bool| self.sockets.iter().filter(|socket| which(socket)).count();
        self.blocked = how_many(|socket| !socket.writable);
        self.busy = how_many(|socket| socket.chunk.is_some());
        self.pinned = how_many(|socket| !socket.pinned.is_empty());
        self.next = 0;
    }

    fn unblock(&mut self) {
        if self.blocked == 0 {
            return;
        }
        let (sockets, blocked) = (&mut self.sockets, &mut self.blocked);
        self.epoll.wait(0, |ready| {
            if let Some(socket) = sockets.get_mut(ready.index)
                && !socket.writable
            {
                socket.writable = true;
                *blocked -= 1;
            }
        });
    }

    /// Lets the socket at `at` send; the bytes it took.
    fn send_on(&mut self, at: usize) -> Result<usize, Failure> {
        let socket = &mut self.sockets[at];
        if socket.chunk.is_none() {
            socket.chunk = self.shared.take();
            self.busy += usize::from(socket.chunk.is_some());
        }
        let Some(chunk) = &mut socket.chunk else { return Ok(0) };
        let had_pinned = !socket.pinned.is_empty();
        let sent = push(&socket.fd, chunk, &mut socket.pinned, &self.shared)?;
        self.pinned += usize::from(!had_pinned && !socket.pinned.is_empty());
        if chunk.unsent == 0 {
            socket.chunk = None;
            self.busy -= 1;
        } else {
            socket.writable = false;
            self.blocked += 1;
        }
        Ok(sent)
    }

    /// While nothing moves: whether those who should take something still answer.
    fn watch(&mut self) -> Result<(), Failure> {
        if self.busy == 0 && self.pinned == 0 {
            return Ok(());
        }
        let waiting = |socket: &&mut SendSocket| socket.chunk.is_some() || !socket.pinned.is_empty();
        self.watch.look(self.sockets.iter_mut().filter(waiting).map(|socket| (&socket.fd, &mut socket.silence)))
    }

    fn reap(&mut self) {
        for socket in self.sockets.iter_mut().filter(|socket| !socket.pinned.is_empty()) {
            socket.pinned.reap(&socket.fd, &self.shared);
            self.pinned -= usize::from(socket.pinned.is_empty());
        }
    }
}

/// Sends of a chunk what the socket takes.
fn push(fd: &OwnedFd, chunk: &mut Chunk, pinned: &mut Pinned, shared: &SendShared) -> Result<usize, Failure> {
    let mut total = 0;
    while chunk.unsent > 0 {
        let zero_copy = chunk.zero_copy && shared.zero_copy.load(Ordering::Relaxed);
        let header = &chunk.header[chunk.header_sent..];
        let mut parts = [socket::part(header.as_ptr(), header.len()), socket::part(chunk.data, chunk.unsent)];
        // Do not send the header with MSG_ZEROCOPY: its memory is freed before the kernel has sent it.
        let (parts, flags) = match (zero_copy, header.is_empty()) {
            (true, true) => (&mut parts[1..], libc::MSG_ZEROCOPY),
            (true, false) => (&mut parts[..1], libc::MSG_MORE),
            (false, _) => (&mut parts[..], 0),
        };
        // SAFETY: the header is ours; the data stays readable until the request is done, by the promise of `isend`.
        let sent = match unsafe { socket::send(fd, parts, flags) } {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(total),
            // The kernel has no room for more pinned memory (net.core.optmem_max, RLIMIT_MEMLOCK).
            Err(error) if flags == libc::MSG_ZEROCOPY && error.raw_os_error() == Some(libc::ENOBUFS) => {
                chunk.zero_copy = false;
                continue;
            }
            Err(error) => return Err(Failure::system("send to", &error)),
        };
        let of_header = sent.min(ChunkHeader::SIZE - chunk.header_sent);
        let of_data = sent - of_header;
        chunk.header_sent += of_header;
        chunk.data = chunk.data.wrapping_add(of_data);
        chunk.unsent -= of_data;
        total += of_data;
        let by_reference = flags == libc::MSG_ZEROCOPY;
        if by_reference {
            pinned.add(chunk.message);
        }
        shared.sent(chunk.message, of_data, by_reference);
    }
    Ok(total)
}

impl Lane for SendLane {
    fn progress(&mut self) -> Result<usize, Failure> {
        if self.pinned > 0 {
            self.reap();
        }
        if self.busy == 0 && !self.shared.has_chunks() {
            return self.watch().map(|()| 0);
        }
        self.unblock();
        let most = self.turn.begin();
        let mut sent = 0;
        let mut without = 0;
        while without < self.sockets.len() {
            let at = self.next;
            self.next = (at + 1) % self.sockets.len();
            let taken = if self.sockets[at].writable { self.send_on(at)? } else { 0 };
            without = if taken > 0 { 0 } else { without + 1 };
            sent += taken;
            if sent >= most || (self.busy == 0 && !self.shared.has_chunks()) {
                break;
            }
        }
        self.turn.end();
        if sent == 0 {
            self.watch()?;
        }
        Ok(sent)
    }

    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn split(&mut self) -> crate::Result<Option<Self>> {
        if self.sockets.len() < 2 {
            return Ok(None);
        }
        // If no descriptor is left for its epoll, the lane keeps its sockets.
        let Ok(mut other) = SendLane::new(Vec::new(), Arc::clone(&self.shared), self.watch.timeout()) else {
            return Ok(None);
        };
        for socket in self.sockets.split_off(self.sockets.len().div_ceil(2)) {
            self.epoll.remove(&socket.fd);
            other.add(socket)?;
        }
        self.count();
        Ok(Some(other))
    }

    fn absorb(&mut self, other: Self) -> crate::Result<()> {
        other.sockets.into_iter().try_for_each(|socket| self.add(socket))
    }

    fn note(&mut self, index: usize, _events: u32) {
        if index != WAKEUP && !self.sockets[index].writable {
            self.sockets[index].writable = true;
            self.blocked -= 1;
        }
    }

    fn failure(&self) -> &FirstFailure {
        &self.shared.failure
    }
}
