//! Point-to-point bandwidth and latency between hosts: TCP with busbw's own transport, RDMA with perftest, all pairs of a list in rounds.
//!
//! The ranks of a job introduce themselves in the process group of `busbw-launch`, agree on nothing more there, and leave it: it
//! fails as a whole when one rank dies, and here the others shall go on. Rank 0 then leads every rank, itself among them,
//! over a connection each (`wire`): pairs of a round work at the same time, in a thread of rank 0 each.
//! [`judge()`] says which host or which link is slow.

mod agent;
pub mod job;
mod judge;
mod lead;
mod limit;
mod losses;
mod pair;
mod peer;
mod perftest;
mod plan;
mod rdma;
mod rounds;
mod tcp;
mod wire;

pub use busbw_launch::{Error, Result};
pub use judge::judge;
pub use lead::Progress;
pub use plan::{Choice, Plan, RdmaChoice};
pub use rounds::rounds;
