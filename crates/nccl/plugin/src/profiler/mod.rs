//! The profiler: what NCCL says it does goes into the process's ring (`busbw_events`), for `busbw profile` to read.
//!
//! What NCCL holds as the handle of an event is a number and never followed, so nothing is allocated, nothing is freed, and a handle
//! that comes late, twice or from another process does no harm. Nothing is ever an error to NCCL.

mod names;
mod tables;

use crate::border::caught;
use crate::log;
use busbw_events::{Kind, Source, State, What, Writer, kind_of, writer};
use busbw_nccl_abi::profiler::{kinds, states};
use busbw_nccl_abi::{Logger, NcclResult};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What NCCL is asked for. The mask is one for the process, and the last `init` of any communicator sets it (`ncclProfilerEventMask`,
/// `src/plugin/profiler.cc`): it is the same every time.
const MASK: u64 = kinds::COLLECTIVE
    | kinds::P2P
    | kinds::PROXY_OPERATION
    | kinds::PROXY_STEP
    | kinds::KERNEL
    | kinds::NET_PLUGIN
    | kinds::COLLECTIVE_CALL
    | kinds::P2P_CALL
    | kinds::COPY_ENGINE;

/// Steps whose wait for the receiver was noted: NCCL says it again each time it tries to send (`sendProxyProgress`,
/// `src/transport/net.cc`). Two steps that share a place are noted more often, which does no harm.
static WAITING: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// The process's ring, once `init` has made it: events look here, so that they need no lock.
static WRITER: AtomicPtr<Writer> = AtomicPtr::new(ptr::null_mut());

/// Where events go; `None` where nobody asked for them.
fn current() -> Option<&'static Writer> {
    // SAFETY: null, or a writer that `begin_communicator` got, which stays for good.
    unsafe { WRITER.load(Ordering::Acquire).as_ref() }
}

/// Whether events go anywhere.
pub(crate) fn is_recording() -> bool {
    current().is_some_and(Writer::is_own)
}

/// What is known of a communicator.
struct Communicator {
    hash: u64,
    ranks: c_int,
    nodes: c_int,
    rank: c_int,
}

/// Notes a communicator; its number and the mask, both 0 where nobody reads events.
fn begin_communicator(communicator: &Communicator, logger: Option<Logger>) -> (u64, c_int) {
    log::set(logger);
    let writer = match writer() {
        Ok(Some(writer)) => writer,
        Ok(None) => return (0, 0),
        Err(error) => {
            log::profiler_warn(&format!("{error}; nothing is recorded"));
            return (0, 0);
        }
    };
    let before = WRITER.swap(ptr::from_ref(writer).cast_mut(), Ordering::AcqRel);
    if before.is_null() {
        log::profiler_info(&format!("events go to {}", writer.path().display()));
    }
    let number = |number: c_int| u32::try_from(number).unwrap_or(0);
    let Communicator { hash, ranks, nodes, rank } = *communicator;
    let (ranks, nodes, rank) = (number(ranks), number(nodes), number(rank));
    let what = What::Communicator { hash, ranks, nodes, rank, source: Source::Nccl };
    (writer.begin(Kind::Communicator, 0, what), MASK as c_int)
}

/// Begins an event; its handle, null where it is not recorded.
fn begin(kind: Kind, parent: *mut c_void, what: What) -> *mut c_void {
    let writer = current().filter(|writer| writer.is_own());
    let id = writer.map_or(0, |writer| writer.begin(kind, parent.addr() as u64, what));
    ptr::without_provenance_mut(id as usize)
}

fn end(handle: *mut c_void) {
    note(handle, What::Stop);
}

fn note(handle: *mut c_void, what: What) {
    if let Some(writer) = current().filter(|_| !handle.is_null()) {
        writer.note(handle.addr() as u64, 0, what);
    }
}

/// The state that NCCL's number means; `None` for those that tell nothing here.
fn state(number: c_int) -> Option<State> {
    Some(match number {
        states::SEND_GPU_WAIT => State::SendGpu,
        states::SEND_PEER_WAIT => State::SendPeer,
        states::SEND_WAIT => State::SendNetwork,
        states::RECV_WAIT => State::ReceiveNetwork,
        states::RECV_FLUSH_WAIT => State::ReceiveFlush,
        states::RECV_GPU_WAIT => State::ReceiveGpu,
        states::KERNEL_STOP => State::KernelEnd,
        _ => return None,
    })
}

/// Notes a step's state, and the wait for the receiver once.
fn note_state(handle: *mut c_void, state: State, value: u64) {
    let id = handle.addr() as u64;
    let fits = match state {
        State::KernelEnd => kind_of(id) == Some(Kind::Kernel),
        _ => kind_of(id) == Some(Kind::ProxyStep),
    };
    if !fits {
        return;
    }
    if state == State::SendPeer {
        let place = &WAITING[(id >> 4) as usize % WAITING.len()];
        if place.swap(id, Ordering::Relaxed) == id {
            return;
        }
    }
    note(handle, What::State { state, value });
}

/// Tells once, at the end of a communicator, what was lost.
fn finalize() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let lost = current().map_or(0, Writer::lost);
    if TOLD.fetch_max(lost, Ordering::Relaxed) < lost {
        log::profiler_warn(&format!("{lost} events found no room: busbw profile does not read, or too slowly"));
    }
}

/// Calls one of the profiler's functions for C.
fn guard(call: impl FnOnce()) -> NcclResult {
    if let Err(told) = caught(call) {
        log::profiler_warn(&told);
    }
    NcclResult::SUCCESS
}
