//! What the NCCL Inspector (a profiler plugin of NCCL) measured of a real workload, collective by collective.
//!
//! These are not tables of nccl-tests: nobody warmed up, other work ran beside, and a rank that waits for a late one
//! counts the wait.

use crate::collective::Collective;
use crate::place::SourceLine;
use crate::statistics::median;
use crate::units::{Bytes, GBps, Micros};
use schemars::JsonSchema;
use serde::Serialize;

/// One kind of operation on one communicator, size by size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct InspectorRun {
    /// Communicator id as printed: `0x7f8c496ae9f661`.
    pub communicator: String,
    /// Name that the program gave the communicator (ncclConfig_t.commName).
    pub communicator_name: Option<String>,
    /// Ranks of the communicator.
    pub nranks: Option<u32>,
    /// Nodes of the communicator.
    pub nnodes: Option<u32>,
    /// NCCL's word: `AllReduce`, `Send`.
    pub operation: String,
    /// The collective; none for `Send` and `Recv`.
    #[serde(skip)]
    pub collective: Option<Collective>,
    /// The measurements, one row per message size.
    pub rows: Vec<InspectorRow>,
    /// The first line.
    #[serde(skip)]
    pub source: SourceLine,
}

/// All operations of one size.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InspectorRow {
    /// Message size.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// How many operations of how many ranks were measured.
    pub count: u64,
    /// Time of an operation, in microseconds.
    #[serde(rename = "time_us")]
    #[schemars(with = "Spread<f64>")]
    pub time: Spread<Micros>,
    /// Algorithm bandwidth.
    #[serde(rename = "algbw_gbs")]
    #[schemars(with = "Spread<f64>")]
    pub algbw: Spread<GBps>,
    /// Bus bandwidth.
    #[serde(rename = "busbw_gbs")]
    #[schemars(with = "Spread<f64>")]
    pub busbw: Spread<GBps>,
    /// Ranks by median time, the shortest first. The rank that comes late waits for nobody, so it has the *shortest* time,
    /// where the others' kernels wait for it.
    #[serde(skip)]
    pub ranks: Vec<InspectorRank>,
    /// How the times were taken: `kernel_gpu`, `kernel_cpu`, `collective_cpu`, each once.
    #[serde(skip)]
    pub timing_sources: Vec<String>,
    /// The first line.
    #[serde(skip)]
    pub source: SourceLine,
}

/// One rank's share of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct InspectorRank {
    /// Rank in the communicator.
    pub rank: u32,
    /// Host name.
    pub host: Option<String>,
    /// Number of operations.
    pub count: u64,
    /// Median time.
    pub median_time: Micros,
}

/// How values spread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Spread")]
pub struct Spread<T> {
    /// The smallest value.
    pub min: T,
    /// The median of the values.
    pub median: T,
    /// The arithmetic mean of the values.
    pub mean: T,
    /// 99 of 100 are not above it.
    pub p99: T,
    /// The largest value.
    pub max: T,
    /// Standard deviation over mean, in per cent.
    pub cv_pct: f64,
}

impl<T: Copy + Default> Spread<T> {
    /// The spread of values; sorts them. `None` without values, or with none that is finite.
    pub fn of(values: &mut [f64], unit: impl Fn(f64) -> T) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let p99 = values[((values.len() - 1) as f64 * 0.99).round() as usize];
        let cv_pct = if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 };
        Some(Spread {
            min: unit(*first),
            median: unit(median(values.iter().copied())?),
            mean: unit(mean),
            p99: unit(p99),
            max: unit(*last),
            cv_pct,
        })
    }
}

impl InspectorRun {
    /// The best median bus bandwidth and its size.
    pub fn peak(&self) -> Option<(Bytes, GBps)> {
        let best = self.rows.iter().max_by(|a, b| a.busbw.median.0.total_cmp(&b.busbw.median.0))?;
        Some((best.size, best.busbw.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_holds_what_was_measured() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&mut values, Micros).unwrap_or_default();
        assert_eq!((spread.min.0, spread.max.0, spread.mean.0), (1.0, 100.0, 50.5));
        assert_eq!((spread.median.0, spread.p99.0), (50.5, 99.0));
        assert_eq!(Spread::of(&mut [], Micros), None);
    }
}
