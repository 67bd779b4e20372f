//! Comparison of nodes and pairs of nodes that ran the same measurement.

use crate::place::SourceLine;
use schemars::JsonSchema;
use serde::Serialize;

/// Measurements of one kind, of different nodes: peers that should be equally fast.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PeerGroup {
    /// What was measured: `all_reduce on 2 ranks of 2 nodes, peak busbw`.
    pub what: String,
    /// The unit of median, deviation, least, most and value.
    #[schemars(extend("enum" = ["GB/s", "Gbit/s"]))]
    pub unit: &'static str,
    /// How many nodes took part.
    #[schemars(range(min = 1))]
    pub nodes: usize,
    /// How many different nodes, or sets of nodes, were measured.
    #[schemars(range(min = 4))]
    pub measured: usize,
    /// How many of these are not slow.
    pub usual: usize,
    /// Half of them are faster.
    pub median: f64,
    /// The median of the distances from the median, scaled to a standard deviation.
    pub deviation: f64,
    /// The slowest.
    pub least: f64,
    /// The fastest.
    pub most: f64,
    /// Who is slow, the slowest first.
    #[serde(skip)]
    pub slow: Vec<SlowPeer>,
}

/// A node, or nodes together, far below the peers.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowPeer {
    /// Who: one node, or those that were measured together.
    pub hosts: Vec<String>,
    /// What they reach; of several measurements the median.
    pub value: f64,
    /// How many measurements show it.
    pub measurements: usize,
    /// What is to blame.
    pub blame: Blame,
    /// The slowest measurement.
    pub source: SourceLine,
}

named! {
    /// What the measurements of others say of a slow one.
    pub enum Blame {
        /// The node: it is slow with whomever it was measured with, or alone.
        Node = "node",
        /// What lies between the nodes: each of them is fast with others.
        Between = "between",
        /// One of them, or what lies between: somebody was measured with nobody else.
        Open = "open",
    }
    /// The name in JSON.
    as_str
}

impl SlowPeer {
    /// `node7`, or `node7 ↔ node8`.
    pub fn name(&self) -> String {
        self.hosts.join(" ↔ ")
    }
}

impl PeerGroup {
    /// A figure with three digits that count, without the unit.
    pub fn figure(&self, value: f64) -> String {
        crate::units::gbit(value)
    }

    /// What a slow peer reaches, as a share of the median.
    pub fn share(&self, peer: &SlowPeer) -> f64 {
        peer.value / self.median
    }

    /// The slow peers that `blame` explains.
    pub fn blamed(&self, blame: Blame) -> impl Iterator<Item = &SlowPeer> {
        self.slow.iter().filter(move |peer| peer.blame == blame)
    }
}
