//! Side-by-side benchmarks of busbw, and the generator of the logs they read.
//!
//! `nccl-log-gen` writes a large NCCL log ([`nccl_log`]); `bench-ingest` times busbw on it beside `wc` and `rg`
//! ([`ingest`], [`measure`]); `predict-accuracy` holds predictions against published measurements ([`accuracy`]);
//! `bench-simulate` times the simulation of fabrics as they grow ([`simulate`]); `bench-peers` times `busbw bench` beside
//! MPI and Gloo ([`peers`]); `bench-net` holds net plugins against iperf3 ([`net`]); `bench-monitor` takes the processor time of watching ports ([`monitor`]); `bench-tune` races simulated
//! settings ([`tune`]). How to repeat a
//! measurement is in `benches/README.md`.

pub mod accuracy;
pub mod busy;
pub mod ingest;
pub mod lab;
pub mod machine;
pub mod measure;
pub mod monitor;
pub mod nccl_log;
pub mod net;
pub mod peers;
pub mod program;
pub mod random;
pub mod results;
pub mod simulate;
pub mod statistics;
pub mod tune;
