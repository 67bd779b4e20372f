//! Text to model: nccl-tests tables, NCCL logs, topologies and RDMA tools, read from any mix of files.

mod assemble;
mod clean;
mod command;
mod cursor;
mod facts;
mod launcher;
mod nccl_log;
pub mod nccl_system_dump;
pub mod nccl_tests;
pub mod nccl_tests_json;
pub mod nccl_topo_xml;
pub mod nvidia_smi_topo;
mod outcome;
pub mod perftest;
mod pipeline;
mod prefix;
pub mod rdma_check;
pub mod rdma_monitor;
mod readers;
mod scan;
mod source;
mod text;

pub use pipeline::{ReadOptions, read, read_bytes};
pub use source::{ReadError, Source};
pub use text::TextLine;
