//! Collective algorithms and reductions over `busbw-net`.

pub mod algorithms;
pub mod communicator;
pub mod connections;
pub mod host;
pub mod links;
pub mod mesh;
pub mod operation;
pub mod reduction;
pub mod subset;

pub use operation::Operation;
