//! The plugin as NCCL finds it: played by a program in C and by processes of this one, on networks that fail.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

/// Starts processes: `make test`.
mod here {
    mod c_program;
    mod faults;
    mod profiler;
    mod tuner;
}

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/plugin.rs"]
mod plugin;
#[path = "../../../../../tests/support/recorder.rs"]
mod recorder;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../../tests/support/skip.rs"]
mod skip;
mod support;
