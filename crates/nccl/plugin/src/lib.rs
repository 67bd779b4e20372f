//! `libnccl-net-busbw.so`: NCCL's network plugin over `busbw_transport::tcp`, found by `NCCL_NET_PLUGIN=busbw`, its tuner and its
//! profiler, which NCCL looks for in the same library.
//!
//! NCCL knows seven forms of the network's interface (`ncclNetPlugin_v6` to `_v12`). The functions of each (`tables`) are thin
//! (`shims`): they check what came over the border and call the one `Engine`, its contexts and
//! connections. Nothing that happens here leaves as a panic (`border`).

mod border;
mod connection;
mod context;
mod device;
mod engine;
mod log;
mod messages;
mod profiler;
mod settings;
mod shims;
mod tables;
mod tuner;
