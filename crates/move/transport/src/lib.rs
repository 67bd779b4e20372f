//! Bytes between ranks.
//!
//! Two transports with one interface: [`tcp`] stripes a connection over helper threads × sockets between hosts, [`shm`] carries
//! bytes between ranks of one host. Both follow the non-blocking interface of NCCL's net plugins (`ncclNet_t` in NCCL's
//! `src/include/nccl_net.h`, 2.27): listen, connect, accept, isend, irecv, test. Requests of one connection complete in the
//! order in which they were posted; those of different connections in any order.
//!
//! Nothing here knows what a collective is.

#![warn(missing_docs)] // others build on this crate

pub mod error;
pub mod handshake;
pub mod host;
pub mod interfaces;
pub mod shm;
pub mod tcp;
pub mod token;
pub mod transport;
pub mod variables;
pub mod wait;

pub use error::{Error, Result};
pub use token::Token;
pub use transport::{Exchange, Receiver, Request, Sender};
pub use wait::{Cancellation, Waiter};
