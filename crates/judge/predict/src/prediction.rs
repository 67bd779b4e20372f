//! What a prediction says.

use busbw_model::{Algorithm, Bytes, Collective, GBps, Micros, Protocol};
use schemars::JsonSchema;
use serde::Serialize;

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
