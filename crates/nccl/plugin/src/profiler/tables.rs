//! What the library exports for NCCL's profiler, and the functions that NCCL calls, once per form.

use super::names::{self, datatype_of_number, function_of_number, name};
use super::{Communicator, begin, begin_communicator, end, finalize as finish, guard, note_state, state};
use crate::messages::{Message, PLUGIN};
use busbw_events::{Function, Kind, What};
use busbw_model::Datatype;
use busbw_nccl_abi::profiler::*;
use busbw_nccl_abi::{Logger, NcclResult};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

const NAME: &std::ffi::CStr = c"busbw";

macro_rules! table {
    ($(#[$about:meta])* $name:ident: $version:ty, $init:ident, $record:ident) => {
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
        pub static $name: $version = Profiler {
            name: NAME.as_ptr(),
            init: Some($init),
            start: Some(start),
            stop: Some(stop),
            record_state: Some($record),
            finalize: Some(finalize),
        };
    };
}

table!(
    /// For NCCL 2.23 to 2.25.
    ncclProfiler_v1: ProfilerV1, init, record_state_alone
);
table!(
    /// For the first NCCL 2.26.
    ncclProfiler_v2: ProfilerV2, init, record_state_alone
);
table!(
    /// For NCCL 2.26.
    ncclProfiler_v3: ProfilerV3, init, record_state_alone
);
table!(
    /// For NCCL 2.27.
    ncclProfiler_v4: ProfilerV4, init_v4, record_state
);
table!(
    /// For NCCL 2.28.
    ncclProfiler_v5: ProfilerV5, init_v5, record_state
);
table!(
    /// For NCCL 2.29 and newer.
    ncclProfiler_v6: ProfilerV6, init_v5, record_state
);

unsafe extern "C" fn init(context: *mut *mut c_void, mask: *mut c_int) -> NcclResult {
    let unknown = Communicator { hash: 0, ranks: 0, nodes: 0, rank: 0 };
    // SAFETY: NCCL's pointers, handed on.
    unsafe { set_up(context, mask, &unknown, None) }
}

unsafe extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    hash: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: Option<Logger>,
) -> NcclResult {
    // SAFETY: NCCL's pointers, handed on.
    unsafe { set_up(context, mask, &Communicator { hash, ranks, nodes, rank }, log) }
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    hash: u64,
    mask: *mut c_int,
    _name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    log: Option<Logger>,
) -> NcclResult {
    // SAFETY: NCCL's pointers, handed on.
    unsafe { set_up(context, mask, &Communicator { hash, ranks, nodes, rank }, log) }
}

/// # Safety
/// Both pointers are null or valid for writing.
unsafe fn set_up(
    context: *mut *mut c_void,
    mask: *mut c_int,
    communicator: &Communicator,
    log: Option<Logger>,
) -> NcclResult {
    guard(|| {
        let (number, events) = begin_communicator(communicator, log);
        // SAFETY: the caller's promise.
        let (context, mask) = unsafe { (context.as_mut(), mask.as_mut()) };
        if let Some(context) = context {
            *context = ptr::without_provenance_mut(number as usize);
        }
        if let Some(mask) = mask {
            *mask = events;
        }
    })
}

/// What a version's events tell of themselves.
trait Tells {
    /// # Safety
    /// It is NCCL's: of this kind, with C strings that last.
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)>;
}

unsafe extern "C" fn start<K: Copy + Into<u64>, D: Tells>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *const Descriptor<K, D>,
) -> NcclResult {
    guard(|| {
        // SAFETY: NCCL's pointers: null, or valid for this call.
        let (handle, descriptor) = unsafe { (handle.as_mut(), descriptor.as_ref()) };
        let (Some(handle), Some(descriptor)) = (handle, descriptor) else { return };
        // SAFETY: the descriptor is NCCL's.
        let told = unsafe { descriptor.of.told(descriptor.kind.into(), context.addr() as u32) };
        *handle = told.map_or(ptr::null_mut(), |(kind, what)| begin(kind, descriptor.parent, what));
    })
}

unsafe extern "C" fn stop(handle: *mut c_void) -> NcclResult {
    guard(|| end(handle))
}

/// Versions 1 to 3 have nothing beside the state that is used.
unsafe extern "C" fn record_state_alone(
    handle: *mut c_void,
    number: c_int,
    _arguments: *const StateArguments,
) -> NcclResult {
    guard(|| {
        if let Some(state) = state(number) {
            note_state(handle, state, 0);
        }
    })
}

