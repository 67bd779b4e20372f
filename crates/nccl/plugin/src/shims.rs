//! The functions that NCCL calls: each checks its arguments and hands on. Those that differ between versions of the interface
//! in an argument or two are here once per form.
//!
//! NCCL calls the functions of one connection from one thread at a time, and those of different ones at once. Of what it
//! holds pointers to, only shared references are made: a call that overlaps another of the same connection is refused.

use crate::border::{Failure, Result, guard};
use crate::connection::{Connection, Listening, Ticket};
use crate::context::Context;
use crate::device::Device;
use crate::engine::Engine;
use crate::{log, messages};
use busbw_nccl_abi::net::{CommConfig, HANDLE_BYTES, MOST_GROUPED, PTR_HOST, ProfilerCallback};
use busbw_nccl_abi::{Logger, NcclResult};
use busbw_transport::tcp::GroupedRoom;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A size as a version of the interface has it: `int` or `size_t`.
pub(crate) trait Size: Copy {
    /// `None` for a negative one.
    fn bytes(self) -> Option<usize>;
}

impl Size for c_int {
    fn bytes(self) -> Option<usize> {
        usize::try_from(self).ok()
    }
}

impl Size for usize {
    fn bytes(self) -> Option<usize> {
        Some(self)
    }
}

fn size(size: impl Size) -> Result<usize> {
    size.bytes().ok_or_else(|| Failure::usage("a negative size"))
}

/// A place for an answer, or an error that says which is missing.
///
/// # Safety
/// The pointer is null or valid for writing, and NCCL leaves the place alone until the call returns.
unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::usage(format!("{name} is null")))
}

/// What NCCL was given a pointer to: a context, which several connections use at once, a listener, a connection.
///
/// # Safety
/// The pointer is null or one that was handed to NCCL as a `T`, and was not closed.
unsafe fn object<'a, T>(pointer: *mut c_void, name: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise; nothing ever makes more than shared references of it.
    unsafe { pointer.cast_const().cast::<T>().as_ref() }.ok_or_else(|| Failure::usage(format!("{name} is null")))
}

/// A listener or connection for this call, which nobody else may be in.
fn alone<T>(object: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match object.try_lock() {
        Ok(object) => Ok(object),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure::usage("two threads use a connection or a listener at once")),
    }
}

pub(crate) unsafe extern "C" fn init(logger: Option<Logger>) -> NcclResult {
    guard(|| {
        log::set(logger);
        Engine::start().map(drop)
    })
}

pub(crate) unsafe extern "C" fn init_with_profiler(logger: Option<Logger>, profiler: ProfilerCallback) -> NcclResult {
    messages::set(profiler);
    // SAFETY: the same promise.
    unsafe { init(logger) }
}

