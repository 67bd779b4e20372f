//! What a rank and its actor tell each other, over the socket that is the actor's standard input.

use busbw_launch::frames;
use busbw_model::{Bytes, LinkLatency, PluginOffer, RuleOutcome};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Longer frames than this are none of ours.
const LONGEST_FRAME: usize = 1 << 20;

/// What an actor is started for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The plugin's file.
    pub path: PathBuf,
    /// The version of the interface, if one was asked for.
    pub version: Option<u8>,
    /// The device to use.
    pub device: i32,
    /// Which end this is.
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

/// What an actor is to do, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Say what the plugin offers.
    Offer,
    /// Try a rule, by its number in the list.
    Rule(usize),
    /// Connect both ways, to measure.
    Connect { most_bytes: usize, in_flight: usize },
    /// Measure bandwidth of one size.
    Bandwidth { bytes: usize, duration: Duration },
    /// Measure latency.
    Latency { duration: Duration },
    /// Measure messages a second.
    MessageRate { duration: Duration },
}

impl Act {
    /// In words, for progress.
    pub fn describe(self) -> String {
        match self {
            Act::Offer => "what it offers".into(),
            Act::Rule(number) => format!("rule {number}"),
            Act::Connect { .. } => "connect".into(),
            Act::Bandwidth { bytes, .. } => format!("bandwidth of {}", Bytes(bytes as u64)),
            Act::Latency { .. } => "latency".into(),
            Act::MessageRate { .. } => "message rate".into(),
        }
    }
}

/// From a rank to its actor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ToActor {
    /// The first thing that is said.
    Part(Part),
    /// Something to do.
    Act(Act),
    /// What the other end's actor said; nothing when that has ended its act.
    Word(Option<Vec<u8>>),
}

/// From an actor to its rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FromActor {
    /// For the other end's actor, whose word is waited for.
    Word(Vec<u8>),
    /// The act is over.
    Done(Outcome),
    /// Kill me: the act needs a peer that dies.
    Kill,
}

/// What came of an act on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Offer(PluginOffer),
    Rule(RuleOutcome),
    Connected,
    Bandwidth {
        gb_per_s: f64,
        cpu_s_per_gb: f64,
    },
    Latency(LinkLatency),
    MessageRate(f64),
    /// The plugin failed where it should not.
    Failed(String),
    /// The process that used the plugin crashed, fell silent, or sits in a call that does not come back.
    Lost(String),
    /// The actor was killed because it asked for it.
    Killed,
}

/// What came of an act on one side, and how long after its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub outcome: Outcome,
    pub after: Duration,
}

/// Writes a frame.
pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frames::frame::<LONGEST_FRAME>(message)?)
}

/// Reads a frame.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    frames::read::<LONGEST_FRAME, _>(stream)
}

pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
