//! What a rank and its subprocess send each other, over the socket that is the subprocess's standard input.

use busbw_launch::frames;
use busbw_model::{Bytes, LinkLatency, PluginOffer, RuleOutcome, UnusablePlugin};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Longer frames than this are none of ours.
const LONGEST_FRAME: usize = 1 << 20;

/// What a subprocess is started for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub path: PathBuf,
    /// The version of the interface, where it is not the newest.
    pub version: Option<u8>,
    pub device: i32,
    pub side: Side,
    /// A call or a wait that takes longer is a failure.
    pub patience: Duration,
}

/// The two ends. Where bytes go one way, they go from the first to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Side {
    First,
    Second,
}

impl Side {
    pub fn of_rank(rank: usize) -> Self {
        if rank == 0 { Side::First } else { Side::Second }
    }
}

/// What a subprocess is to do, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Step {
    Offer,
    /// Try a rule, by its number in the list.
    Rule(usize),
    /// Connect both ways, to measure.
    Connect {
        most_bytes: usize,
        in_flight: usize,
    },
    /// Measure bandwidth of one size.
    Bandwidth {
        bytes: usize,
        duration: Duration,
    },
    Latency {
        duration: Duration,
    },
    MessageRate {
        duration: Duration,
    },
}

impl Step {
    pub fn describe(self) -> String {
        match self {
            Step::Offer => "what it offers".into(),
            Step::Rule(number) => format!("rule {number}"),
            Step::Connect { .. } => "connect".into(),
            Step::Bandwidth { bytes, .. } => format!("bandwidth of {}", Bytes(bytes as u64)),
            Step::Latency { .. } => "latency".into(),
            Step::MessageRate { .. } => "message rate".into(),
        }
    }
}

/// From a rank to its subprocess.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToSubprocess {
    Setup(Setup),
    Step(Step),
    /// What the other end's subprocess sent; nothing when that has ended its step.
    Relay(Option<Vec<u8>>),
}

/// From a subprocess to its rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromSubprocess {
    /// For the other end's subprocess, whose bytes are waited for.
    Relay(Vec<u8>),
    Done(Outcome),
    /// Kill me: the step needs a peer that dies.
    Kill,
}

/// What went wrong, as one end saw it. What has the same cause is reported once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Wrong {
    pub cause: String,
    /// Where and with what data; empty if the cause says it all.
    pub detail: String,
}

impl From<String> for Wrong {
    fn from(cause: String) -> Self {
        Wrong { cause, detail: String::new() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { cause, detail } = self;
        if detail.is_empty() { write!(out, "{cause}") } else { write!(out, "{cause}: {detail}") }
    }
}

/// What came of a step on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Offer(PluginOffer),
    Unusable(UnusablePlugin),
    Rule(RuleOutcome),
    Connected,
    Bandwidth {
        gb_per_s: f64,
        cpu_s_per_gb: f64,
    },
    Latency(LinkLatency),
    MessageRate(f64),
    /// The plugin failed where it should not.
    Failed(Wrong),
    /// The process that used the plugin crashed, fell silent, or sits in a call that does not come back.
    Lost(Wrong),
    /// The subprocess was killed because it asked for it.
    Killed,
}

/// What came of a step on one side, and how long after it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub outcome: Outcome,
    pub after: Duration,
}

pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frames::frame::<LONGEST_FRAME>(message)?)
}

pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    frames::read::<LONGEST_FRAME, _>(stream)
}
