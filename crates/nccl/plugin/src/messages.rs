//! The network's own events for our own profiler: NCCL says to which step a message belongs (`ncclProfilerCallback`,
//! `src/plugin/profiler.cc`, 2.30.7).

use crate::profiler;
use busbw_nccl_abi::net::ProfilerCallback;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::RwLock;

/// The number of a network plugin's events: who, and which version of what comes with them. NCCL's own are 1 and 2.
pub(crate) const PLUGIN: i64 = 0xb5 << 16 | 1;
/// `ncclProfilerNetEventStart` and `ncclProfilerNetEventStop` (`src/include/nccl_common.h`).
const START: c_int = 0;
const STOP: c_int = 1;

/// What comes with the beginning.
#[repr(C)]
pub(crate) struct Message {
    pub bytes: u64,
}

/// What NCCL handed to the network's `init`: one for the process.
static CALLBACK: RwLock<ProfilerCallback> = RwLock::new(None);

/// Takes the callback of an `init`.
pub(crate) fn set(callback: ProfilerCallback) {
    if callback.is_some() {
        *CALLBACK.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = callback;
    }
}

/// NCCL's handle of a message's event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event(*mut c_void);

// SAFETY: a handle is a number of our profiler's, which nobody follows.
unsafe impl Send for Event {}

/// Begins the event of a message; `None` where nobody reads events, or NCCL tells no step.
///
/// # Safety
/// `step` is null or what NCCL handed over with the message.
pub(crate) unsafe fn begin(step: *mut c_void, bytes: usize) -> Option<Event> {
    if step.is_null() || !profiler::is_recording() {
        return None;
    }
    let callback = (*CALLBACK.read().unwrap_or_else(|poisoned| poisoned.into_inner()))?;
    let mut message = Message { bytes: bytes as u64 };
    let mut handle = ptr::null_mut();
    // SAFETY: NCCL's callback, with NCCL's step, and data that lives for the call.
    let begun = unsafe { callback(&mut handle, START, step, PLUGIN, (&raw mut message).cast()) };
    (begun.is_success() && !handle.is_null()).then_some(Event(handle))
}

pub(crate) fn end(Event(mut handle): Event) {
    let callback = *CALLBACK.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(callback) = callback {
        // SAFETY: NCCL's callback, with a handle that it gave. An error is the profiler's own matter.
        let _ = unsafe { callback(&mut handle, STOP, ptr::null_mut(), 0, ptr::null_mut()) };
    }
}
