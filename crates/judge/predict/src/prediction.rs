//! What a prediction says.

use busbw_model::{Bytes, Collective, GBps, Micros};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// The expected table of a collective on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// The collective.
    pub collective: Collective,
    /// Ranks, one per GPU.
    #[serde(rename = "nranks")]
    pub ranks: usize,
    /// What was assumed, a sentence each.
    pub assumptions: Vec<String>,
    /// One row per size.
    pub rows: Vec<PredictionRow>,
}

/// What is expected at one size. `size` is nccl-tests' size: the whole buffer for all_gather, reduce_scatter and alltoall.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PredictionRow {
    /// Message size.
    #[serde(rename = "size_bytes")]
    #[schemars(range(min = 1))]
    pub size: Bytes,
    /// Expected time.
    #[serde(rename = "time_us")]
    pub time: Micros,
    /// size ÷ time.
    #[serde(rename = "algbw_gbs")]
    pub algbw: GBps,
    /// algbw × the collective's factor.
    #[serde(rename = "busbw_gbs")]
    pub busbw: GBps,
    /// The busbw that the hardware cannot exceed with this algorithm.
    #[serde(rename = "limit_busbw_gbs")]
    pub limit: GBps,
    /// What NCCL would choose.
    pub algorithm: Algorithm,
    /// With this protocol.
    pub protocol: Protocol,
    /// What limits it, in words: `latency of 30 hops`, `4 NICs of 50 GB/s`, `NVLink, 450 GB/s per GPU`.
    pub bottleneck: String,
}

/// NCCL's algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Algorithm {
    Tree,
    Ring,
    CollNetDirect,
    CollNetChain,
    #[serde(rename = "NVLS")]
    Nvls,
    #[serde(rename = "NVLSTree")]
    NvlsTree,
    #[serde(rename = "PAT")]
    Pat,
    /// Sends and receives (alltoall, sendrecv, gather, scatter).
    #[serde(rename = "P2P")]
    PointToPoint,
}

impl Algorithm {
    /// As NCCL's `NCCL_ALGO` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Tree => "Tree",
            Algorithm::Ring => "Ring",
            Algorithm::CollNetDirect => "CollNetDirect",
            Algorithm::CollNetChain => "CollNetChain",
            Algorithm::Nvls => "NVLS",
            Algorithm::NvlsTree => "NVLSTree",
            Algorithm::Pat => "PAT",
            Algorithm::PointToPoint => "P2P",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// NCCL's protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum Protocol {
    /// 8-byte stores with a flag each: lowest latency, half the bandwidth.
    #[serde(rename = "LL")]
    Ll,
    /// 128-byte stores with a flag each: low latency, 15/16 of the bandwidth.
    #[serde(rename = "LL128")]
    Ll128,
    /// Large chunks with one flag each: full bandwidth.
    Simple,
}

impl Protocol {
    /// As NCCL's `NCCL_PROTO` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
            Protocol::Simple => "Simple",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
