//! Whether the ranks of a job still move, and who holds them up: live, from outside of the job, without a change to it.
//!
//! A [`session`] samples the ranks on this host ([`busbw_probe::processes`]), a [`Tracker`] follows them, and on trouble `capture`
//! collects what the moment shows into a [`Folder`]. Who is at fault is not judged here: `explain` answers about that folder.

#![forbid(unsafe_code)]

mod answer;
mod calls;
mod capture;
mod folder;
pub mod metrics;
mod peers;
pub mod ras;
mod screen;
pub mod session;
mod still;
mod stragglers;
#[cfg(test)]
#[path = "../../monitor/tests/all/svg.rs"]
mod svg;
pub mod text;
mod tracker;

pub use answer::{Answer, Judge, Recorder};
pub use folder::Folder;
pub use screen::{Screen, Shown};
pub use session::{Settings, WatchError};
pub use still::{Progress, Standstill};
pub use tracker::{Tracker, Trouble};
