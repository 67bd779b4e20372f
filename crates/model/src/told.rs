//! What people say in words about a cluster and its speed: "4 nodes x 8 V100", "busbw about 96 GB/s".

use crate::collective::Collective;
use crate::place::SourceLine;
use crate::units::GBps;

/// A fact that a sentence tells, and the sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The fact.
    pub fact: ToldFact,
    /// The line.
    pub source: SourceLine,
}

/// A fact of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum ToldFact {
    /// Number of nodes.
    Nodes(u32),
    /// GPUs, per node where the sentence also counts nodes.
    Gpus {
        /// How many.
        count: Option<u32>,
        /// `H100`, `V100`, `RTX 4090`.
        name: String,
    },
    /// NICs of a node.
    Nics {
        /// How many.
        count: u32,
        /// Gbit/s of each.
        gbit_s: f64,
    },
    /// A bandwidth.
    Figure(Figure),
    /// What two nodes reach with each other, GB/s: `node1,node2 25`.
    Pair {
        /// The nodes.
        nodes: (String, String),
        /// GB/s.
        busbw: GBps,
    },
}

/// A bandwidth that a sentence tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// What it is.
    pub quantity: Quantity,
    /// The bandwidth.
    pub value: GBps,
    /// The collective that the sentence names.
    pub collective: Option<Collective>,
}

/// What a bandwidth in a sentence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// busbw, measured.
    Busbw,
    /// algbw, measured.
    Algbw,
    /// busbw, averaged over all sizes: no number for health.
    Average,
    /// What the writer expects, or what the hardware should do.
    Expected,
    /// A bandwidth whose kind the sentence does not say.
    Bandwidth,
}
