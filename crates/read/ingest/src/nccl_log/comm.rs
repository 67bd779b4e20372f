//! Communicator lines: Init START and COMPLETE, the sizes line, channel counts.

use super::LogMessage;
use crate::cursor::{Cursor, finder};

/// Whether a communicator begins or stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitPhase {
    Start,
    Complete,
    /// `Destroy COMPLETE`.
    Left,
    /// `Abort COMPLETE`: the process exits without `ncclCommDestroy`, or after an error.
    Aborted,
}

/// `ncclCommInitRank comm 0x… rank 1 nranks 8 cudaDev 1 nvmlDev 1 busId 41000 commId 0x… - Init START`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InitLine {
    pub phase: InitPhase,
    pub comm: u64,
    pub rank: u32,
    pub nranks: u32,
    pub cuda_dev: Option<u32>,
    pub bus_id: Option<u64>,
    pub comm_id: Option<u64>,
    pub split: Option<Split>,
}

/// Where a communicator made by `ncclCommSplit` comes from: equal for its ranks, but for the pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Split {
    pub parent: u64,
    pub count: u64,
    pub color: i64,
}

/// Reads an init line in any of its forms, or a sizes line: with `ncclCommInitAll`, `ncclCommInitRankConfig`, `ncclCommSplit`,
/// `ncclCommShrink` in front, with `[Rank 2]` before that (2.29), without a name (up to 2.18), without busId (2.4), with `parent …
/// color …`.
pub(super) fn read(message: &[u8]) -> Option<LogMessage> {
    let Fields { comm, rank, nranks, nnodes, cuda_dev, bus_id, comm_id, parent, count, color, phase } =
        Fields::of(message)?;
    let (rank, nranks) = (rank?, nranks?);
    let Some(phase) = phase else {
        return Some(LogMessage::Sizes(SizesLine { comm, rank, nranks, nnodes: nnodes? }));
    };
    let split = parent.zip(count).zip(color).map(|((parent, count), color)| Split { parent, count, color });
    Some(LogMessage::Init(InitLine { phase, comm, rank, nranks, cuda_dev, bus_id, comm_id, split }))
}

/// More ranks no job has: the largest had some 100,000. A line that claims more is damaged, or no line of NCCL's.
const MOST_RANKS: u32 = 1 << 22;

/// What stands behind `comm 0x…`: words and their values, in any order.
#[derive(Default)]
struct Fields {
    comm: u64,
    rank: Option<u32>,
    nranks: Option<u32>,
    nnodes: Option<u32>,
    cuda_dev: Option<u32>,
    bus_id: Option<u64>,
    comm_id: Option<u64>,
    parent: Option<u64>,
    count: Option<u64>,
    color: Option<i64>,
    phase: Option<InitPhase>,
}

impl Fields {
    fn of(message: &[u8]) -> Option<Self> {
        let mut at = Cursor::new(message);
        if !at.eat(b"comm 0x") {
            at.skip_past(finder!(b"comm 0x"))?;
        }
        let mut fields = Fields { comm: at.hex()?, ..Fields::default() };
        while !at.rest().is_empty() {
            at.spaces();
            let name = at.word();
            at.spaces();
            match name {
                b"rank" => fields.rank = at.small(),
                b"nranks" | b"nRanks" => fields.nranks = at.small().filter(|ranks| *ranks <= MOST_RANKS),
                b"nNodes" => fields.nnodes = at.small(),
                b"cudaDev" => fields.cuda_dev = at.small(),
                b"busId" => fields.bus_id = at.hex(),
                b"commId" => fields.comm_id = at.hex(),
                b"parent" => fields.parent = at.hex(),
                b"splitCount" | b"childCount" => fields.count = at.number(),
                b"color" => fields.color = signed(&mut at),
                b"Init" if at.rest().starts_with(b"START") => fields.phase = Some(InitPhase::Start),
                b"Init" if at.rest().starts_with(b"COMPLETE") => fields.phase = Some(InitPhase::Complete),
                b"Destroy" if at.rest().starts_with(b"COMPLETE") => fields.phase = Some(InitPhase::Left),
                b"Abort" if at.rest().starts_with(b"COMPLETE") => fields.phase = Some(InitPhase::Aborted),
                b"" => at = Cursor::new(at.rest().get(1..)?), // white space other than blanks
                _ => {}
            }
        }
        Some(fields)
    }
}

fn signed(at: &mut Cursor) -> Option<i64> {
    let sign = if at.eat(b"-") { -1 } else { 1 };
    Some(sign * i64::try_from(at.number()?).ok()?)
}

/// `comm 0x… rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0` (2.19 and later).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizesLine {
    pub comm: u64,
    pub rank: u32,
    pub nranks: u32,
    pub nnodes: u32,
}

/// `16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer`;
/// nvls came with 2.17, collnet with 2.20, both in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChannelCounts {
    pub coll: u32,
    pub nvls: Option<u32>,
    pub p2p: Option<u32>,
}

pub(crate) fn channel_counts(message: &[u8]) -> Option<ChannelCounts> {
    let mut at = Cursor::new(message);
    let coll = at.small()?;
    at.expect(b" coll channels")?;
    let mut counts = ChannelCounts { coll, ..ChannelCounts::default() };
    while at.eat(b", ") {
        let Some(count) = at.small() else { break };
        at.expect(b" ")?;
        let kind = at.word();
        at.expect(b" channels")?;
        match kind {
            b"nvls" => counts.nvls = Some(count),
            b"p2p" if counts.p2p.is_none() => counts.p2p = Some(count),
            _ => {}
        }
    }
    Some(counts)
}
