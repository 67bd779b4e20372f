//! What is measured at one size: the row of the table and the result of the JSON.

use crate::plan::Test;
use crate::statistics::Iterations;
use busbw_model::Skew;

/// One size, out of place and in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Bytes of the larger buffer.
    pub size: usize,
    /// Elements, as the collective counts them.
    pub count: usize,
    pub test: Test,
    pub out_of_place: Half,
    pub in_place: Half,
    /// With `--load`: how that compares with an even exchange.
    pub skew: Option<Skew>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Half {
    /// Time of one operation in microseconds; with `-C` that of the call.
    pub time_us: f64,
    /// Bytes over time, in GB/s.
    pub algbw_gbs: f64,
    /// algbw times the collective's factor, in GB/s.
    pub busbw_gbs: f64,
    /// Wrong elements of all ranks; `None` where nothing was checked.
    pub wrong: Option<u64>,
    /// The iterations, with `-I`.
    pub iterations: Option<PerIteration>,
    /// What each NIC carried while timing, with `--nic-traffic`.
    pub nics: Vec<NicTraffic>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PerIteration {
    /// Iterations that the statistics leave out (`-K`).
    pub skipped: usize,
    pub stats: Iterations,
    /// Every iteration's time, that of the slowest process, in microseconds.
    pub times_us: Vec<f64>,
    /// The same, per process, where there are several.
    pub processes_us: Vec<Vec<f64>>,
}

/// What a NIC carried while the iterations of a half were timed, headers of every layer included.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct NicTraffic {
    /// Host.
    pub host: String,
    /// Interface.
    pub name: String,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl Row {
    /// Out of place and in place, with their names below the table. `out-of-place` is not one: by that word, SuperBench finds
    /// the table's head (`_process_raw_result` of its `cuda_nccl_bw_performance.py`).
    pub fn halves(&self) -> [(&'static str, &Half); 2] {
        [("oop", &self.out_of_place), ("ip", &self.in_place)]
    }
}
