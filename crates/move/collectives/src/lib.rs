//! Collective algorithms and reductions over `busbw-transport`.

pub mod algorithms;
mod buffers;
pub mod communicator;
mod connections;
pub mod host;
mod links;
mod mesh;
mod operation;
mod recorded;
pub mod reduction;
mod shape;
mod subset;

pub use buffers::{Data, Room};
pub use operation::Operation;
