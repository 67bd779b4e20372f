//! What a node is, and what it does now: sysfs, procfs, and the libraries that know more.
//!
//! Everything here reads. Whether what it reads is good is decided elsewhere.

pub mod counters;
mod ethtool;
mod netlink;
mod node;
pub mod processes;
mod program;
mod root;
#[cfg(test)]
#[path = "../../../../tests/support/script.rs"]
mod script;

pub use node::{node, node_of, quality_of_service};
pub use program::{Ended, Program, Started};
pub use root::Root;
