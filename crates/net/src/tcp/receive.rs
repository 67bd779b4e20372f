//! The receiving end of a connection: small messages from the control socket, long ones as chunks from the data sockets.

use super::device::{Device, SocketsInUse};
use super::failure::{Failure, FirstFailure};
use super::helpers::{Helpers, Lane};
use super::receive_lane::ReceiveLane;
use super::requests::Requests;
use super::send::Parts;
use super::socket::{self, Received};
use super::wire::InlineHeader;
use super::{MOST_GROUPED, MOST_REQUESTS, deal};
use crate::transport::{Receiver, Request};
use crate::{Alarm, Result};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// No byte of the message has come, so its size is unknown.
const UNKNOWN: usize = usize::MAX;
/// No message was found for a room.
const NOBODY: u64 = u64::MAX;

/// A posted room.
struct Slot {
    room: AtomicPtr<u8>,
    len: AtomicUsize,
    tag: AtomicU32,
    /// The rooms that were posted in one call: how many, and how many of them come before this one.
    group: AtomicUsize,
    place: AtomicUsize,
    /// Which message it was found for.
    message: AtomicU64,
    /// Bytes of the message, once known.
    total: AtomicUsize,
    arrived: AtomicUsize,
}

impl Slot {
    fn empty() -> Self {
        Slot {
            room: AtomicPtr::default(),
            len: AtomicUsize::new(0),
            tag: AtomicU32::new(0),
            group: AtomicUsize::new(1),
            place: AtomicUsize::new(0),
            message: AtomicU64::new(NOBODY),
            total: AtomicUsize::new(UNKNOWN),
            arrived: AtomicUsize::new(0),
        }
    }

