//! What `busbw check` concludes from the facts of nodes.

use crate::finding::Code;
use serde::Serialize;

/// The part of a node that an item is about, in the order in which a person would look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // named by `title`
pub enum Area {
    Gpu,
    Cuda,
    Rdma,
    Pcie,
    Net,
    Limits,
    Mpi,
    Environment,
    Clock,
}

impl Area {
    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Area::Gpu => "GPU",
            Area::Cuda => "CUDA and NCCL",
            Area::Rdma => "RDMA",
            Area::Pcie => "PCIe",
            Area::Net => "Network interfaces",
            Area::Limits => "Limits",
            Area::Mpi => "MPI and ssh",
            Area::Environment => "Environment",
            Area::Clock => "Clock and cores",
        }
    }
}

/// How a check came out. Only what calls for action has a remedy, and all that does has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// It may cost speed, or a run.
    Warn {
        /// What to do; text in backquotes can be pasted into a shell.
        remedy: String,
        /// The finding of `busbw explain` that it leads to.
        code: Option<Code>,
    },
    /// It will cost speed, or a run.
    Fail {
        /// What to do.
        remedy: String,
        /// The finding of `busbw explain` that it leads to.
        code: Option<Code>,
    },
    /// It could not be checked.
    Skip {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// `ok`, `warn`, `fail` or `skip`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warn { .. } => "warn",
            Outcome::Fail { .. } => "fail",
            Outcome::Skip { .. } => "skip",
        }
    }

    /// What to do, where there is something to do.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Outcome::Warn { remedy, .. } | Outcome::Fail { remedy, .. } => Some(remedy),
            Outcome::Ok | Outcome::Skip { .. } => None,
        }
    }

    /// The finding that it leads to.
    pub fn code(&self) -> Option<Code> {
        match self {
            Outcome::Warn { code, .. } | Outcome::Fail { code, .. } => *code,
            Outcome::Ok | Outcome::Skip { .. } => None,
        }
    }
}

/// One line of the table: something of a node that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckItem {
    /// The part of the node.
    pub area: Area,
    /// What was checked: `port state`.
    pub item: &'static str,
    /// The node.
    pub host: String,
    /// The device, where it is about one of several: `mlx5_0/1` (port 1), `eth0`, `GPU 0`.
    pub device: Option<String>,
    /// What was found: `ACTIVE, LinkUp`.
    pub detail: String,
    /// How it came out.
    pub outcome: Outcome,
}

/// A thing that should be equal on all nodes and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OddOne {
    /// The part of the node.
    pub area: Area,
    /// The thing: `MTU of eth0`.
    pub item: String,
    /// What most nodes have; none where no value has a majority.
    pub majority: Option<String>,
    /// The nodes that differ from that, or all nodes without a majority, with what they have.
    pub differ: Vec<(String, String)>,
    /// What to do.
    pub remedy: String,
    /// Whether it counts as a fail; a warning otherwise.
    pub fails: bool,
    /// The finding that it leads to.
    pub code: Option<Code>,
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// The nodes.
    pub hosts: Vec<String>,
    /// Area by area, each with the nodes in order.
    pub items: Vec<CheckItem>,
    /// Where nodes differ.
    pub odd_ones: Vec<OddOne>,
}

impl Checked {
    /// How many items came out as ok, warn, fail and skip; nodes that differ count as well.
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for item in &self.items {
            let at = match item.outcome {
                Outcome::Ok => 0,
                Outcome::Warn { .. } => 1,
                Outcome::Fail { .. } => 2,
                Outcome::Skip { .. } => 3,
            };
            counts[at] += 1;
        }
        for odd in &self.odd_ones {
            counts[if odd.fails { 2 } else { 1 }] += 1;
        }
        counts
    }

    /// Whether anything failed: the exit status of `busbw check` is 1 then.
    pub fn failed(&self) -> bool {
        self.counts()[2] > 0
    }
}
