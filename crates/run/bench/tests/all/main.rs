//! The benchmark from flags to table and JSON, over ranks that are threads of the test.

#![allow(clippy::unwrap_used)]

mod output;
mod schema;
mod sweeps;
mod threads;
