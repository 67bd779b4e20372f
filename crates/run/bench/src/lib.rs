//! Size sweep, warm-up, timing, checking and the nccl-tests table, over any backend.
//!
//! [`run`] is nccl-tests' benchmark: same flags ([`Flags`]), same order of measuring, same table, same JSON, same
//! exit status. Every rank calls it with a [`Backend`] of its own; only rank 0 writes, and only to the writer that it
//! is handed.

pub mod backend;
pub mod clock;
mod context;
mod error;
pub mod flags;
mod gather;
mod host_memory;
pub mod job;
pub mod json;
pub mod limit;
pub mod number;
mod plan;
pub mod repetition;
mod report;
pub mod row;
mod shape;
mod skew;
pub mod split;
pub mod statistics;
mod sweep;
pub mod table;
mod time_limit;
mod timing;
mod traffic;
pub mod verify;

pub use backend::{Backend, Combine, Device, JobBackend, Library, Memory, NicBytes};
pub use context::Context;
pub use error::{Error, Result};
pub use flags::Flags;
pub use plan::Test;
pub use shape::Shape;
pub use sweep::{Outcome, run};
pub use traffic::Traffic;
