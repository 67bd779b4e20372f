//! What a rank and the rendezvous server say to each other: a handshake, then frames.

use crate::frames;
use busbw_model::text::clean_line;
use busbw_transport::handshake::Protocol;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The handshake. The version changes with every change of the frames: ranks of different versions do not meet.
pub(crate) const PROTOCOL: Protocol = Protocol { magic: *b"busbwjob", version: 3, payload: 0 };
/// No frame is longer: one that says so comes from no busbw.
pub(crate) const LONGEST_FRAME: usize = 1 << 30;
/// The same, for one that has not said which rank it is.
pub(crate) const LONGEST_HELLO: usize = 64 << 10;

/// One rank of a job, as it described itself to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Name of its host, as the launcher or the host itself names it.
    pub host: String,
    pub pid: u32,
    /// The benchmark's flags: the same on every rank.
    pub flags: String,
    /// Equal for ranks that share a host's memory (see [`crate::host::id`]).
    pub host_id: u64,
    /// From where it connected, as rank 0's host sees it.
    pub address: IpAddr,
}

impl RankInfo {
    /// With text that a terminal can be shown: it is from another process, and stands in errors of all.
    pub(crate) fn cleaned(self) -> Self {
        RankInfo { host: clean_line(&self.host).into(), flags: clean_line(&self.flags).into(), ..self }
    }
}

/// What a rank says of itself first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub rank: u32,
    pub size: u32,
    pub info: RankInfo,
}

/// What the members of a group do together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Everyone's bytes to everyone.
    AllGather,
    /// Nothing but waiting for everyone.
    Barrier,
    /// Everyone's bytes to one member.
    Gather(u32),
}

/// Which step of which group: the group's path of splits, and the number of the step within it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub group: Vec<(u32, i64)>,
    pub number: u64,
}

/// A member's part in a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub key: Key,
    pub step: Step,
    pub members: u32,
    pub index: u32,
    pub data: Vec<u8>,
}

/// From a rank to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    Hello(Hello),
    /// Alive; what was done so far, and whether it waits for others.
    Beat {
        progress: u64,
        waiting: bool,
    },
    Give(Part),
    Fail(String),
    Goodbye,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// Everyone is here.
    Table(Vec<RankInfo>),
    /// Alive.
    Beat,
    Take {
        key: Key,
        parts: Vec<Vec<u8>>,
    },
    Failed(String),
    /// Everyone has said goodbye.
    AllLeft,
}

/// A message of this protocol as a frame.
pub(crate) fn frame(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    frames::frame::<LONGEST_FRAME>(message)
}