unsafe extern "C" fn record_state(handle: *mut c_void, number: c_int, arguments: *const StateArguments) -> NcclResult {
    guard(|| {
        let Some(state) = state(number) else { return };
        // SAFETY: NCCL's pointer: null, or valid for this call. Both numbers are eight bytes, and set for every state that is read.
        let value = unsafe { arguments.as_ref().map_or(0, |arguments| arguments.timer) };
        note_state(handle, state, value);
    })
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> NcclResult {
    guard(finish)
}

/// An operation, as all versions tell it.
struct Told {
    function: Option<Function>,
    datatype: Option<Datatype>,
    algorithm: u8,
    protocol: u8,
    channels: u8,
    count: usize,
}

impl Told {
    fn what(self, communicator: u32) -> Option<(Kind, What)> {
        let Told { function, datatype, algorithm, protocol, channels, count } = self;
        let (function, count) = (function?, count as u64);
        let what = What::Operation { communicator, function, datatype, algorithm, protocol, channels, count };
        Some((Kind::Operation, what))
    }

    /// # Safety
    /// The names are null or C strings that last.
    unsafe fn of_collective<T>(told: &Named<T>) -> Self {
        // SAFETY: the caller's promise.
        let [function, datatype, algorithm, protocol] =
            [told.function, told.datatype, told.algorithm, told.protocol].map(|text| unsafe { name(text) });
        Told {
            function: names::function(function),
            datatype: names::datatype(datatype),
            algorithm: names::algorithm(algorithm),
            protocol: names::protocol(protocol),
            channels: told.channels,
            count: told.count,
        }
    }

    /// # Safety
    /// As [`Told::of_collective`].
    unsafe fn without_way(function: *const c_char, datatype: *const c_char, count: usize) -> Self {
        // SAFETY: the caller's promise.
        let (function, datatype) = unsafe { (name(function), name(datatype)) };
        let (function, datatype) = (names::function(function), names::datatype(datatype));
        Told { function, datatype, algorithm: u8::MAX, protocol: u8::MAX, channels: 0, count }
    }
}

fn proxy_operation(told: &ProxyOperation) -> Option<(Kind, What)> {
    let number = |number: c_int| number.max(0).cast_unsigned();
    let what = What::ProxyOperation {
        process: number(told.process),
        channel: told.channel,
        peer: number(told.peer),
        steps: number(told.steps),
        chunk: number(told.chunk),
        sends: told.sends != 0,
    };
    Some((Kind::ProxyOperation, what))
}

fn proxy_step(step: c_int) -> Option<(Kind, What)> {
    Some((Kind::ProxyStep, What::ProxyStep { step: step.max(0).cast_unsigned() }))
}

fn kernel(channel: u8, timer_ns: u64) -> Option<(Kind, What)> {
    Some((Kind::Kernel, What::Kernel { channel, timer_ns }))
}

/// # Safety
/// The data of an event of our network is a [`Message`].
unsafe fn message(told: &NetPlugin) -> Option<(Kind, What)> {
    let own = (told.plugin == PLUGIN).then(|| told.data.cast_const().cast::<Message>());
    // SAFETY: the caller's promise; of other networks' data nothing is read.
    let bytes = own.and_then(|message| unsafe { message.as_ref() }).map_or(0, |message| message.bytes);
    Some((Kind::Message, What::Message { plugin: told.plugin.cast_unsigned(), bytes }))
}

fn call(captured: bool) -> Option<(Kind, What)> {
    Some((Kind::Call, What::Call { captured }))
}

/// # Safety
/// As [`Told::of_collective`].
unsafe fn p2p(told: &P2p, communicator: u32) -> Option<(Kind, What)> {
    // SAFETY: the caller's promise.
    unsafe { Told::without_way(told.function, told.datatype, told.count) }.what(communicator)
}

impl Tells for OfV1 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind.
        unsafe {
            match kind {
                kinds::COLLECTIVE => {
                    let CollectiveV1 { function, datatype, algorithm, protocol, channels, count, .. } = self.collective;
                    let (function, datatype) = (function_of_number(function), datatype_of_number(datatype));
                    Told { function, datatype, algorithm, protocol, channels, count }.what(communicator)
                }
                kinds::P2P => {
                    let P2pV1 { function, datatype, count, .. } = self.p2p;
                    let (function, datatype) = (function_of_number(function), datatype_of_number(datatype));
                    Told { function, datatype, algorithm: u8::MAX, protocol: u8::MAX, channels: 0, count }
                        .what(communicator)
                }
                kinds::PROXY_OPERATION => proxy_operation(&self.proxy_operation),
                kinds::PROXY_STEP => proxy_step(self.proxy_step),
                _ => None,
            }
        }
    }
}

impl Tells for OfV2 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind.
        unsafe {
            match kind {
                kinds::COLLECTIVE => Told::of_collective(&self.collective.what).what(communicator),
                kinds::P2P => p2p(&self.p2p.what, communicator),
                kinds::PROXY_OPERATION => proxy_operation(&self.proxy_operation),
                kinds::PROXY_STEP => proxy_step(self.proxy_step),
                _ => None,
            }
        }
    }
}

impl Tells for OfV3 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind.
        unsafe {
            match kind {
                kinds::COLLECTIVE => Told::of_collective(&self.collective.what).what(communicator),
                kinds::P2P => p2p(&self.p2p.what, communicator),
                kinds::PROXY_OPERATION => proxy_operation(&self.proxy_operation),
                kinds::PROXY_STEP => proxy_step(self.proxy_step),
                kinds::KERNEL => kernel(self.kernel, 0),
                kinds::NET_PLUGIN => message(&self.net_plugin),
                _ => None,
            }
        }
    }
}

impl Tells for OfV4 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind.
        unsafe {
            match kind {
                kinds::COLLECTIVE => Told::of_collective(&self.collective).what(communicator),
                kinds::P2P => p2p(&self.p2p, communicator),
                kinds::PROXY_OPERATION => proxy_operation(&self.proxy_operation),
                kinds::PROXY_STEP => proxy_step(self.proxy_step),
                kinds::KERNEL => kernel(self.kernel.channel, self.kernel.timer),
                kinds::NET_PLUGIN => message(&self.net_plugin),
                _ => None,
            }
        }
    }
}

impl Tells for OfV5 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind.
        unsafe {
            match kind {
                kinds::COLLECTIVE_CALL => call(self.collective_call.captured),
                kinds::P2P_CALL => call(self.p2p_call.captured),
                _ => self.v4.told(kind, communicator),
            }
        }
    }
}

impl Tells for OfV6 {
    unsafe fn told(&self, kind: u64, communicator: u32) -> Option<(Kind, What)> {
        // SAFETY: NCCL sets the member of the kind; its names are C strings that last.
        unsafe {
            match kind {
                kinds::COPY_ENGINE => {
                    let told = self.copy_engine;
                    Told::without_way(told.function, told.datatype, told.count).what(communicator)
                }
                _ => self.v5.told(kind, communicator),
            }
        }
    }
}
