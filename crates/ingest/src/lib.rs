//! Text to model: nccl-tests tables, NCCL logs, topologies and RDMA tools, read from any mix of files.

mod text;

pub use text::TextLine;
