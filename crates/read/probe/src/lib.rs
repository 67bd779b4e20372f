//! What a node is, and what it does now: sysfs, procfs, and the libraries that know more.
//!
//! Everything here reads. Whether what it reads is good is decided elsewhere.

pub mod counters;
mod ethtool;
mod node;
mod program;
mod root;

pub use node::{node, node_of};
pub use program::{Ended, Program};
pub use root::Root;