pub(crate) unsafe extern "C" fn init_context(
    place_of_context: *mut *mut c_void,
    _communicator: u64,
    config: *const CommConfig,
    logger: Option<Logger>,
    profiler: ProfilerCallback,
) -> NcclResult {
    guard(|| {
        log::set(logger);
        messages::set(profiler);
        // SAFETY: NCCL hands a place for the context, and a configuration or null.
        let (place, config) = unsafe { (place(place_of_context, "the context")?, config.as_ref()) };
        *place = Box::into_raw(Box::new(Context::new(Engine::start()?, config))).cast();
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    // SAFETY: a context of `init_context`, which NCCL does not use any more.
    unsafe { close::<Context>(context) }
}

pub(crate) unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    guard(|| {
        // SAFETY: NCCL hands a place for the count.
        *unsafe { place(count, "the count of devices") }? = Engine::get()?.devices() as c_int;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn properties<P: for<'a> From<&'a Device>>(
    device: c_int,
    properties: *mut P,
) -> NcclResult {
    guard(|| {
        if properties.is_null() {
            return Err(Failure::usage("the properties are null"));
        }
        let engine = Engine::get()?;
        // SAFETY: room for the properties of this version, of which nothing was written yet.
        unsafe { properties.write(P::from(engine.device(device)?.1)) };
        Ok(())
    })
}

/// # Safety
/// `handle` has room for [`HANDLE_BYTES`].
unsafe fn listen_with(context: &Context, device: c_int, handle: *mut c_void, listener: *mut *mut c_void) -> Result<()> {
    // SAFETY: NCCL hands a place for each.
    let (handle, listener) =
        unsafe { (place(handle.cast::<[u8; HANDLE_BYTES]>(), "the handle")?, place(listener, "the listener")?) };
    let (listening, bytes) = context.listen(device)?;
    *handle = bytes;
    *listener = Box::into_raw(Box::new(Mutex::new(listening))).cast();
    Ok(())
}

pub(crate) unsafe extern "C" fn listen(device: c_int, handle: *mut c_void, listener: *mut *mut c_void) -> NcclResult {
    // SAFETY: NCCL's handle has the room.
    guard(|| unsafe { listen_with(&Context::new(Engine::get()?, None), device, handle, listener) })
}

pub(crate) unsafe extern "C" fn listen_in_context(
    opaque: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: a context of `init_context`; NCCL's handle has the room.
        unsafe { listen_with(object(opaque, "the context")?, device, handle, listener) }
    })
}

/// # Safety
/// `handle` has [`HANDLE_BYTES`] readable bytes.
unsafe fn connect_with(context: &Context, device: c_int, handle: *mut c_void, sender: *mut *mut c_void) -> Result<()> {
    // SAFETY: NCCL hands a handle, and a place for the sender.
    let (handle, sender) =
        unsafe { (object::<[u8; HANDLE_BYTES]>(handle, "the handle")?, place(sender, "the sender")?) };
    *sender = ptr::null_mut();
    *sender = context.connect(device, handle)?.map_or(ptr::null_mut(), Connection::into_raw);
    Ok(())
}

pub(crate) unsafe extern "C" fn connect(device: c_int, handle: *mut c_void, sender: *mut *mut c_void) -> NcclResult {
    // SAFETY: NCCL's handle has the bytes.
    guard(|| unsafe { connect_with(&Context::new(Engine::get()?, None), device, handle, sender) })
}

pub(crate) unsafe extern "C" fn connect_with_offload(
    device: c_int,
    handle: *mut c_void,
    sender: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same promise.
    unsafe { connect(device, handle, sender) }
}

pub(crate) unsafe extern "C" fn connect_with_config(
    device: c_int,
    config: *const CommConfig,
    handle: *mut c_void,
    sender: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: NCCL hands a configuration or null, and a handle that has the bytes.
        unsafe { connect_with(&Context::new(Engine::get()?, config.as_ref()), device, handle, sender) }
    })
}

pub(crate) unsafe extern "C" fn connect_in_context(
    opaque: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    sender: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: a context of `init_context`; NCCL's handle has the bytes.
        unsafe { connect_with(object(opaque, "the context")?, device, handle, sender) }
    })
}

