//! What a job's collectives cost.
//!
//! The job's processes write events into rings ([`busbw_events`]). An [`Agent`] empties these while the job runs; a [`Ledger`] makes
//! operations of the events, of which a [`Report`] adds up what they cost, compares the ranks ([`rounds`](Report), [`judge`]) and keeps
//! a [`Trace`]. [`merge()`] puts the traces of several hosts together.

#![forbid(unsafe_code)]

mod agent;
mod attached;
mod classify;
mod clocks;
mod ledger;
mod merge;
mod report;
mod rounds;
mod spans;
mod tally;
mod trace;

pub use agent::{Agent, AgentError};
pub use attached::AttachError;
pub use classify::{Part, Verdict, judge};
pub use ledger::{Communicator, Ledger, Operation, Steps};
pub use merge::{MergeError, merge};
pub use report::{Recorded, Recording, Report};
pub use trace::Trace;

/// What names the folder of the rings.
pub use busbw_events::VARIABLE;
