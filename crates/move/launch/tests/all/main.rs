//! Where a rank finds its place, and how ranks meet: as threads of this process, and under real launchers.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod meeting;
mod places;
mod strangers;

/// Starts processes: `make test`.
mod here {
    pub mod launchers;
    pub mod secrets;
}

/// Start a Slurm cluster, or PyTorch's torchrun: `make test-all`.
mod labs;

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/lab.rs"]
mod lab;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/process.rs"]
mod process;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/recorder.rs"]
mod recorder;
#[path = "../../../../../tests/support/script.rs"]
mod script;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/skip.rs"]
mod skip;
