//! NCCL's C interfaces as Rust types: what crosses the border between NCCL and a program or plugin, and nothing else.
//!
//! Layouts follow NCCL's headers (`src/nccl.h.in`, `src/include/plugin/`, as of 2.30); each type names its own.

pub mod library;
mod log;
pub mod net;
pub mod profiler;
mod result;
pub mod tuner;

pub use log::{LogLevel, Logger, Subsystems};
pub use result::NcclResult;
