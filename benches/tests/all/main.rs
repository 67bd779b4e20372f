//! What the benchmarks stand on: predictions held against published tables, and logs that are made.

mod accuracy;
mod nccl_log;
