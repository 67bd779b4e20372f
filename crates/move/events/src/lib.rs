//! What a rank does, written down as it happens: NCCL's profiler plugin, the embedded engine and Python write events into a ring
//! in shared memory, one per process; `busbw profile` reads them from outside.
//!
//! An event costs its writer no lock, no allocation and no system call. A ring that is full counts what it loses.

mod process;
mod reader;
mod record;
mod ring;

pub use process::{ATTACH, VARIABLE, Writer, writer};
pub use reader::{Drained, Memory, Reader};
pub use record::{Function, Kind, Record, Source, State, What, kind_of};
pub use ring::CAPACITY;

use busbw_model::{Algorithm, Protocol};

/// The number of an algorithm in an event: NCCL's own.
pub fn algorithm(code: u8) -> Option<Algorithm> {
    Algorithm::ALL.get(usize::from(code)).copied()
}

/// The number of a protocol in an event: NCCL's own.
pub fn protocol(code: u8) -> Option<Protocol> {
    Protocol::ALL.get(usize::from(code)).copied()
}
