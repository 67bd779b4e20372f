//! Collective algorithms and reductions over `busbw-transport`.

pub mod algorithms;
pub mod communicator;
mod connections;
pub mod host;
mod links;
mod mesh;
mod operation;
pub mod reduction;
mod subset;

pub use operation::Operation;
