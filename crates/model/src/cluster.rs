//! Nodes and what is in them, as far as the inputs show.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine that ranks ran on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Node {
    /// Host name as printed.
    pub host: String,
    /// GPUs that ranks used, by rank where known.
    pub gpus: Vec<Gpu>,
    /// NICs that NCCL listed or used.
    pub nics: Vec<Nic>,
}

/// A GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gpu {
    /// Rank in the largest communicator, where known.
    pub rank: Option<u32>,
    /// CUDA device index. Containers may show every GPU as device 0.
    pub device: Option<u32>,
    /// PCI bus id as printed (`0x0f`, `0000:0f:00`, `f000`).
    pub bus_id: Option<String>,
    /// Name: `NVIDIA H20`.
    pub name: Option<String>,
}

/// A NIC as NCCL lists it: `NET/IB : Using [0]mlx5_0:1/RoCE`, `NET/Socket : Using [0]eth0:10.0.0.1<0>`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Nic {
    /// Index that `NET/IB/N` refers to.
    pub index: Option<u32>,
    /// HCA or interface: `mlx5_0`, `eth0`.
    pub name: String,
    /// Port number of the HCA, from 1.
    pub port: Option<u32>,
    /// `IB`, `RoCE` or `Socket`.
    pub link: Option<String>,
    /// Address, of a socket interface.
    pub address: Option<String>,
}
