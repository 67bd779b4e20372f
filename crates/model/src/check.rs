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
    /// The heading of the area in the table of `busbw check`.
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

named! {
    /// The result of a check.
    pub enum Outcome {
        /// Passed.
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

/// One line of the table: something of a node that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckItem {
    /// The heading under which the check is listed.
    pub area: Area,
    /// What was checked: `port state`.
    pub item: Cow<'static, str>,
    /// Name of the host.
    pub host: String,
    /// The device, where it is about one of several: `mlx5_0/1` (port 1), `eth0`, `GPU 0`.
    pub device: Option<String>,
    /// What was found: `ACTIVE, LinkUp`.
    pub detail: String,
    /// The result: ok, warn, fail or skip.
    #[serde(rename = "result")]
    pub outcome: Outcome,
    /// Why the check was skipped; `None` for other results.
    pub why: Option<String>,
    /// What to do; text in backquotes can be pasted into a shell. Only what calls for action has a remedy, and all that does has one.
    pub remedy: Option<String>,
    /// The finding of `busbw explain` that it leads to.
    #[serde(default, deserialize_with = "known")]
    pub code: Option<Code>,
}

impl CheckItem {
    /// Something that is as it should be.
    pub fn ok(area: Area, item: &'static str, host: &str, device: Option<String>, detail: String) -> Self {
        let (item, host, outcome) = (item.into(), host.into(), Outcome::Ok);
        CheckItem { area, item, host, device, detail, outcome, why: None, remedy: None, code: None }
    }
}

/// A thing that should be equal on all nodes and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OddOne {
    /// The heading under which the check is listed.
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
    /// How to fix it, with a command line where there is one.
    pub remedy: String,
    /// The finding that it leads to.
    pub code: Option<Code>,
}

/// A node that differs from the others.
#[derive(Serialize, JsonSchema)]
struct Differing<'a> {
    /// Name of the host.
    host: &'a str,
    /// The value on this host.
    value: &'a str,
}

fn differ<S: Serializer>(nodes: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(nodes.iter().map(|(host, value)| Differing { host, value }))
}

fn fail_or_warn<S: Serializer>(fails: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    if *fails { Outcome::Fail } else { Outcome::Warn }.serialize(serializer)
}

/// The answer of `busbw check`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Names of the checked hosts.
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
            counts[item.outcome as usize] += 1;
        }
        for odd in &self.odd_ones {
            counts[if odd.fails { Outcome::Fail } else { Outcome::Warn } as usize] += 1;
        }
        counts
    }

    /// Whether anything failed: the exit status of `busbw check` is 1 then.
    pub fn failed(&self) -> bool {
        self.counts()[2] > 0
    }
}
