//! Side-by-side benchmarks of busbw, and the generator of the logs they read.
//!
//! `nccl-log-gen` writes a large NCCL log ([`nccl_log`]); `bench-ingest` times busbw on it beside `wc` and `rg`
//! ([`ingest`], [`measure`]). How to repeat a measurement is in `benches/README.md`.

pub mod ingest;
pub mod machine;
pub mod measure;
pub mod nccl_log;
pub mod random;
pub mod statistics;
