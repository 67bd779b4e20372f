//! What a simulation of the fabric says, and what can be asked of it.

use crate::cluster::Port;
use crate::load::Busiest;
use busbw_model::GBps;
use schemars::JsonSchema;
use serde::Serialize;
use std::num::NonZero;

/// The busbw of large messages over hash seeds, and the links that decide it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Simulation {
    /// The distribution of busbw over hash seeds.
    #[serde(rename = "busbw_gbs")]
    pub busbw: Distribution,
    /// busbw if no two flows shared a link of the fabric: what NICs and the node's own links allow.
    #[serde(rename = "unshared_busbw_gbs")]
    pub unshared: GBps,
    /// Flows as switches distinguish them: each direction between two NICs, each queue pair; where
    /// switches see the queue pair, each channel too.
    pub flows: usize,
    /// The most loaded links between switches (and NIC ports, where these decide), the worst first; at most 16.
    pub links: Vec<LinkLoad>,
    /// busbw of each seed, in the order of seeds.
    #[serde(rename = "busbw_gbs_per_seed")]
    pub per_seed: Vec<GBps>,
    /// Who is busiest, of an exchange with a load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest: Option<Busiest>,
    /// What was assumed, a sentence each.
    #[serde(skip)]
    pub assumptions: Vec<String>,
}

impl Simulation {
    /// The most links that are listed.
    pub const MAX_LINKS: usize = 16;

    /// The share of seeds whose busbw is `busbw` or less: how often hashing is as unlucky as a measurement.
    pub fn share_at_most(&self, busbw: GBps) -> f64 {
        // Rates are sums of fractions of rates, so equal ones may differ in the last digits.
        let reached = busbw.0 * (1.0 + 1e-9);
        let count = self.per_seed.iter().filter(|of_seed| of_seed.0 <= reached).count();
        count as f64 / self.per_seed.len().max(1) as f64
    }
}

/// A distribution over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Distribution {
    pub min: GBps,
    pub p5: GBps,
    pub p50: GBps,
    pub p95: GBps,
    pub max: GBps,
}

impl Distribution {
    /// The distribution of some values; none without values. A percentile is the value that at least this share of the
    /// values does not exceed.
    pub fn of(values: &[GBps]) -> Option<Distribution> {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let percentile = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Distribution {
            min: percentile(0)?,
            p5: percentile(5)?,
            p50: percentile(50)?,
            p95: percentile(95)?,
            max: percentile(100)?,
        })
    }
}

/// How loaded a link is, over seeds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LinkLoad {
    /// Its two ends: `leaf 0 → spine 3`, `switch of node 0 → switch of node 1, link 2`.
    pub name: String,
    /// The payload that it carries, per direction: 48.25 GB/s for 400 Gbit/s.
    #[serde(rename = "rate_gbs")]
    pub rate: GBps,
    /// Flows that it carries: mean over seeds.
    pub flows_mean: f64,
    /// The most flows that it carried under any seed.
    pub flows_max: usize,
    /// Share of seeds in which it was the link that held back the slowest flow.
    #[schemars(range(min = 0, max = 1))]
    pub decides: f64,
}

/// How to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Hash seeds to try: 0 to `seeds` - 1.
    pub seeds: NonZero<u32>,
    /// What switches distinguish flows by.
    pub entropy: FlowEntropy,
    /// The most threads to use; all cores if none is said. Results do not depend on it.
    pub threads: Option<NonZero<usize>>,
}

impl Default for Options {
    /// 1,000 seeds, flows distinguished by their NICs, on all cores.
    fn default() -> Self {
        Options {
            seeds: NonZero::new(1000).unwrap_or(NonZero::<u32>::MIN),
            entropy: FlowEntropy::NicPair,
            threads: None,
        }
    }
}

/// What switches distinguish flows by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowEntropy {
    /// The addresses of the two NICs and, with several queue pairs per connection, the queue pair: all channels between
    /// two NICs take the same way.
    NicPair,
    /// The UDP source port of each queue pair too, so that each channel goes its own way.
    QueuePair,
}

/// Why nothing could be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Flows leave the nodes, but nodes have no NICs.
    #[error("the run has several nodes but the cluster no NICs; describe how many NICs a node has and their rate")]
    NoNics,
    /// The traffic is that of another cluster.
    #[error(
        "the run uses {port}, but the cluster has {nodes} nodes of {nics} NICs (counted from 0); describe the cluster \
         that the run was made on"
    )]
    NotInCluster { port: Port, nodes: usize, nics: usize },
    /// No links lead from one NIC to the other.
    #[error(
        "no links lead from {from} to {to}; add spines or cables between their switches, or set NCCL_CROSS_NIC=0 where \
         rails never meet"
    )]
    Unreachable { from: Port, to: Port },
    #[error("the rate of {of} is not above zero; give it with its unit, for example 400Gbit/s")]
    Rate { of: &'static str },
    #[error("the number of {of} is zero; it must be at least 1")]
    Zero { of: &'static str },
    /// A cable ends at a switch that is not there.
    #[error("a cable ends at switch number {0} (from 0), which is not listed; list the switch or correct the cable")]
    NoSuchSwitch(usize),
    /// A load is for as many ranks.
    #[error("the load is for {load} ranks and the cluster has {ranks}; a file holds for one number of ranks")]
    LoadOfOthers { load: usize, ranks: usize },
    #[error("the run has more than {} flows; describe fewer nodes or NICs", crate::Traffic::MAX_FLOWS)]
    TooManyFlows,
    /// The fabric has too many links.
    #[error("the fabric has more than 16 million links; describe fewer parallel links, spines or cores")]
    TooManyLinks,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulation(values: &[f64]) -> Simulation {
        let per_seed: Vec<GBps> = values.iter().map(|&value| GBps(value)).collect();
        let busbw = Distribution::of(&per_seed).unwrap();
        let unshared = busbw.max;
        Simulation { per_seed, busbw, unshared, flows: 0, links: Vec::new(), busiest: None, assumptions: Vec::new() }
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let cases: [(&[f64], [f64; 5]); 3] =
            [(&hundred, [1.0, 5.0, 50.0, 95.0, 100.0]), (&[7.0], [7.0; 5]), (&[2.0, 1.0], [1.0, 1.0, 1.0, 2.0, 2.0])];
        for (values, expected) in cases {
            let d = simulation(values).busbw;
            assert_eq!([d.min, d.p5, d.p50, d.p95, d.max].map(|rate| rate.0), expected);
        }
        assert_eq!(Distribution::of(&[]), None);
    }

    #[test]
    fn the_share_at_most_counts_equal_values() {
        let of = simulation(&[1.0, 2.0, 2.0, 4.0]);
        for (busbw, share) in [(0.5, 0.0), (1.0, 0.25), (2.0, 0.75), (3.0, 0.75), (4.0, 1.0)] {
            assert_eq!(of.share_at_most(GBps(busbw)), share);
        }
    }
}
