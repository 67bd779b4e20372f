//! NCCL, the CUDA driver and NVRTC, or AMD's RCCL and HIP, opened at run time: one program runs on machines with GPUs and without.
//!
//! [`find`] says where libraries are looked for; [`cuda`] is the driver with what it gives (contexts, memory, streams,
//! kernels, graphs) as values that give it back when dropped; [`nvrtc`] compiles kernels; [`nccl`] is NCCL of 2.18 and
//! later, with what a version lacks known by name.

pub mod cuda;
mod error;
pub mod find;
pub mod nccl;
pub mod nvrtc;
mod python;

pub use error::{Error, Result};
