//! Which settings are best on the real workload, and how runs differ.
//!
//! [`compare`] holds runs of one test against each other.

pub mod compare;
pub mod statistics;
