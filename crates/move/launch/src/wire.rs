//! What a rank and the rendezvous server say to each other: an opening of fixed size, then frames.

use crate::frames;
use busbw_transport::Token;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// First bytes of every connection to the server.
pub(crate) const MAGIC: [u8; 8] = *b"busbwjob";
/// Changes with every change of the frames: ranks of different versions do not meet.
pub(crate) const VERSION: u16 = 2;
/// Bytes of the opening: magic, version, token.
pub(crate) const OPENING: usize = MAGIC.len() + 2 + Token::SIZE;
/// No frame is longer: one that says so comes from no busbw.
const LONGEST_FRAME: usize = 1 << 30;

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

/// From the server to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// The token was right.
    Welcome([u8; Token::SIZE]),
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

/// The opening that a rank sends.
pub(crate) fn opening(token: &Token) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), token.as_bytes()].concat()
}

/// What an opening turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Of this job and version.
    Ours,
    /// Of this job, but another version of busbw.
    Version(u16),
    /// Of no rank of this job.
    Stranger,
}

/// Judges the first [`OPENING`] bytes of a connection.
pub(crate) fn judge_opening(bytes: &[u8], token: &Token) -> Opening {
    let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Opening::Stranger };
    let Some((version, shown)) = rest.split_first_chunk::<2>() else { return Opening::Stranger };
    if *magic != MAGIC || !token.matches(shown) {
        return Opening::Stranger;
    }
    match u16::from_le_bytes(*version) {
        VERSION => Opening::Ours,
        other => Opening::Version(other),
    }
}

/// A message of this protocol as a frame.
pub(crate) fn frame(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    frames::frame::<LONGEST_FRAME>(message)
}

/// What a connection of this protocol receives into.
pub(crate) type Inbox = frames::Inbox<LONGEST_FRAME>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_of_this_job_another_version_and_strangers() {
        let token = Token::from_bytes([7; 16]);
        let ours = opening(&token);
        assert_eq!(ours.len(), OPENING);
        assert_eq!(judge_opening(&ours, &token), Opening::Ours);
        let mut newer = ours.clone();
        newer[8] = 9;
        assert_eq!(judge_opening(&newer, &token), Opening::Version(9));
        assert_eq!(judge_opening(&ours, &Token::from_bytes([8; 16])), Opening::Stranger);
        for stranger in [&b""[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &ours[..OPENING - 1]] {
            assert_eq!(judge_opening(stranger, &token), Opening::Stranger);
        }
    }
}