pub(crate) unsafe extern "C" fn accept(listener: *mut c_void, receiver: *mut *mut c_void) -> NcclResult {
    guard(|| {
        // SAFETY: a listener of `listen`, and a place for the receiver.
        let (listener, receiver) =
            unsafe { (object::<Mutex<Listening>>(listener, "the listener")?, place(receiver, "the receiver")?) };
        *receiver = ptr::null_mut();
        *receiver = alone(listener)?.accept()?.map_or(ptr::null_mut(), Connection::into_raw);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn accept_with_offload(
    listener: *mut c_void,
    receiver: *mut *mut c_void,
    _offload: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same promise.
    unsafe { accept(listener, receiver) }
}

/// There is nothing to register: the kernel reads and writes the host's memory where it is.
pub(crate) unsafe extern "C" fn register<S: Size>(
    _connection: *mut c_void,
    _data: *mut c_void,
    _size: S,
    kind: c_int,
    registration: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        if kind != PTR_HOST {
            return Err(Failure::usage(format!("memory of kind {kind} cannot be sent from; only the host's can")));
        }
        // SAFETY: NCCL hands a place for the registration.
        *unsafe { place(registration, "the registration") }? = ptr::null_mut();
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn deregister(_connection: *mut c_void, _registration: *mut c_void) -> NcclResult {
    NcclResult::SUCCESS
}

pub(crate) unsafe extern "C" fn isend<S: Size>(
    sender: *mut c_void,
    data: *mut c_void,
    len: S,
    tag: c_int,
    registration: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same promise.
    unsafe { isend_of_step(sender, data, len, tag, registration, ptr::null_mut(), request) }
}

pub(crate) unsafe extern "C" fn isend_profiled(
    sender: *mut c_void,
    data: *mut c_void,
    len: usize,
    tag: c_int,
    registration: *mut c_void,
    step: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same promise.
    unsafe { isend_of_step(sender, data, len, tag, registration, step, request) }
}

/// # Safety
/// As NCCL calls `isend`; `step` is null or NCCL's.
unsafe fn isend_of_step<S: Size>(
    sender: *mut c_void,
    data: *mut c_void,
    len: S,
    tag: c_int,
    _registration: *mut c_void,
    step: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: a connection of `connect`, and a place for the request.
        let (sender, request) =
            unsafe { (object::<Mutex<Connection>>(sender, "the sender")?, place(request, "the request")?) };
        *request = ptr::null_mut();
        // SAFETY: NCCL leaves the bytes alone until the request is done.
        *request = unsafe { alone(sender)?.isend(data.cast_const().cast(), size(len)?, tag, step) }?;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn irecv<S: Size>(
    receiver: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut S,
    tags: *mut c_int,
    _registrations: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: a connection of `accept`, and a place for the request, whose mark (`OPTIONAL_RECV_COMPLETION`) only
        // allows to be done early: the receiver here is done when the bytes are there.
        let (receiver, request) =
            unsafe { (object::<Mutex<Connection>>(receiver, "the receiver")?, place(request, "the request")?) };
        *request = ptr::null_mut();
        let n = usize::try_from(n).ok().filter(|n| (1..=MOST_GROUPED).contains(n));
        let n = n.ok_or_else(|| Failure::usage(format!("1 to {MOST_GROUPED} receives are possible in one call")))?;
        if data.is_null() || sizes.is_null() || tags.is_null() {
            return Err(Failure::usage("irecv without addresses, sizes or tags"));
        }
        let mut rooms = [GroupedRoom { data: ptr::null_mut(), len: 0, tag: 0 }; MOST_GROUPED];
        for (i, room) in rooms[..n].iter_mut().enumerate() {
            // SAFETY: NCCL hands `n` of each.
            let (data, len, tag) = unsafe { (*data.add(i), *sizes.add(i), *tags.add(i)) };
            *room = GroupedRoom { data: data.cast(), len: size(len)?, tag: tag as u32 };
        }
        // SAFETY: NCCL leaves the rooms alone until the request is done.
        *request = unsafe { alone(receiver)?.irecv(&rooms[..n]) }?;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn irecv_profiled(
    receiver: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    registrations: *mut *mut c_void,
    _profiles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same promise.
    unsafe { irecv(receiver, n, data, sizes, tags, registrations, request) }
}

/// What is received lies in the host's memory, which a GPU needs no flush to see.
pub(crate) unsafe extern "C" fn iflush(
    _receiver: *mut c_void,
    _n: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _registrations: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard(|| {
        // SAFETY: NCCL hands a place for the request.
        *unsafe { place(request, "the request") }? = ptr::null_mut();
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> NcclResult {
    guard(|| {
        // SAFETY: NCCL hands a place for the answer.
        let done = unsafe { place(done, "the answer") }?;
        *done = 0;
        // SAFETY: a request of `isend` or `irecv`, which point to tickets that live as long as their connection.
        let ticket = unsafe { request.cast_const().cast::<Ticket>().as_ref() };
        let (connection, index) = ticket.ok_or_else(|| Failure::usage("test without a request"))?.parts();
        let mut place = sizes;
        let each = |size: usize| {
            if !place.is_null() {
                // SAFETY: NCCL hands room for as many sizes as the request has messages.
                unsafe { place.write(c_int::try_from(size).unwrap_or(c_int::MAX)) };
                place = place.wrapping_add(1);
            }
        };
        // SAFETY: the ticket's connection is open.
        *done = c_int::from(alone(unsafe { &*connection })?.test(index, each)?);
        Ok(())
    })
}

/// # Safety
/// The object was made by `Box::into_raw`, as a `T`, and is not used again.
unsafe fn close<T>(object: *mut c_void) -> NcclResult {
    guard(|| {
        if !object.is_null() {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(object.cast::<T>()) });
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn close_connection(connection: *mut c_void) -> NcclResult {
    // SAFETY: a connection of `connect` or `accept`, which NCCL does not use any more.
    unsafe { close::<Mutex<Connection>>(connection) }
}

pub(crate) unsafe extern "C" fn close_listen(listener: *mut c_void) -> NcclResult {
    // SAFETY: a listener of `listen`, which NCCL does not use any more.
    unsafe { close::<Mutex<Listening>>(listener) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_object_that_overlap_are_refused() {
        let object = Mutex::new(0);
        let first = alone(&object).unwrap();
        assert!(alone(&object).is_err());
        drop(first);
        assert!(alone(&object).is_ok());
    }

    #[test]
    fn what_is_missing_is_named() {
        // SAFETY: null is allowed.
        let (context, answer) =
            unsafe { (object::<u8>(ptr::null_mut(), "it").err(), place::<u8>(ptr::null_mut(), "it").err()) };
        assert!(context.is_some() && answer.is_some());
    }
}
