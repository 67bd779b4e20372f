//! Rank, size and local rank of a process, and how the processes of a job find each other.
//!
//! Three steps, each a value that is passed to the next: [`JobRank`] says who this process is, from the environment that
//! mpirun, srun, torchrun or our own [`local`] spawn leaves; [`Rendezvous`] brings the job's ranks
//! together; through its [`ProcessGroup`] a rank exchanges small things with the others, and learns who has died.
//!
//! [`hosts`] and [`command`] build the command line that starts such a job on other hosts; [`frames`] is how processes say whole
//! messages over a stream.

pub mod attendant;
pub mod command;
pub mod error;
pub mod frames;
pub mod host;
pub mod hosts;
pub mod job_rank;
pub mod launcher;
pub mod local;
pub mod process_group;
pub mod relay;
pub mod rendezvous;
pub mod silence;
pub mod start;

mod control;
mod derive;
mod describe;
mod group;
mod keyvalue;
mod secret;
mod server;
mod watch;
mod wire;

pub use derive::Words;
pub use error::{Error, NOT_APPLICABLE, Result};
pub use group::Group;
pub use job_rank::{Discovery, JobRank, Launcher};
#[cfg(fuzzing)]
pub use keyvalue::exchange;
pub use keyvalue::told_by_rank_0;
pub use process_group::ProcessGroup;
pub use rendezvous::{Rendezvous, Settings};
#[cfg(fuzzing)]
pub use server::fuzzing;
pub use start::{Invocation, Started};
pub use wire::RankInfo;

/// Looks up a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;
