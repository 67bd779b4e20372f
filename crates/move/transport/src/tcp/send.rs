//! The sending end of a connection: small messages at once on the control socket, long ones as chunks for the data sockets.

use super::failure::{Failure, FirstFailure};
use super::growth::Growth;
use super::liveness::{Silence, Watch};
use super::requests::Requests;
use super::rest;
use super::send_lane::SendLane;
use super::socket;
use super::way_back::WayBack;
use super::wire::{ChunkHeader, InlineHeader};
use super::workers::Workers;
use super::{MOST_REQUESTS, deal};
use crate::transport::{Request, Sender};
use crate::{Cancellation, Result};
use crc32c::crc32c;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What is known of a message that is being sent.
#[derive(Default)]
struct Slot {
    /// Bytes not yet in the kernel's hands.
    unsent: AtomicUsize,
    /// Zero-copy sends that the kernel still reads from.
    pinned: AtomicUsize,
}

/// A long message of which chunks are still to be taken.
struct Untaken {
    message: u64,
    data: *const u8,
    len: usize,
    next: usize,
    chunk: usize,
    tag: u32,
}

// SAFETY: the bytes stay readable until the request is done (the promise of `isend`), from whichever thread.
unsafe impl Send for Untaken {}

/// A chunk that a data socket has taken.
pub(super) struct Chunk {
    pub message: u64,
    pub header: [u8; ChunkHeader::SIZE],
    pub header_sent: usize,
    pub data: *const u8,
    pub unsent: usize,
    /// Whether the message is long enough to try without a copy.
    pub zero_copy: bool,
}

// SAFETY: as for `Untaken`.
unsafe impl Send for Chunk {}

/// What the threads that move one connection's bytes share.
pub(super) struct SendShared {
    slots: [Slot; MOST_REQUESTS],
    untaken: Mutex<VecDeque<Untaken>>,
    /// Length of `untaken`, to be looked at without the lock.
    waiting: AtomicUsize,
    /// Bytes in the kernel's hands so far.
    sent_bytes: AtomicU64,
    /// Off once the kernel has said that it copied after all.
    pub zero_copy: AtomicBool,
    pub failure: FirstFailure,
    zero_copy_from: usize,
    /// Whether messages carry checksums.
    checked: bool,
}

impl SendShared {
    fn slot(&self, message: u64) -> &Slot {
        &self.slots[message as usize % MOST_REQUESTS]
    }

    /// Whether there is a chunk to take.
    pub fn has_chunks(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// The next chunk, for a socket that has drained.
    pub fn take(&self) -> Option<Chunk> {
        let (mut header, data) = self.cut()?;
        if self.checked {
            // SAFETY: the chunk is part of a message that stays readable until its request is done.
            header.sum = crc32c(unsafe { std::slice::from_raw_parts(data, header.len as usize) });
        }
        Some(Chunk {
            message: header.message,
            header: header.to_bytes(self.checked),
            header_sent: 0,
            data,
            unsent: header.len as usize,
            zero_copy: header.total as usize >= self.zero_copy_from,
        })
    }

    /// Cuts the next chunk off the first message.
    fn cut(&self) -> Option<(ChunkHeader, *const u8)> {
        let mut untaken = self.untaken.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let first = untaken.front_mut()?;
        let len = first.chunk.min(first.len - first.next);
        let header = ChunkHeader {
            message: first.message,
            offset: first.next as u64,
            total: first.len as u64,
            len: len as u32,
            tag: first.tag,
            sum: 0,
        };
        let data = first.data.wrapping_add(first.next);
        first.next += len;
        if first.next == first.len {
            untaken.pop_front();
            self.waiting.store(untaken.len(), Ordering::SeqCst);
        }
        Some((header, data))
    }

    /// Bytes of a message are in the kernel's hands; `pinned` when it still reads them where they are.
    pub fn sent(&self, message: u64, bytes: usize, pinned: bool) {
        let slot = self.slot(message);
        if pinned {
            slot.pinned.fetch_add(1, Ordering::Relaxed);
        }
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        slot.unsent.fetch_sub(bytes, Ordering::Release);
    }

    /// The kernel has done with one zero-copy send of a message.
    pub fn unpinned(&self, message: u64) {
        self.slot(message).pinned.fetch_sub(1, Ordering::Release);
    }
}

/// A message on its way over the control socket.
struct Inline {
    message: u64,
    header: [u8; InlineHeader::SIZE],
    header_sent: usize,
    data: *const u8,
    unsent: usize,
}

// SAFETY: as for `Untaken`.
unsafe impl Send for Inline {}

impl Inline {
    /// Up to this size it goes as one part with its header, which costs the kernel less than two.
    const SHORT: usize = 256;

