//! What NCCL holds pointers to: listeners, connections and their requests.

use crate::border::{Failure, Result};
use crate::log;
use crate::messages::{self, Event};
use busbw_transport::tcp::{GroupedRoom, Listener, MOST_REQUESTS, RecvComm, SendComm};
use busbw_transport::{Request, Sender};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub(crate) struct Listening(Listener);

impl Listening {
    pub fn new(listener: Listener) -> Self {
        Listening(listener)
    }

    /// The next connection, if there is one; strangers that were turned away are reported in NCCL's log.
    pub fn accept(&mut self) -> Result<Option<Box<Connection>>> {
        let accepted = self.0.accept();
        self.0.strangers().lines(Instant::now()).iter().for_each(|line| log::warn(line));
        Ok(accepted?.map(|(receiver, _)| Connection::receiving(receiver)))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.strangers().end().iter().for_each(|line| log::warn(line));
    }
}

/// One end of a connection.
pub(crate) struct Connection {
    end: End,
    under_way: Vec<Option<UnderWay>>,
    free: Vec<usize>,
    /// What requests point to: never changed, so that it may be looked at while the connection is used.
    tickets: Box<[Ticket]>,
    /// Whether the log has the error that ended it.
    told: bool,
}

enum End {
    Send(SendComm),
    Receive(RecvComm),
}

/// A posted request, until `test` has said that it is done.
#[derive(Clone, Copy)]
struct UnderWay {
    request: Request,
    messages: usize,
    event: Option<Event>,
}

/// NCCL's `void* request`.
pub(crate) struct Ticket {
    connection: *const Mutex<Connection>,
    index: usize,
}

impl Ticket {
    /// Whose request it is, and which.
    pub fn parts(&self) -> (*const Mutex<Connection>, usize) {
        (self.connection, self.index)
    }
}

impl Connection {
    /// The sending end.
    pub fn sending(sender: SendComm) -> Box<Self> {
        Self::new(End::Send(sender))
    }

    fn receiving(receiver: RecvComm) -> Box<Self> {
        Self::new(End::Receive(receiver))
    }

    fn new(end: End) -> Box<Self> {
        Box::new(Connection {
            end,
            under_way: vec![None; MOST_REQUESTS],
            free: (0..MOST_REQUESTS).rev().collect(),
            tickets: Box::default(),
            told: false,
        })
    }

    pub fn into_raw(self: Box<Self>) -> *mut c_void {
        let connection = Box::into_raw(Box::new(Mutex::new(*self)));
        let tickets = (0..MOST_REQUESTS).map(|index| Ticket { connection, index }).collect();
        // SAFETY: the connection was just leaked from its box, and nobody else knows it yet.
        unsafe { &*connection }.lock().unwrap_or_else(PoisonError::into_inner).tickets = tickets;
        connection.cast()
    }

    /// Posts a send; null when there is no room for it now.
    ///
    /// # Safety
    /// As [`Sender::isend`]; `step` is null or what NCCL says that the message belongs to.
    pub unsafe fn isend(&mut self, data: *const u8, len: usize, tag: c_int, step: *mut c_void) -> Result<*mut c_void> {
        let End::Send(sender) = &mut self.end else { return Err(Failure::usage("isend on a receiving connection")) };
        if self.free.is_empty() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: NCCL keeps the bytes until the request is done. Its tags are ranks; both sides turn them into the same bits.
        let posted = unsafe { sender.isend(data, len, tag as u32) };
        // SAFETY: the caller's promise.
        self.take(posted, 1, || unsafe { messages::begin(step, len) })
    }

    /// Posts receives; null when there is no room for them now.
    ///
    /// # Safety
    /// As [`RecvComm::irecv_group`].
    pub unsafe fn irecv(&mut self, rooms: &[GroupedRoom]) -> Result<*mut c_void> {
        let End::Receive(receiver) = &mut self.end else { return Err(Failure::usage("irecv on a sending connection")) };
        if self.free.is_empty() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: NCCL keeps the rooms until the request is done.
        let posted = unsafe { receiver.irecv_group(rooms) };
        self.take(posted, rooms.len(), || None)
    }

    /// Whether a request is done, and calls `each` with the size of each of its messages if so.
    pub fn test(&mut self, index: usize, each: impl FnMut(usize)) -> Result<bool> {
        let posted = self.under_way.get(index).copied().flatten();
        let UnderWay { request, messages, event } =
            posted.ok_or_else(|| Failure::usage("test of a request that was done before"))?;
        let done = match &mut self.end {
            End::Send(sender) => sender.test(request).map(|size| size.map(|size| [size].into_iter().for_each(each))),
            End::Receive(receiver) => {
                // NCCL gives the core away after a pass in vain, which takes long on a crowded one.
                receiver
                    .test_or_rest(request)
                    .map(|size| size.map(|_| receiver.sizes(request, messages).for_each(each)))
            }
        };
        let done = done.map_err(|error| self.fail(error))?.is_some();
        if done {
            self.under_way[index] = None;
            event.into_iter().for_each(messages::end);
            self.free.push(index);
        }
        Ok(done)
    }

    /// Notes a posted request, and gives what NCCL calls it by.
    fn take(
        &mut self,
        posted: busbw_transport::Result<Option<Request>>,
        messages: usize,
        event: impl FnOnce() -> Option<Event>,
    ) -> Result<*mut c_void> {
        let Some(request) = posted.map_err(|error| self.fail(error))? else { return Ok(ptr::null_mut()) };
        let Some(index) = self.free.pop() else { return Ok(ptr::null_mut()) };
        self.under_way[index] = Some(UnderWay { request, messages, event: event() });
        Ok((&raw const self.tickets[index]).cast_mut().cast())
    }

    /// NCCL may ask again after an error; its log has it once.
    fn fail(&mut self, error: busbw_transport::Error) -> Failure {
        let failure = Failure::from(error);
        if std::mem::replace(&mut self.told, true) { failure.again() } else { failure }
    }
}
