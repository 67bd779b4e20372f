//! What a job's collectives cost.
//!
//! The job's processes write events into rings ([`busbw_events`]). An [`Agent`] empties these while the job runs; a [`Ledger`] makes
//! operations of the events, of which a [`Report`] adds up what they cost, compares the ranks ([`rounds`](Report), [`judge`]) and keeps
//! a [`Trace`].

#![forbid(unsafe_code)]

mod agent;
mod classify;
mod ledger;
mod report;
mod rounds;
mod spans;
mod tally;
mod trace;

pub use agent::{Agent, Collected};
pub use classify::{Part, Verdict, judge};
pub use ledger::{Communicator, Ledger, Operation, Steps};
pub use report::{Recorded, Recording, Report};
pub use trace::Trace;

/// What names the folder of the rings.
pub use busbw_events::VARIABLE;
