//! Text to model: nccl-tests tables, NCCL logs, topologies and RDMA tools, read from any mix of files.

#![forbid(unsafe_code)]

mod assemble;
mod clean;
mod command;
mod context;
mod cursor;
mod ends;
mod envelope;
mod evidence;
mod facts;
mod folder;
pub mod host;
mod inspector;
mod json_objects;
mod label;
mod last_lines;
mod launcher;
mod logger;
pub mod nccl_diag;
mod nccl_log;
pub mod nccl_system_dump;
pub mod nccl_tests;
pub mod nccl_tests_json;
pub mod nccl_topo_xml;
mod notes;
pub mod nvidia_smi_topo;
pub mod own;
mod packed;
mod passed_on;
pub mod perftest;
mod pipeline;
mod prefix;
mod program;
mod quoted;
pub mod ras;
pub mod rdma_check;
pub mod rdma_monitor;
mod readers;
mod recent;
mod record;
mod scan;
mod sockets;
mod source;
mod speaker;
mod stacks;
mod stated;
mod text;
pub mod torch;
mod versions;
mod wording;

pub use context::around;
pub use pipeline::{ReadOptions, read, read_bytes};
pub use source::{ReadError, Source};
pub use stated::stated_versions;
pub use text::TextLine;
