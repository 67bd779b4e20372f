//! Rank, size, local rank and the meeting point of a job.
//!
//! Three steps, each a value that is passed to the next: [`Place`] says who this process is, from the environment that
//! mpirun, srun, torchrun or our own [`local`] spawn leaves; [`Door`] is where the job's ranks meet; [`Meeting`] is one
//! rank's seat there, with which it exchanges small things and learns who has died.
//!
//! [`hosts`] and [`command`] build the command line that starts such a job on other hosts; [`frames`] is how processes say whole
//! messages over a stream.

pub mod command;
pub mod door;
pub mod error;
pub mod frames;
pub mod host;
pub mod hostlist;
pub mod hosts;
pub mod local;
pub mod meeting;
pub mod place;
pub mod silence;
pub mod start;

mod control;
mod derive;
mod group;
mod keyvalue;
mod server;
mod watch;
mod wire;
mod words;

pub use door::{Door, Settings};
pub use error::{Error, Result};
pub use group::Group;
pub use meeting::Meeting;
pub use place::{Launcher, Place, Way};
pub use start::{Began, Invocation};
pub use wire::Member;
