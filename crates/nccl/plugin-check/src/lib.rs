//! NCCL's plugins, networks, tuners and profilers, loaded without NCCL and without a GPU: what they offer, whether they keep NCCL's rules, and what they
//! reach beside each other.
//!
//! A plugin is a foreign library that may crash, hang or print. So it is only ever loaded by a [`subprocess`],
//! started for one test and ended with it. The ranks of the [`job`] stand at both ends: each starts a subprocess, they pass on
//! what these send each other, and tell apart a plugin that answers from one that does not (`harness`).
//!
//! What is asked of a plugin follows from how NCCL uses it (`src/transport/net.cc`, `src/proxy.cc`) and from the text that
//! NCCL ships for authors of plugins (`plugins/net/README.md`, 2.30).

pub mod job;
pub mod subprocess;

mod api;
mod case;
mod harness;
mod measure;
mod rules;
mod surroundings;
mod verdict;
mod wire;

pub use busbw_launch::{Error, Result};
pub use job::{Call, Candidate, Plan, Progress};
pub use rules::rule_names;