    fn post(&self, room: &GroupedRoom, group: usize, place: usize) {
        self.room.store(room.data, Ordering::Relaxed);
        self.len.store(room.len, Ordering::Relaxed);
        self.tag.store(room.tag, Ordering::Relaxed);
        self.group.store(group, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.message.store(NOBODY, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.total.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// What the threads that move one connection's bytes share.
pub(super) struct ReceiveShared {
    slots: [Slot; MOST_REQUESTS],
    posted: AtomicU64,
    /// Data sockets that the peer has closed.
    pub ended_sockets: AtomicUsize,
    device: Arc<Device>,
    pub failure: FirstFailure,
}

impl ReceiveShared {
    fn slot(&self, message: u64) -> &Slot {
        &self.slots[message as usize % MOST_REQUESTS]
    }

    /// Checks what the sender says of a message against the posted receive, and gives its room; `None` while none is posted.
    pub fn begin(&self, message: u64, total: usize, tag: u32) -> std::result::Result<Option<Room>, Failure> {
        let posted = self.posted.load(Ordering::Acquire);
        if message >= posted {
            return Ok(None);
        }
        if posted - message > MOST_REQUESTS as u64 {
            return Err(Failure::Protocol(format!("message {message} again")));
        }
        let number = self.number_of_room(message, tag)?;
        let slot = self.slot(number);
        match slot.message.compare_exchange(NOBODY, message, Ordering::Relaxed, Ordering::Relaxed) {
            Err(other) if other != message => {
                return Err(Failure::Mismatch(format!(
                    "message {message} with tag {tag}, which message {other} has had"
                )));
            }
            _ => {}
        }
        let len = slot.len.load(Ordering::Relaxed);
        if total > len {
            return Err(Failure::Mismatch(format!(
                "message {message} of {total} bytes where {len} bytes were expected"
            )));
        }
        slot.total.store(total, Ordering::Release);
        Ok(Some(Room { number, data: slot.room.load(Ordering::Relaxed) }))
    }

    /// The room of a message: that of its number, or among those posted together with it the one with its tag.
    fn number_of_room(&self, message: u64, tag: u32) -> std::result::Result<u64, Failure> {
        let slot = self.slot(message);
        let first = message - slot.place.load(Ordering::Relaxed) as u64;
        let group = first..first + slot.group.load(Ordering::Relaxed) as u64;
        let tag_of = |number: u64| self.slot(number).tag.load(Ordering::Relaxed);
        group.clone().find(|&number| tag_of(number) == tag).ok_or_else(|| {
            let tags: Vec<String> = group.map(|number| tag_of(number).to_string()).collect();
            let expected = tags.join(" or ");
            Failure::Mismatch(format!("message {message} with tag {tag} where tag {expected} was expected"))
        })
    }

    /// Bytes are in a room.
    pub fn arrived(&self, room: u64, bytes: usize) {
        self.device.count_received(bytes);
        self.slot(room).arrived.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// A posted room, found for a message.
pub(super) struct Room {
    /// Counted from 0 in the order of posting.
    pub number: u64,
    pub data: *mut u8,
}

/// A room for one of the messages of [`RecvComm::irecv_group`].
#[derive(Debug, Clone, Copy)]
pub struct GroupedRoom {
    /// Where the message goes.
    pub data: *mut u8,
    /// Its greatest size in bytes.
    pub len: usize,
    /// The tag of the send that it meets.
    pub tag: u32,
}

/// An inline message whose header has come.
struct Landing {
    room: u64,
    data: *mut u8,
    missing: usize,
}

// SAFETY: the room stays writable, and unread, until the request is done (the promise of `irecv`), from whichever thread.
unsafe impl Send for Landing {}

/// The receiving end of a connection. Dropping it closes its sockets and ends its threads.
pub struct RecvComm {
    shared: Arc<ReceiveShared>,
    control: OwnedFd,
    control_ended: bool,
    header: [u8; InlineHeader::SIZE],
    header_received: usize,
    landing: Option<Landing>,
    /// Bytes that were received together with a message that was shorter than its room, from `spilled` on.
    spill: Vec<u8>,
    spilled: usize,
    inline_up_to: usize,
    /// Inline messages since the last acknowledgement that was asked for.
    unacknowledged: u32,
    requests: Requests,
    /// Receives under way that may come over the data sockets.
    long_under_way: usize,
    /// The data sockets, where no helper moves them.
    lane: Option<ReceiveLane>,
    helpers: Helpers,
    data_sockets: usize,
    peer: String,
    address: String,
    alarm: Arc<Alarm>,
    _sockets: SocketsInUse,
}

impl RecvComm {
    /// Bytes go one way only, so no answer carries TCP's acknowledgements: each would be a packet of its own, at once after
    /// each small message, and cost as much as the message. They are asked for after this many messages instead, which is
    /// fewer than a sender may have under way (TCP's initial window of 10).
    const ACKNOWLEDGE_EVERY: u32 = 8;
    /// With nothing to do, half as many messages suffice.
    const ACKNOWLEDGE_IDLE: u32 = 4;

    pub(super) fn new(parts: Parts, inline_up_to: usize) -> Result<Self> {
        let data_sockets = parts.data.len();
        let sockets = SocketsInUse::new(Arc::clone(&parts.device), data_sockets + 1);
        let shared = Arc::new(ReceiveShared {
            slots: std::array::from_fn(|_| Slot::empty()),
            posted: AtomicU64::new(0),
            ended_sockets: AtomicUsize::new(0),
            device: parts.device,
            failure: FirstFailure::default(),
        });
        let lanes = deal(parts.data, parts.threads.max(1))
            .into_iter()
            .map(|sockets| ReceiveLane::new(sockets, Arc::clone(&shared)))
            .collect::<Result<Vec<_>>>()?;
        let (lane, helpers) = super::helpers_or_own(lanes, parts.threads)?;
        // No harm where it cannot be had.
        let _ = socket::set_option(&parts.control, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0);
        Ok(RecvComm {
            shared,
            control: parts.control,
            control_ended: false,
            header: [0; InlineHeader::SIZE],
            header_received: 0,
            landing: None,
            spill: Vec::new(),
            spilled: 0,
            inline_up_to,
            unacknowledged: 0,
            requests: Requests::new(),
            long_under_way: 0,
            lane,
            helpers,
            data_sockets,
            peer: parts.address.clone(),
            address: parts.address,
            alarm: parts.alarm,
            _sockets: sockets,
        })
    }

    /// Names the peer in errors: `rank 3 on host b`. The address is added.
    pub fn set_peer_name(&mut self, name: &str) {
        self.peer = format!("{name} ({})", self.address);
    }

    /// Posts rooms for as many messages, which may come in any order among them: each goes into the room with its tag. The
    /// request is done when all have come; [`RecvComm::sizes`] has their sizes. `None` when too many are under way already.
    ///
    /// # Errors
    /// [`crate::Error::Config`] for no room, too many, or two with one tag.
    ///
    /// # Safety
    /// The rooms stay writable, and are not looked at, until the request is done.
    pub unsafe fn irecv_group(&mut self, rooms: &[GroupedRoom]) -> Result<Option<Request>> {
        self.shared.failure.get().map_or(Ok(()), |failure| Err(failure.error(&self.peer)))?;
        check_group(rooms)?;
        if self.requests.under_way() + rooms.len() > MOST_REQUESTS {
            self.finish();
            if self.requests.under_way() + rooms.len() > MOST_REQUESTS {
                return Ok(None);
            }
        }
        let mut last = 0;
        for (place, room) in rooms.iter().enumerate() {
            last = self.requests.post();
            self.shared.slot(last).post(room, rooms.len(), place);
            self.long_under_way += usize::from(room.len > self.inline_up_to);
        }
        // All at once: a message of the group must find every room of it.
        self.shared.posted.store(last + 1, Ordering::SeqCst);
        if rooms.iter().any(|room| room.len > self.inline_up_to) {
            self.helpers.wake();
        }
        Ok(Some(Request(last)))
    }

    /// The sizes of the messages of a request that is done, in the order of its `rooms`.
    pub fn sizes(&self, request: Request, rooms: usize) -> impl Iterator<Item = usize> {
        let first = (request.0 + 1).saturating_sub(rooms as u64);
        (first..=request.0).map(|number| self.requests.size(number).unwrap_or(0))
    }

    /// Moves what can be moved.
    fn progress(&mut self) -> std::result::Result<(), Failure> {
        let mut moved = self.pump_control()?;
        if self.long_under_way > 0 || self.control_ended {
            match &mut self.lane {
                Some(lane) => moved += lane.progress()?,
                None => self.shared.failure.get().map_or(Ok(()), Err)?,
            }
        }
        if moved > 0 {
            self.alarm.advance();
        }
        let ended = self.control_ended && self.shared.ended_sockets.load(Ordering::Acquire) == self.data_sockets;
        self.finish();
        // Asked after the last bytes were counted: what came before the end is complete.
        if ended && moved == 0 && self.requests.under_way() > 0 { Err(Failure::Closed) } else { Ok(()) }
    }

    fn finish(&mut self) {
        while self.requests.under_way() > 0 {
            let slot = self.shared.slot(self.requests.finished());
            let total = slot.total.load(Ordering::Acquire);
            if total == UNKNOWN || slot.arrived.load(Ordering::Acquire) < total {
                break;
            }
            self.long_under_way -= usize::from(slot.len.load(Ordering::Relaxed) > self.inline_up_to);
            self.requests.finish(total);
        }
    }

    /// Receives inline messages into their rooms; the bytes received.
    fn pump_control(&mut self) -> std::result::Result<usize, Failure> {
        let mut total = 0;
        while !self.control_ended {
            if self.landing.is_none() && self.header_received == InlineHeader::SIZE {
                let header = InlineHeader::from_bytes(&self.header);
                let Some(room) = self.shared.begin(header.message, header.len as usize, header.tag)? else { break };
                self.header_received = 0;
                self.landing = Some(Landing { room: room.number, data: room.data, missing: header.len as usize });
                self.land_spill();
                self.land(0);
                continue;
            }
            self.finish();
            if self.landing.is_none() && self.requests.under_way() == 0 {
                break;
            }
            match self.receive_control()? {
                0 => break,
                received => total += received,
            }
        }
        Ok(total)
    }

    /// Sends TCP's acknowledgement now, and goes on delaying the next ones.
    fn acknowledge(&mut self) {
        for quick in [1, 0] {
            let _ = socket::set_option(&self.control, libc::IPPROTO_TCP, libc::TCP_QUICKACK, quick);
        }
        self.unacknowledged = 0;
    }

    /// `bytes` more of the message have come.
    fn land(&mut self, bytes: usize) {
        let Some(landing) = &mut self.landing else { return };
        landing.data = landing.data.wrapping_add(bytes);
        landing.missing -= bytes;
        self.shared.arrived(landing.room, bytes);
        if landing.missing == 0 {
            self.landing = None;
            self.unacknowledged += 1;
            if self.unacknowledged >= Self::ACKNOWLEDGE_EVERY {
                self.acknowledge();
            }
        }
    }

    /// Takes what was received too early.
    fn land_spill(&mut self) {
        let Some(landing) = &self.landing else { return };
        let early = &self.spill[self.spilled..];
        let bytes = landing.missing.min(early.len());
        // SAFETY: the room has at least `missing` writable bytes and overlaps nothing of ours.
        unsafe { std::ptr::copy_nonoverlapping(early.as_ptr(), landing.data, bytes) };
        self.spilled += bytes;
        self.land(bytes);
    }

    /// One receive on the control socket, or from what was received too early; the bytes of it, 0 when there are none.
    fn receive_control(&mut self) -> std::result::Result<usize, Failure> {
        if self.landing.is_none() && self.spilled < self.spill.len() {
            let missing = &mut self.header[self.header_received..];
            let bytes = missing.len().min(self.spill.len() - self.spilled);
            missing[..bytes].copy_from_slice(&self.spill[self.spilled..self.spilled + bytes]);
            self.header_received += bytes;
            self.spilled += bytes;
            return Ok(bytes);
        }
        let expected = self.expected();
        let mut parts = match &self.landing {
            Some(landing) => [socket::part(landing.data, landing.missing), socket::part(std::ptr::null(), 0)],
            None => {
                let header = &mut self.header[self.header_received..];
                let (room, len) = expected.map_or((std::ptr::null_mut(), 0), |(_, room, len)| (room, len));
                [socket::part(header.as_mut_ptr(), header.len()), socket::part(room, len)]
            }
        };
        // SAFETY: the header is ours; rooms are writable by the promise of `irecv`, and only the control socket brings them.
        let received = match unsafe { socket::receive(&self.control, &mut parts) }? {
            Received::Bytes(received) => received,
            Received::Nothing => {
                if self.unacknowledged >= Self::ACKNOWLEDGE_IDLE {
                    self.acknowledge();
                }
                return Ok(0);
            }
            Received::Ended if self.landing.is_some() || self.header_received > 0 => return Err(Failure::Closed),
            Received::Ended => {
                self.control_ended = true;
                return Ok(0);
            }
        };
        if self.landing.is_some() {
            self.land(received);
        } else {
            let of_header = received.min(InlineHeader::SIZE - self.header_received);
            self.header_received += of_header;
            if let (Some((message, room, _)), true) = (expected, received > of_header) {
                self.begin_expected(message, room, received - of_header)?;
            }
        }
        Ok(received)
    }

    /// The next message of the control socket, its room and length, where it is certain which it is: a short room at the
    /// head of the line, posted alone, is filled by nothing else. Its payload is then received in one call with the header.
    fn expected(&self) -> Option<(u64, *mut u8, usize)> {
        let message = self.requests.finished();
        if message >= self.requests.posted() {
            return None;
        }
        let slot = self.shared.slot(message);
        let len = slot.len.load(Ordering::Relaxed);
        let alone = slot.group.load(Ordering::Relaxed) == 1;
        (alone && len <= self.inline_up_to && slot.total.load(Ordering::Relaxed) == UNKNOWN)
            .then(|| (message, slot.room.load(Ordering::Relaxed), len))
    }

    /// A header and `bytes` after it have come, the latter into the room of the expected message.
    fn begin_expected(&mut self, message: u64, room: *mut u8, bytes: usize) -> std::result::Result<(), Failure> {
        let header = InlineHeader::from_bytes(&self.header);
        if header.message != message {
            return Err(Failure::Protocol(format!("message {} where message {message} was expected", header.message)));
        }
        self.shared.begin(message, header.len as usize, header.tag)?;
        let len = (header.len as usize).min(bytes);
        if bytes > len {
            // SAFETY: the kernel has just written these bytes of the posted room.
            let early = unsafe { std::slice::from_raw_parts(room.wrapping_add(len), bytes - len) };
            self.spill.clear();
            self.spill.extend_from_slice(early);
            self.spilled = 0;
        }
        self.header_received = 0;
        self.landing = Some(Landing { room: message, data: room, missing: header.len as usize });
        self.land(len);
        self.finish();
        Ok(())
    }
}

fn check_group(rooms: &[GroupedRoom]) -> Result<()> {
    let wrong = |why: String| Err(crate::Error::Config(format!("receives posted together: {why}")));
    if rooms.is_empty() || rooms.len() > MOST_GROUPED {
        return wrong(format!("{} of them; 1 to {MOST_GROUPED} are possible", rooms.len()));
    }
    let repeated = rooms.iter().enumerate().find(|(at, room)| rooms[..*at].iter().any(|other| other.tag == room.tag));
    repeated.map_or(Ok(()), |(_, room)| wrong(format!("two have the tag {}", room.tag)))
}

impl Receiver for RecvComm {
    unsafe fn irecv(&mut self, room: *mut u8, len: usize, tag: u32) -> Result<Option<Request>> {
        // SAFETY: the caller's promise.
        unsafe { self.irecv_group(&[GroupedRoom { data: room, len, tag }]) }
    }

    fn test(&mut self, request: Request) -> Result<Option<usize>> {
        if let Some(size) = self.requests.size(request.0) {
            return Ok(Some(size));
        }
        if let Err(failure) = self.progress() {
            let error = failure.error(&self.peer);
            self.shared.failure.set(failure);
            return Err(error);
        }
        Ok(self.requests.size(request.0))
    }
}