    /// Sends of what is left of it what the socket takes.
    ///
    /// # Safety
    /// The data is readable.
    unsafe fn send(&self, control: &OwnedFd) -> std::io::Result<usize> {
        let header = &self.header[self.header_sent..];
        let mut short = [0; Self::SHORT];
        // SAFETY: the header is ours, and so is the short copy; the data is readable.
        unsafe {
            let Some(whole) = short.get_mut(..header.len() + self.unsent) else {
                let mut parts = [socket::part(header.as_ptr(), header.len()), socket::part(self.data, self.unsent)];
                return socket::send(control, &mut parts, 0);
            };
            let (head, body) = whole.split_at_mut(header.len());
            head.copy_from_slice(header);
            std::ptr::copy_nonoverlapping(self.data, body.as_mut_ptr(), body.len());
            socket::send(control, &mut [socket::part(whole.as_ptr(), whole.len())], 0)
        }
    }
}

/// The sending end of a connection. Dropping it closes its sockets and ends its threads; what is already in the kernel's
/// hands still arrives.
pub struct SendComm {
    shared: Arc<SendShared>,
    control: Arc<OwnedFd>,
    /// The socket of both directions: this one, once the way back is taken.
    way: Option<WayBack>,
    /// Small messages go by the way back once it is there.
    returns: bool,
    /// The control socket that they went by before. The peer takes its end for the connection's.
    left: Option<Arc<OwnedFd>>,
    inline: VecDeque<Inline>,
    inline_up_to: usize,
    watch: Watch,
    silence: Silence,
    requests: Requests,
    lens: Box<[usize; MOST_REQUESTS]>,
    most_chunk: usize,
    /// Who moves the data sockets.
    workers: Workers<SendLane>,
    peer: String,
    address: String,
    cancel: Arc<Cancellation>,
}

/// What a new connection is made of.
pub(super) struct Parts {
    pub control: OwnedFd,
    pub data: Vec<OwnedFd>,
    pub threads: usize,
    pub address: String,
    pub cancel: Arc<Cancellation>,
    /// Whether messages carry checksums.
    pub checksum: bool,
    /// How helpers are found, where their number is not given.
    pub growth: Option<Growth>,
}

impl SendComm {
    /// Below this, a chunk costs more in system calls than another helper saves; NCCL's socket transport has the same.
    const LEAST_CHUNK: usize = 64 << 10;

    pub(super) fn new(parts: Parts, config: &super::Config) -> Result<Self> {
        let zero_copy = parts.data.iter().all(|socket| {
            config.zero_copy_from < usize::MAX
                && socket::set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).is_ok()
        });
        let shared = Arc::new(SendShared {
            slots: std::array::from_fn(|_| Slot::default()),
            untaken: Mutex::default(),
            waiting: AtomicUsize::new(0),
            sent_bytes: AtomicU64::new(0),
            zero_copy: AtomicBool::new(zero_copy),
            failure: FirstFailure::default(),
            zero_copy_from: config.zero_copy_from,
            checked: parts.checksum,
        });
        let lanes = deal(parts.data, parts.threads.max(1))
            .into_iter()
            .map(|sockets| SendLane::new(sockets, Arc::clone(&shared), config.timeout))
            .collect::<Result<Vec<_>>>()?;
        let workers = Workers::new(lanes, parts.threads, parts.growth)?;
        Ok(SendComm {
            shared,
            control: Arc::new(parts.control),
            way: None,
            returns: false,
            left: None,
            inline: VecDeque::new(),
            inline_up_to: config.inline_up_to,
            watch: Watch::new(config.timeout),
            silence: Silence::default(),
            requests: Requests::new(),
            lens: Box::new([0; MOST_REQUESTS]),
            most_chunk: config.chunk,
            workers,
            peer: parts.address.clone(),
            address: parts.address,
            cancel: parts.cancel,
        })
    }

    /// Who moves its data sockets.
    #[cfg(test)]
    pub(super) fn workers(&mut self) -> &mut Workers<SendLane> {
        &mut self.workers
    }

    /// Names the peer in errors: `rank 3 on host b`. The address is added.
    pub fn set_peer_name(&mut self, name: &str) {
        self.peer = format!("{name} ({})", self.address);
    }

    /// Lets the connection that goes the other way use its control socket.
    pub fn lend(&mut self, way: &WayBack) {
        way.lend(&self.control);
        self.way = Some(way.clone());
    }

    /// Sends small messages on the control socket of the connection that goes the other way, once that stands. The peer must
    /// [hear](super::RecvComm::hear) there.
    pub fn return_by(&mut self, way: WayBack) {
        (self.way, self.returns) = (Some(way), true);
    }

    /// Before a message: goes over to the way back, if it is there, and notes what goes by the socket of both directions. Between two
    /// messages, so that no message comes in two parts.
    fn change_over(&mut self) {
        let Some(way) = &self.way else { return };
        if self.returns
            && self.left.is_none()
            && let Some(socket) = way.socket()
        {
            self.left = Some(std::mem::replace(&mut self.control, socket));
        }
        if !self.returns || self.left.is_some() {
            way.sent();
        }
    }

