//! Shared memory between ranks of one host.
//!
//! A [`Group`] is the ranks of one host. Each rank allocates [`Buffer`]s, anonymous memory files that its peers map when an
//! operation first names them; nothing has a name in a file system, so nothing is left behind. [`Group::connect`] gives the
//! non-blocking interface of [`crate::transport`] between two ranks: small messages go through slots, large ones are copied
//! once. Ranks may be processes or threads of one process.

mod available;
mod channel;
mod control;
mod cross;
#[cfg(fuzzing)]
pub mod fuzzing;
mod group;
mod join;
mod link;
mod memory;
mod preferred_core;
mod receiver;
mod sender;
mod socket;
#[cfg(test)]
mod tests;
mod threads;
mod watch;
mod windows;

pub use group::{Board, Group};
pub use memory::Mapping;
pub use receiver::RecvComm;
pub use sender::SendComm;
pub use threads::ThreadExchange;
pub use windows::{Buffer, Named, Reached};
