//! NCCL's net plugins, loaded without NCCL and without a GPU: what they offer, whether they keep NCCL's rules, and what they
//! reach beside each other.
//!
//! A plugin is a foreign library that may crash, hang or print. So it is only ever loaded by an [`actor`]: a process of its
//! own, started for one task and ended with it. The ranks of the [`job`] stand at both ends: each directs an actor, they
//! exchange the actors' words, and tell apart a plugin that answers from one that does not (`stage`).
//!
//! What is asked of a plugin follows from how NCCL uses it (`src/transport/net.cc`, `src/proxy.cc`) and from the text that
//! NCCL ships for authors of plugins (`plugins/net/README.md`, 2.30).

pub mod actor;
pub mod job;

mod api;
mod error;
mod measure;
mod rules;
mod stage;
mod wire;

pub use error::{Error, Result};
pub use job::{Call, Candidate, Ended, Plan, Progress};
pub use rules::rule_names;
