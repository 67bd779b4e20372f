//! What the library exports for NCCL's tuner, and the functions that NCCL calls, once per form.

use super::{Tuner, create, end, find, guard, possible_by_kind};
use crate::log;
use busbw_nccl_abi::tuner::{ALGORITHMS, Function, NvlDomains, PROTOCOLS, TunerV2, TunerV3, TunerV4, TunerV5, TunerV6};
use busbw_nccl_abi::{Logger, NcclResult};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

const NAME: &std::ffi::CStr = c"busbw";

/// For NCCL 2.21.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclTunerPlugin_v2: TunerV2 =
    TunerV2 { name: NAME.as_ptr(), init: Some(init), choose: Some(choose), finalize: Some(finalize) };

/// For NCCL 2.22 and 2.23.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclTunerPlugin_v3: TunerV3 =
    TunerV3 { name: NAME.as_ptr(), init: Some(init), choose: Some(choose_by_cost), finalize: Some(finalize) };

/// For NCCL 2.24 to 2.27.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclTunerPlugin_v4: TunerV4 =
    TunerV4 { name: NAME.as_ptr(), init: Some(init), choose: Some(choose_registered), finalize: Some(finalize) };

/// For NCCL 2.28 and 2.29.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclTunerPlugin_v5: TunerV5 = V5;

/// For NCCL 2.30 and newer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
pub static ncclTunerPlugin_v6: TunerV6 = TunerV6 { v5: V5, chunk_size: Some(chunk_size) };

const V5: TunerV5 = TunerV5 {
    name: NAME.as_ptr(),
    init: Some(init_with_domains),
    choose: Some(choose_registered),
    finalize: Some(finalize),
};

unsafe extern "C" fn init(ranks: usize, nodes: usize, log: Option<Logger>, context: *mut *mut c_void) -> NcclResult {
    // SAFETY: NCCL's pointer, handed on.
    unsafe { start(context, ranks, nodes, log, None) }
}

unsafe extern "C" fn init_with_domains(
    context: *mut *mut c_void,
    _communicator: u64,
    ranks: usize,
    nodes: usize,
    log: Option<Logger>,
    domains: *mut NvlDomains,
    _constants: *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL's pointers: null, or valid for this call.
    unsafe { start(context, ranks, nodes, log, domains.as_ref().copied()) }
}

/// # Safety
/// `context` is null or valid for writing.
unsafe fn start(
    context: *mut *mut c_void,
    ranks: usize,
    nodes: usize,
    log: Option<Logger>,
    domains: Option<NvlDomains>,
) -> NcclResult {
    guard(|| {
        log::set(log);
        let made = ptr::without_provenance_mut(create(ranks, nodes, domains));
        // SAFETY: the caller's promise.
        if let Some(context) = unsafe { context.as_mut() } {
            *context = made;
        }
    })
}

fn tuner(context: *mut c_void) -> Option<Arc<Tuner>> {
    find(context.addr())
}

unsafe extern "C" fn choose(
    context: *mut c_void,
    function: Function,
    bytes: usize,
    collnet: c_int,
    nvls: c_int,
    operations: c_int,
    algorithm: *mut c_int,
    protocol: *mut c_int,
    channels: *mut c_int,
) -> NcclResult {
    guard(|| {
        let Some(tuner) = tuner(context) else { return };
        let Some(operation) = tuner.operation(function, bytes, operations, false) else { return };
        let possible = possible_by_kind(operation.collective, collnet != 0, nvls != 0);
        let Some(chosen) = tuner.choose(&operation, possible) else { return };
        // SAFETY: NCCL's pointers: null, or valid for this call.
        let (algorithm, protocol) = unsafe { (algorithm.as_mut(), protocol.as_mut()) };
        let (Some(algorithm), Some(protocol)) = (algorithm, protocol) else { return };
        (*algorithm, *protocol) = (chosen.algorithm as c_int, chosen.protocol as c_int);
        // SAFETY: the same.
        unsafe { set_channels(channels, chosen.channels) };
    })
}

unsafe extern "C" fn choose_by_cost(
    context: *mut c_void,
    function: Function,
    bytes: usize,
    operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    channels: *mut c_int,
) -> NcclResult {
    // SAFETY: NCCL's pointers, handed on.
    unsafe { choose_registered(context, function, bytes, operations, costs, algorithms, protocols, 0, channels) }
}

unsafe extern "C" fn choose_registered(
    context: *mut c_void,
    function: Function,
    bytes: usize,
    operations: c_int,
    costs: *mut *mut f32,
    algorithms: c_int,
    protocols: c_int,
    registered: c_int,
    channels: *mut c_int,
) -> NcclResult {
    guard(|| {
        let Some(tuner) = tuner(context) else { return };
        let Some(operation) = tuner.operation(function, bytes, operations, registered != 0) else { return };
        let (Ok(algorithms), Ok(protocols)) = (usize::try_from(algorithms), usize::try_from(protocols)) else { return };
        // More than NCCL has is no table that we know the form of.
        if costs.is_null() || algorithms > 2 * ALGORITHMS || protocols > 2 * PROTOCOLS {
            return;
        }
        // SAFETY: NCCL hands over one array with a row of `protocols` for each of `algorithms` (`ncclGetAlgoInfo`).
        let costs = unsafe { std::slice::from_raw_parts_mut(costs.cast::<f32>(), algorithms * protocols) };
        let chosen = tuner.choose_by_cost(&operation, costs, protocols);
        // SAFETY: NCCL's pointer: null, or valid for this call.
        unsafe { set_channels(channels, chosen) };
    })
}

/// # Safety
/// `place` is null or valid for writing.
unsafe fn set_channels(place: *mut c_int, channels: Option<u32>) {
    let channels = channels.and_then(|channels| c_int::try_from(channels).ok());
    // SAFETY: the caller's promise.
    if let (Some(place), Some(channels)) = (unsafe { place.as_mut() }, channels) {
        *place = channels;
    }
}

unsafe extern "C" fn chunk_size(
    context: *mut c_void,
    function: Function,
    bytes: usize,
    algorithm: c_int,
    protocol: c_int,
    _channels: c_int,
    chunk: *mut usize,
) -> NcclResult {
    guard(|| {
        let Some(tuner) = tuner(context) else { return };
        let Some(operation) = tuner.operation(function, bytes, 1, false) else { return };
        let wanted = tuner.chunk(&operation, algorithm, protocol).and_then(|chunk| usize::try_from(chunk).ok());
        // SAFETY: NCCL's pointer: null, or valid for this call.
        if let (Some(place), Some(wanted)) = (unsafe { chunk.as_mut() }, wanted) {
            *place = wanted;
        }
    })
}

unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    guard(|| end(context.addr()))
}
