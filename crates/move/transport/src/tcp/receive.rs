//! The receiving end of a connection: small messages from the control socket, long ones as chunks from the data sockets.

use super::failure::Failure;
use super::helpers::Lane;
use super::receive_control::{Control, Step};
use super::receive_lane::ReceiveLane;
use super::requests::Requests;
use super::rest::{self, Entered};
use super::rooms::{GroupedRoom, ReceiveShared, check_group};
use super::send::Parts;
use super::way_back::WayBack;
use super::workers::Workers;
use super::{MOST_REQUESTS, deal};
use crate::transport::{Receiver, Request};
use crate::{Cancellation, Result};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The receiving end of a connection. Dropping it closes its sockets and ends its threads.
pub struct RecvComm {
    shared: Arc<ReceiveShared>,
    /// Where small messages come: its own control socket, then the way back, if there is one.
    controls: Vec<Control>,
    /// The way back, until it is there.
    way_back: Option<WayBack>,
    /// Small messages come by the way back, and what the control socket has still to say is that it ends.
    changed_over: bool,
    inline_up_to: usize,
    requests: Requests,
    /// Receives under way that may come over the data sockets.
    long_under_way: usize,
    /// Calls in a row in which nothing came.
    idle: u32,
    entered: Entered,
    /// Who moves the data sockets.
    workers: Workers<ReceiveLane>,
    data_sockets: usize,
    peer: String,
    address: String,
    cancel: Arc<Cancellation>,
}

impl RecvComm {
    /// While only short messages are expected, the data sockets bring nothing, and are looked at this seldom: a long message
    /// that comes instead is an error, and nobody would ever know.
    const LOOK_ANYWAY: u32 = 1024;

    pub(super) fn new(parts: Parts, inline_up_to: usize) -> Result<Self> {
        let data_sockets = parts.data.len();
        let shared = Arc::new(ReceiveShared::new(parts.checksum));
        let lanes = deal(parts.data, parts.threads.max(1))
            .into_iter()
            .map(|sockets| ReceiveLane::new(sockets, Arc::clone(&shared)))
            .collect::<Result<Vec<_>>>()?;
        let workers = Workers::new(lanes, parts.threads, parts.growth)?;
        Ok(RecvComm {
            shared,
            controls: vec![Control::new(Arc::new(parts.control), None)],
            way_back: None,
            changed_over: false,
            inline_up_to,
            requests: Requests::new(),
            long_under_way: 0,
            idle: 0,
            entered: Entered::default(),
            workers,
            data_sockets,
            peer: parts.address.clone(),
            address: parts.address,
            cancel: parts.cancel,
        })
    }

    /// Who moves its data sockets.
    #[cfg(test)]
    pub(super) fn workers(&mut self) -> &mut Workers<ReceiveLane> {
        &mut self.workers
    }

    /// Whether small messages come by the way back.
    #[cfg(test)]
    pub(super) fn has_changed_over(&self) -> bool {
        self.changed_over
    }

    /// Bytes that have come.
    #[cfg(test)]
    pub(super) fn received(&self) -> u64 {
        self.shared.received()
    }

    /// Names the peer in errors: `rank 3 on host b`. The address is added.
    pub fn set_peer_name(&mut self, name: &str) {
        self.peer = format!("{name} ({})", self.address);
    }

    /// Lets the connection that goes the other way use its control socket.
    pub fn lend(&mut self, way: &WayBack) {
        self.controls[0].lend(way);
    }

    /// Takes small messages from the control socket of the connection that goes the other way as well, once that stands.
    pub fn hear(&mut self, way: WayBack) {
        self.way_back = Some(way);
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
        let first = self.requests.posted();
        self.shared.post(first, rooms);
        let last = rooms.iter().fold(first, |_, _| self.requests.post());
        let long = rooms.iter().filter(|room| room.len > self.inline_up_to).count();
        if long > 0 {
            self.long_under_way += long;
            self.workers.wake();
        }
        Ok(Some(Request(last)))
    }

