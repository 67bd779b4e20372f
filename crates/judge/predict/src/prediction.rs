//! What a prediction says.

use crate::calibration::Calibrated;
use crate::load::Busiest;
use crate::simulation::Distribution;
use busbw_model::answer::Answer;
use busbw_model::{Algorithm, Bytes, Collective, GBps, Micros, Protocol};
use schemars::JsonSchema;
use serde::Serialize;

/// What `busbw predict --format json` prints. Sizes are bytes; times are microseconds (_us); bandwidths are GB/s, 10^9 bytes per
/// second (_gbs). No number is rounded; a number that is not finite is null. Readers must accept fields that are not described
/// here: they may be added without a new schema name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// The collective.
    pub collective: Collective,
    /// Ranks, one per GPU.
    #[serde(rename = "nranks")]
    pub ranks: usize,
    /// What was assumed, a sentence each.
    pub assumptions: Vec<String>,
    /// What tables of the machine made of the model, where they were given.
    pub calibrated: Option<Calibrated>,
    /// What the switches leave to large messages, where their wiring is described and the algorithm of the largest size is a
    /// ring or a tree.
    pub fabric: Option<FabricEffect>,
    /// Who decides how long an uneven exchange takes, where one was given.
    pub busiest: Option<Busiest>,
    /// The channels that NCCL's search finds, by the kind of algorithm: rings first.
    pub channels: Vec<Channels>,
    /// How rings cross from the first NVLink domain to the next; none where all GPUs are in one.
    pub rings: Vec<Crossing>,
    /// One row per size.
    pub rows: Vec<PredictionRow>,
}

impl Answer for Prediction {
    const SCHEMA: &'static str = "busbw.predict/1";
}

/// Channels of one kind of algorithm, as NCCL prints them (`Pattern 4, … nChannels 8, bw 48.0/48.0`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Channels {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// That the search finds.
    pub found: u32,
    /// GB/s of each between the GPUs of a domain, as NCCL counts them.
    #[serde(rename = "intra_gbs")]
    pub intra: GBps,
    /// And between domains.
    #[serde(rename = "inter_gbs")]
    pub inter: GBps,
    /// That collectives have in all (`16 coll channels`); NVLS has its own number, which is not predicted.
    pub used: Option<u32>,
}

/// The NICs by which a ring leaves one domain and enters the next, counted from 0 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Crossing {
    /// Of the first domain.
    pub leaves_by: usize,
    /// Of the next.
    pub enters_by: usize,
}

/// The busbw that the fabric allows to large messages, over hash seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct FabricEffect {
    /// Over hash seeds.
    #[serde(rename = "busbw_gbs")]
    pub busbw: Distribution,
    /// If no two flows shared a link of the fabric.
    #[serde(rename = "unshared_busbw_gbs")]
    pub unshared: GBps,
    /// Seeds that were tried.
    pub seeds: usize,
    /// The share of seeds that are as bad as the worst.
    #[schemars(range(min = 0, max = 1))]
    pub as_the_worst: f64,
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
    /// What nine of ten such machines should show: the error of the model, and the luck of the fabric's hash.
    #[serde(rename = "busbw_gbs_band")]
    pub band: (GBps, GBps),
    /// The same by the luck of the fabric's hash alone, if flows may share links.
    #[serde(rename = "busbw_gbs_over_seeds")]
    pub over_seeds: Option<(GBps, GBps)>,
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