    /// Whether long messages are sent without a copy: until the kernel says that it copies after all.
    #[cfg(test)]
    pub(super) fn zero_copy(&self) -> bool {
        self.shared.zero_copy.load(Ordering::Relaxed)
    }

    /// Moves what can be moved.
    fn progress(&mut self) -> std::result::Result<(), Failure> {
        let mut moved = 0;
        while !self.inline.is_empty() {
            match self.push_inline()? {
                0 => {
                    self.watch.look(std::iter::once((&*self.control, &mut self.silence)))?;
                    break;
                }
                sent => moved += sent,
            }
        }
        moved += self.workers.progress(|| self.shared.sent_bytes.load(Ordering::Relaxed))?;
        self.shared.failure.get().map_or(Ok(()), Err)?;
        if moved > 0 {
            self.cancel.advance();
            rest::moved();
        }
        self.finish();
        Ok(())
    }

    /// Size of a message's chunks: one for each hand, if that makes no crumbs.
    fn chunk(&self, len: usize) -> usize {
        len.div_ceil(self.workers.count()).clamp(Self::LEAST_CHUNK.min(self.most_chunk), self.most_chunk)
    }

    fn finish(&mut self) {
        while self.requests.under_way() > 0 {
            let slot = self.shared.slot(self.requests.finished());
            if slot.unsent.load(Ordering::Acquire) > 0 || slot.pinned.load(Ordering::Acquire) > 0 {
                break;
            }
            let len = self.lens[self.requests.finished() as usize % MOST_REQUESTS];
            self.requests.finish(len);
        }
    }

    /// Sends of the first inline message what the control socket takes; how many bytes it took.
    fn push_inline(&mut self) -> std::result::Result<usize, Failure> {
        let Some(first) = self.inline.front_mut() else { return Ok(0) };
        // SAFETY: the data stays readable until the request is done, by the promise of `isend`.
        let result = unsafe { first.send(&self.control) };
        let sent = match result {
            Ok(sent) => sent,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(Failure::system("send to", &error)),
        };
        let of_header = sent.min(InlineHeader::SIZE - first.header_sent);
        let of_data = sent - of_header;
        first.header_sent += of_header;
        first.data = first.data.wrapping_add(of_data);
        first.unsent -= of_data;
        let done = first.header_sent == InlineHeader::SIZE && first.unsent == 0;
        // The slot keeps one byte more than the message until the header is out too: a message may be empty.
        self.shared.sent(first.message, of_data + usize::from(done), false);
        if done {
            self.inline.pop_front();
        }
        Ok(sent)
    }

    fn fail(&mut self, failure: Failure) -> crate::Error {
        let error = failure.error(&self.peer);
        self.shared.failure.set(failure);
        error
    }

    fn check(&self) -> Result<()> {
        self.shared.failure.get().map_or(Ok(()), |failure| Err(failure.error(&self.peer)))
    }
}

impl Sender for SendComm {
    unsafe fn isend(&mut self, data: *const u8, len: usize, tag: u32) -> Result<Option<Request>> {
        self.check()?;
        if self.requests.under_way() == MOST_REQUESTS {
            self.finish();
            if self.requests.under_way() == MOST_REQUESTS {
                return Ok(None);
            }
        }
        let message = self.requests.post();
        self.lens[message as usize % MOST_REQUESTS] = len;
        let slot = self.shared.slot(message);
        if len <= self.inline_up_to {
            slot.unsent.store(len + 1, Ordering::Relaxed);
            let checked = self.shared.checked && len > 0;
            // SAFETY: the message is readable by the caller's promise.
            let sum = if checked { crc32c(unsafe { std::slice::from_raw_parts(data, len) }) } else { 0 };
            let header = InlineHeader { message, len: len as u32, tag, sum }.to_bytes(self.shared.checked);
            if self.inline.is_empty() {
                self.change_over();
            }
            self.inline.push_back(Inline { message, header, header_sent: 0, data, unsent: len });
            if self.inline.len() == 1 {
                self.push_inline().map_err(|failure| self.fail(failure))?;
                self.finish();
            }
        } else {
            slot.unsent.store(len, Ordering::Relaxed);
            let chunk = self.chunk(len);
            let mut untaken = self.shared.untaken.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            untaken.push_back(Untaken { message, data, len, next: 0, chunk, tag });
            self.shared.waiting.store(untaken.len(), Ordering::SeqCst);
            drop(untaken);
            self.workers.wake();
        }
        Ok(Some(Request(message)))
    }

    fn test(&mut self, request: Request) -> Result<Option<usize>> {
        if let Some(size) = self.requests.size(request.0) {
            return Ok(Some(size));
        }
        self.progress().map_err(|failure| self.fail(failure))?;
        Ok(self.requests.size(request.0))
    }
}
