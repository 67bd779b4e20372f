//! The functions of a network plugin, by the versions that share a form.
//!
//! All are `Option`: a plugin may leave out what NCCL does not need (`getDeviceMr`, `makeVDevice`, …).

use super::properties::{CommConfig, NetAttributes};
use crate::{Logger, NcclResult};
use std::ffi::{c_int, c_void};

/// `init` of versions 6 to 9.
pub type Init = Option<unsafe extern "C" fn(logger: Option<Logger>) -> NcclResult>;

/// `ncclProfilerCallback_t`, which a plugin may call with events of its own.
pub type ProfilerCallback = Option<
    unsafe extern "C" fn(
        event: *mut *mut c_void,
        kind: c_int,
        parent: *mut c_void,
        plugin_id: i64,
        data: *mut c_void,
    ) -> NcclResult,
>;

/// `init` of version 10.
pub type InitWithProfiler =
    Option<unsafe extern "C" fn(logger: Option<Logger>, profiler: ProfilerCallback) -> NcclResult>;

/// `init` since version 11, called for every communicator.
pub type InitContext = Option<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        communicator: u64,
        config: *const CommConfig,
        logger: Option<Logger>,
        profiler: ProfilerCallback,
    ) -> NcclResult,
>;

pub type Devices = Option<unsafe extern "C" fn(count: *mut c_int) -> NcclResult>;

/// `getProperties`, with the properties of the version.
pub type GetProperties<P> = Option<unsafe extern "C" fn(device: c_int, properties: *mut P) -> NcclResult>;

/// `listen` of versions 6 to 10. `handle` has room for [`super::HANDLE_BYTES`].
pub type Listen =
    Option<unsafe extern "C" fn(device: c_int, handle: *mut c_void, listener: *mut *mut c_void) -> NcclResult>;

/// `listen` since version 11.
pub type ListenInContext = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        device: c_int,
        handle: *mut c_void,
        listener: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `connect` of version 6: called again while it leaves null in `sender`.
pub type Connect =
    Option<unsafe extern "C" fn(device: c_int, handle: *mut c_void, sender: *mut *mut c_void) -> NcclResult>;

/// `connect` of versions 7 to 9. `offload` is for plugins with code on the GPU, and left alone by others.
pub type ConnectWithOffload = Option<
    unsafe extern "C" fn(
        device: c_int,
        handle: *mut c_void,
        sender: *mut *mut c_void,
        offload: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `connect` of version 10, with the communicator's configuration.
pub type ConnectWithConfig = Option<
    unsafe extern "C" fn(
        device: c_int,
        config: *const CommConfig,
        handle: *mut c_void,
        sender: *mut *mut c_void,
        offload: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `connect` since version 11.
pub type ConnectInContext = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        device: c_int,
        handle: *mut c_void,
        sender: *mut *mut c_void,
        offload: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `accept` of version 6: called again while it leaves null in `receiver`.
pub type Accept = Option<unsafe extern "C" fn(listener: *mut c_void, receiver: *mut *mut c_void) -> NcclResult>;

/// `accept` since version 7.
pub type AcceptWithOffload = Option<
    unsafe extern "C" fn(listener: *mut c_void, receiver: *mut *mut c_void, offload: *mut *mut c_void) -> NcclResult,
>;

/// `regMr`; `Size` is `c_int` before version 8 and `usize` since.
pub type RegisterMemory<Size> = Option<
    unsafe extern "C" fn(
        connection: *mut c_void,
        data: *mut c_void,
        size: Size,
        kind: c_int,
        registration: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `regMrDmaBuf`.
pub type RegisterDmaBuf = Option<
    unsafe extern "C" fn(
        connection: *mut c_void,
        data: *mut c_void,
        size: usize,
        kind: c_int,
        offset: u64,
        descriptor: c_int,
        registration: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `deregMr`.
pub type DeregisterMemory =
    Option<unsafe extern "C" fn(connection: *mut c_void, registration: *mut c_void) -> NcclResult>;

/// `isend` before version 10; `Size` is `c_int` before version 9 and `usize` since. Leaves null in `request` when busy.
pub type Isend<Size> = Option<
    unsafe extern "C" fn(
        sender: *mut c_void,
        data: *mut c_void,
        size: Size,
        tag: c_int,
        registration: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `isend` since version 10, with a handle for the profiler.
pub type IsendProfiled = Option<
    unsafe extern "C" fn(
        sender: *mut c_void,
        data: *mut c_void,
        size: usize,
        tag: c_int,
        registration: *mut c_void,
        profile: *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `irecv` before version 10: `n` receives in one request.
pub type Irecv<Size> = Option<
    unsafe extern "C" fn(
        receiver: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut Size,
        tags: *mut c_int,
        registrations: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `irecv` since version 10, with handles for the profiler.
pub type IrecvProfiled = Option<
    unsafe extern "C" fn(
        receiver: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut usize,
        tags: *mut c_int,
        registrations: *mut *mut c_void,
        profiles: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `iflush`: what was received is to be seen by the GPU. Null in `request` says that nothing is to be waited for.
pub type Iflush = Option<
    unsafe extern "C" fn(
        receiver: *mut c_void,
        n: c_int,
        data: *mut *mut c_void,
        sizes: *mut c_int,
        registrations: *mut *mut c_void,
        request: *mut *mut c_void,
    ) -> NcclResult,
>;

/// `test`: whether a request is done, and the bytes of each of its messages.
pub type Test = Option<unsafe extern "C" fn(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> NcclResult>;

/// `closeSend`, `closeRecv`, `closeListen`, and `finalize` of a context.
pub type Close = Option<unsafe extern "C" fn(object: *mut c_void) -> NcclResult>;

/// `getDeviceMr`, of plugins with code on the GPU.
pub type GetDeviceMemory = Option<
    unsafe extern "C" fn(connection: *mut c_void, registration: *mut c_void, on_device: *mut *mut c_void) -> NcclResult,
>;

/// `irecvConsumed`, of plugins with code on the GPU.
pub type IrecvConsumed =
    Option<unsafe extern "C" fn(receiver: *mut c_void, n: c_int, request: *mut c_void) -> NcclResult>;

/// `makeVDevice`: several devices as one. The count and numbers of devices are in `properties`.
pub type MakeVirtualDevice<V> = Option<unsafe extern "C" fn(device: *mut c_int, properties: *mut V) -> NcclResult>;

/// `setNetAttr`: what NCCL is about to do with the network.
pub type SetAttributes =
    Option<unsafe extern "C" fn(context: *mut c_void, attributes: *const NetAttributes) -> NcclResult>;
