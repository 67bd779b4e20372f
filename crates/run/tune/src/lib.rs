//! Which settings are best on the real workload, and how runs differ.
//!
//! A [`space::Space`] says what may be set; a [`race::Race`] says which setting runs next and when enough is known; trials run
//! as a [`runner::Workload`] and are kept in a [`store::Store`], from which the same command goes on after any
//! interruption; [`result`] says what came out. [`compare`] compares runs of one test.

pub mod compare;
pub mod import;
pub mod objective;
pub mod outputs;
pub mod race;
pub mod result;
pub mod runner;
pub mod script;
pub mod slurm;
pub mod space;
pub mod statistics;
pub mod store;
pub mod sweep;
pub mod tuning_table;
