//! What `busbw check` concludes from the facts of nodes.

use crate::answer::known;
use crate::finding::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// The part of a node that an item is about, in the order in which a person would look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "Told", from = "Told")]
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

named! {
    /// An outcome in a word.
    pub enum Grade {
        /// As it should be.
        Ok = "ok",
        /// It may cost speed, or a run.
        Warn = "warn",
        /// It will cost speed, or a run.
        Fail = "fail",
        /// It could not be checked.
        Skip = "skip",
    }
    /// `ok`, `warn`, `fail` or `skip`.
    as_str
}

/// An outcome as JSON has it.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Told {
    /// How it came out. warn: it may cost speed, or a run. fail: it will. skip: it could not be checked.
    result: Grade,
    /// Why it was skipped.
    why: Option<String>,
    /// What to do; text in backquotes can be pasted into a shell. There is one for every warning and failure.
    remedy: Option<String>,
    /// The finding of `busbw explain` that it leads to.
    #[serde(default, deserialize_with = "known")]
    code: Option<Code>,
}

impl From<Outcome> for Told {
    fn from(outcome: Outcome) -> Self {
        let (result, code) = (outcome.grade(), outcome.code());
        let (why, remedy) = match outcome {
            Outcome::Ok => (None, None),
            Outcome::Warn { remedy, .. } | Outcome::Fail { remedy, .. } => (None, Some(remedy)),
            Outcome::Skip { why } => (Some(why), None),
        };
        Told { result, why, remedy, code }
    }
}

impl From<Told> for Outcome {
    fn from(Told { result, why, remedy, code }: Told) -> Self {
        let remedy = remedy.unwrap_or_default();
        match result {
            Grade::Ok => Outcome::Ok,
            Grade::Warn => Outcome::Warn { remedy, code },
            Grade::Fail => Outcome::Fail { remedy, code },
            Grade::Skip => Outcome::Skip { why: why.unwrap_or_default() },
        }
    }
}

impl Outcome {
    /// The outcome in a word.
    pub fn grade(&self) -> Grade {
        match self {
            Outcome::Ok => Grade::Ok,
            Outcome::Warn { .. } => Grade::Warn,
            Outcome::Fail { .. } => Grade::Fail,
            Outcome::Skip { .. } => Grade::Skip,
        }
    }

    /// `ok`, `warn`, `fail` or `skip`.
    pub fn as_str(&self) -> &'static str {
        self.grade().as_str()
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckItem {
    /// The part of the node.
    pub area: Area,
    /// What was checked: `port state`.
    pub item: Cow<'static, str>,
    /// The node.
    pub host: String,
    /// The device, where it is about one of several: `mlx5_0/1` (port 1), `eth0`, `GPU 0`.
    pub device: Option<String>,
    /// What was found: `ACTIVE, LinkUp`.
    pub detail: String,
    /// How it came out.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A thing that should be equal on all nodes and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OddOne {
    /// The part of the node.
    pub area: Area,
    /// The thing: `MTU of eth0`.
    pub item: String,
    /// What most nodes have; none where no value has a majority.
    pub majority: Option<String>,
    /// The nodes that differ from that, or all nodes without a majority, with what they have.
    #[serde(serialize_with = "differ")]
    #[schemars(with = "Vec<Differing>")]
    pub differ: Vec<(String, String)>,
    /// Whether it counts as a fail; a warning otherwise.
    #[serde(rename = "result", serialize_with = "fail_or_warn")]
    #[schemars(with = "String", extend("enum" = ["warn", "fail"]))]
    pub fails: bool,
    /// What to do.
    pub remedy: String,
    /// The finding that it leads to.
    pub code: Option<Code>,
}

/// A node that differs from the others.
#[derive(Serialize, JsonSchema)]
struct Differing<'a> {
    /// The node.
    host: &'a str,
    /// What it has.
    value: &'a str,
}

fn differ<S: Serializer>(nodes: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(nodes.iter().map(|(host, value)| Differing { host, value }))
}

fn fail_or_warn<S: Serializer>(fails: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    if *fails { Grade::Fail } else { Grade::Warn }.serialize(serializer)
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
            counts[item.outcome.grade() as usize] += 1;
        }
        for odd in &self.odd_ones {
            counts[if odd.fails { Grade::Fail } else { Grade::Warn } as usize] += 1;
        }
        counts
    }

    /// Whether anything failed: the exit status of `busbw check` is 1 then.
    pub fn failed(&self) -> bool {
        self.counts()[2] > 0
    }
}