    /// The sizes of the messages of a request that is done, in the order of its `rooms`.
    pub fn sizes(&self, request: Request, rooms: usize) -> impl Iterator<Item = usize> {
        let first = (request.0 + 1).saturating_sub(rooms as u64);
        (first..=request.0).map(|number| self.requests.size(number).unwrap_or(0))
    }

    /// As [`Receiver::test`], but where others compute on this core it sleeps for a moment before it says no.
    ///
    /// For callers whom only sockets can give something to do.
    pub fn test_or_rest(&mut self, request: Request) -> Result<Option<usize>> {
        rest::asks();
        match self.test(request)? {
            None if self.rest() => self.test(request),
            answer => Ok(answer),
        }
    }

    /// Whether something happened meanwhile. What helper threads finish would not end the sleep.
    fn rest(&mut self) -> bool {
        if self.workers.have_helpers() && self.long_under_way > 0 {
            return false;
        }
        let controls = self.controls.iter().map(|control| -> &dyn AsFd { control.socket() });
        let lane = self.workers.own().map(|lane| -> &dyn AsFd { lane.epoll() });
        rest::until_ready(&mut self.entered, controls.chain(lane))
    }

    /// Moves what can be moved.
    fn progress(&mut self) -> std::result::Result<(), Failure> {
        let look_anyway = self.idle % Self::LOOK_ANYWAY == Self::LOOK_ANYWAY - 1;
        let mut moved = self.pump_controls(look_anyway)?;
        self.idle = if moved > 0 { 0 } else { self.idle.wrapping_add(1) };
        if self.long_under_way > 0 || self.controls_ended() || look_anyway {
            moved += self.workers.progress(|| self.shared.received())?;
        }
        self.shared.failure.get().map_or(Ok(()), Err)?;
        if moved > 0 {
            self.cancel.advance();
        }
        let ended = self.controls_ended() && self.shared.ended_sockets.load(Ordering::Acquire) == self.data_sockets;
        self.finish();
        // Asked after the last bytes were counted: what came before the end is complete.
        if ended && moved == 0 && self.requests.under_way() > 0 { Err(Failure::Closed) } else { Ok(()) }
    }

    fn controls_ended(&self) -> bool {
        self.controls.iter().all(Control::ended)
    }

    /// Receives inline messages from where they come; the bytes received.
    fn pump_controls(&mut self, look_anyway: bool) -> std::result::Result<usize, Failure> {
        if let Some(socket) = self.way_back.as_ref().and_then(WayBack::socket) {
            self.controls.push(Control::new(socket, self.way_back.take()));
            self.entered = Entered::default();
        }
        let mut moved = 0;
        if !self.changed_over || look_anyway || self.controls[1].ended() {
            moved += self.pump_control(0)?;
        }
        if self.controls.len() > 1 {
            let back = self.pump_control(1)?;
            self.changed_over |= back > 0;
            moved += back;
        }
        Ok(moved)
    }

    fn finish(&mut self) {
        while self.requests.under_way() > 0
            && let Some((size, room)) = self.shared.complete(self.requests.finished())
        {
            self.long_under_way -= usize::from(room > self.inline_up_to);
            self.requests.finish(size);
        }
    }

    /// Receives inline messages of one control socket into their rooms; the bytes received.
    fn pump_control(&mut self, which: usize) -> std::result::Result<usize, Failure> {
        let mut total = 0;
        loop {
            if self.controls[which].reads_next() {
                self.finish();
                // Nobody waits for more.
                if self.requests.under_way() == 0 || (total > 0 && self.controls[which].owes()) {
                    return Ok(total);
                }
            }
            match self.controls[which].step(&self.shared)? {
                Step::Moved(moved) => total += moved,
                Step::Nothing => return Ok(total),
            }
        }
    }
}

impl Receiver for RecvComm {
    unsafe fn irecv(&mut self, room: *mut u8, len: usize, tag: u32) -> Result<Option<Request>> {
        // SAFETY: the caller keeps the room until the request is done.
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
