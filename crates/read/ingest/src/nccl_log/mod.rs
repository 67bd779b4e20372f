//! NCCL's log messages: from the text after `NCCL INFO` or `NCCL WARN` to what it says.
//!
//! Formats are those of NCCL 2.4 to 2.32 and RCCL; the functions cite the source files that print them.

mod comm;
mod edge;
mod graph;
mod net;
mod tuning;
mod version;

pub(crate) use comm::{ChannelCounts, InitLine, InitPhase, SizesLine, Split};
pub(crate) use edge::{EdgeLine, read as read_edge, transport as read_transport};
pub(crate) use graph::{RingLine, RingLink, add_tree};
pub(crate) use net::NetLine;
pub(crate) use tuning::{ChoiceLine, PatternLine};
pub(crate) use version::{Version, read as read_version};

use crate::cursor::{Cursor, finder, text};
use busbw_model::Tree;

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
    /// TRACE, CALL and anything newer.
    Other,
}

/// What a message says. Edges are read apart from this ([`read_edge`]): they are most lines of any log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LogMessage {
    Ring(RingLine),
    RingLink(RingLink),
    Trees(Vec<Tree>),
    Init(InitLine),
    Sizes(SizesLine),
    Channels(ChannelCounts),
    RingsConnected,
    /// Every rank knows the others: `Bootstrap timings` (2.22 and later).
    Bootstrapped,
    /// An NVLS structure was built; the communicator where named.
    Nvls(Option<u64>),
    CollNet {
        gdr: bool,
        network: String,
    },
    Version(Version),
    Env {
        name: String,
        value: String,
    },
    Net(NetLine),
    ErrorStep {
        site: String,
        result: u32,
    },
    Choice(ChoiceLine),
    Pattern(PatternLine),
    GpuDirect,
    /// A line of the machine's dump (`=== System`), for its own reader.
    SystemDump,
    /// Understood, and nothing in it that busbw keeps.
    Known,
    Unknown,
}

/// Reads an INFO message that is no edge.
pub(crate) fn read(message: &[u8]) -> LogMessage {
    let message = without_repetition(message).trim_ascii_end();
    if matches!(message.first(), Some(b't' | b'I' | b'P' | b'S' | b'T')) && is_known(message)
        || message.starts_with(b"[Proxy")
    {
        return LogMessage::Known;
    }
    structure(message)
        .or_else(|| communicator(message))
        .or_else(|| environment(message))
        .or_else(|| machine(message))
        .unwrap_or_else(|| if is_known(message) { LogMessage::Known } else { LogMessage::Unknown })
}

/// A message without what Ray adds where it prints the lines of many workers once: `… to NVL [repeated 15x across cluster]
/// (Ray deduplicates logs by default …)`, perhaps in colours whose ESC was lost (`[32m`).
pub(crate) fn without_repetition(message: &[u8]) -> &[u8] {
    if !matches!(message.trim_ascii_end().last(), Some(b']' | b')' | b'm')) {
        return message;
    }
    let Some(at) = finder!(b" [repeated ").find(message) else { return message };
    if finder!(b"x across cluster]").find(&message[at..]).is_none() {
        return message;
    }
    let kept = &message[..at];
    let word = kept.iter().rposition(|b| *b == b' ').map_or(kept, |space| &kept[space + 1..]);
    let code = word.strip_prefix(b"[").and_then(|code| code.strip_suffix(b"m"));
    match code.is_some_and(|code| code.iter().all(|b| b.is_ascii_digit() || *b == b';')) {
        true => kept[..kept.len() - word.len()].trim_ascii_end(),
        false => kept,
    }
}

/// Rings, trees, NVLS and CollNet.
fn structure(message: &[u8]) -> Option<LogMessage> {
    match message.first()? {
        b'C' if message.starts_with(b"Channel ") => graph::ring(message).map(LogMessage::Ring),
        b'C' if message.starts_with(b"Connected ") => Some(match message {
            m if m.starts_with(b"Connected all rings") => LogMessage::RingsConnected,
            b"Connected NVLS tree" => LogMessage::Nvls(None),
            _ => LogMessage::Known,
        }),
        b'C' => collnet(message),
        b'R' => graph::ring_link(message).map(LogMessage::RingLink),
        b'T' if message.starts_with(b"Trees") => graph::trees(message).map(LogMessage::Trees),
        b'T' => graph::tree(message).map(|t| LogMessage::Trees(vec![t])),
        b'N' if message.starts_with(b"NVLS comm 0x") => Some(LogMessage::Nvls(Cursor::new(&message[10..]).hex())),
        _ => None,
    }
}

/// `CollNet 00/0 : 8 [receive] via COLLNET/SHARP/0/GDRDMA`; up to 2.11 `Coll 00 : …`.
fn collnet(message: &[u8]) -> Option<LogMessage> {
    let mut at = Cursor::new(message);
    if !at.eat(b"CollNet ") {
        at.expect(b"Coll ")?;
    }
    at.skip_past(finder!(b" via "))?;
    let transport = edge::transport(at.rest(), busbw_model::Place::default())?;
    let network = transport.via.split('/').nth(1).unwrap_or_default().to_string();
    Some(LogMessage::CollNet { gdr: transport.gdr, network })
}

/// Init, sizes and channel counts.
fn communicator(message: &[u8]) -> Option<LogMessage> {
    match message.first()? {
        b'0'..=b'9' => comm::channel_counts(message)
            .map(LogMessage::Channels)
            .or_else(|| tuning::choice(message).map(LogMessage::Choice)),
        b'B' => message.starts_with(b"Bootstrap timings").then_some(LogMessage::Bootstrapped),
        b'c' | b'n' | b'[' => comm::read(message),
        _ => None,
    }
}

/// Versions, variables and networks.
fn environment(message: &[u8]) -> Option<LogMessage> {
    match message.first()? {
        b'N' if message.starts_with(b"NCCL_") => variable(message),
        b'N' | b'R' if message.get(1..12) == Some(b"CCL version") => version::read(message).map(LogMessage::Version),
        b'N' | b'B' | b'U' | b'A' => net::read(message).map(LogMessage::Net),
        _ => None,
    }
}

/// `NCCL_IB_HCA set to mlx5`, `NCCL_ALGO set by environment to ring`, `NCCL_BUFFSIZE set by environment to 8388608.`
fn variable(message: &[u8]) -> Option<LogMessage> {
    let mut at = Cursor::new(message);
    let name = at.take_while(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !(at.eat(b" set by environment to ") || at.eat(b" set to ")) {
        return Some(LogMessage::Known); // "NCCL_MAX_CTAS 0 is too low, leaving it set at …"
    }
    let value = text(at.rest().trim_ascii());
    // Numbers are printed with a full stop, words and lists without.
    let number =
        value.strip_suffix('.').filter(|v| v.strip_prefix('-').unwrap_or(v).bytes().all(|b| b.is_ascii_digit()));
    let value = number.map(str::to_string).unwrap_or(value);
    Some(LogMessage::Env { name: text(name), value })
}

/// Errors, graph search, GPU Direct, the machine's dump.
fn machine(message: &[u8]) -> Option<LogMessage> {
    match message.first()? {
        b'P' if message.starts_with(b"Pattern ") => tuning::pattern(message).map(LogMessage::Pattern),
        b'G' if message.starts_with(b"GPU Direct RDMA") => Some(LogMessage::GpuDirect),
        b'D' if message.starts_with(b"DMA-BUF is available") => Some(LogMessage::GpuDirect),
        b'A'..=b'Z' if finder!(b" Bytes -> Algo ").find(message).is_some() => {
            tuning::choice(message).map(LogMessage::Choice)
        }
        _ => error_step(message)
            .or_else(|| crate::nccl_system_dump::DumpReader::may_belong(message).then_some(LogMessage::SystemDump)),
    }
}

/// `transport/net.cc:783 -> 2`, possibly with ` [Proxy Thread]` behind; since 2.29 `init.cc:2572 (ncclCommInitRank) -> 6`.
fn error_step(message: &[u8]) -> Option<LogMessage> {
    let mut at = Cursor::new(message);
    let file = at.take_while(|b| b.is_ascii_graphic() && b != b':');
    at.expect(b":")?;
    let line = at.number()?;
    if at.eat(b" (") {
        at.skip_past(finder!(b")"))?;
    }
    at.expect(b" -> ")?;
    let result = at.small()?;
    let source = file.ends_with(b".cc") || file.ends_with(b".h") || file.ends_with(b".c") || file.ends_with(b".cu");
    source.then(|| LogMessage::ErrorStep { site: format!("{}:{line}", text(file)), result })
}

/// Whether any rank of a host would say the same, so that it need be read once: settings, versions, networks.
pub(crate) fn is_of_the_host(message: &[u8]) -> bool {
    match message.first() {
        Some(b'N') => message.starts_with(b"NET/") || message.starts_with(b"NCCL"),
        Some(b'A') => message.starts_with(b"Assigned NET"),
        Some(b'B') => message.starts_with(b"Bootstrap : ") || message.starts_with(b"Bootstrap: "),
        Some(b'D') => message.starts_with(b"DMA-BUF"),
        Some(b'G') => message.starts_with(b"GPU Direct"),
        Some(b'R') => message.starts_with(b"RCCL"),
        Some(b'U') => message.starts_with(b"Using network"),
        _ => false,
    }
}

/// Whether busbw understands a message that it need not keep, by how the message begins.
fn is_known(message: &[u8]) -> bool {
    let beginnings: &[&[u8]] = match message.first() {
        None | Some(b' ') => return true,
        Some(b'A') => &[b"AllReduce: opCount", b"AllGather: opCount", b"AlltoAll: opCount"],
        Some(b'B') => &[b"Broadcast: opCount"],
        Some(b'C') => &[b"Comm config", b"CC Off", b"CC On", b"Check P2P Type", b"Created ", b"Connection to proxy"],
        Some(b'E') => &[b"ENV/Plugin", b"Enabled NCCL Func"],
        Some(b'G') => &[b"GIN/Plugin"],
        Some(b'I') => &[b"Init timings", b"Initialized NET plugin"],
        Some(b'L') => &[b"Launch mode"],
        Some(b'M') => &[b"MNNVL"],
        Some(b'N') => &[b"NVLS ", b"New proxy"],
        Some(b'P') => &[b"P2P Chunksize", b"P2P plugin", b"Plugin Path", b"Plugin name", b"PROFILER/Plugin"],
        Some(b'R') => &[
            b"RAS ",
            b"Rank ",
            b"Recv: opCount",
            b"ReduceScatter: opCount",
            b"Reduce: opCount",
            b"ROCr version",
            b"RMA/Plugin",
        ],
        Some(b'S') => &[b"Setting affinity", b"Search ", b"Send: opCount"],
        Some(b'T') => &[b"TUNER/Plugin", b"Threads per block", b"Threadblock"],
        Some(b'U') => &[b"Using non-device net plugin", b"Using tuner plugin", b"Using internal"],
        Some(b'[') => &[b"[Proxy Service", b"[Service thread]", b"[Proxy Progress]"],
        Some(b'c') => &[b"comm 0x", b"cudaDriverVersion"],
        Some(b'n') => &[b"ncclComm"],
        Some(b't') => &[b"threadThresholds"],
        _ => &[],
    };
    beginnings.iter().any(|known| message.starts_with(known))
}

/// Whether a message that busbw need not keep may still tell a cause, so that signatures look at it: a variable that
/// NCCL refuses, a peer that a proxy lost.
pub(crate) fn tells_of_trouble(message: &[u8]) -> bool {
    match message.first() {
        Some(b'N') => message.starts_with(b"NCCL_") || message.starts_with(b"NVLS multicast support is not"),
        Some(b'[') => finder!(b"closed by localRank").find(message).is_some(),
        _ => false,
    }
}

impl LogMessage {
    /// Whether the line may serve as evidence, so that its text is kept.
    pub fn is_evidence(&self) -> bool {
        !matches!(
            self,
            LogMessage::RingLink(_)
                | LogMessage::Trees(_)
                | LogMessage::Init(_)
                | LogMessage::Sizes(_)
                | LogMessage::Channels(_)
                | LogMessage::RingsConnected
                | LogMessage::Bootstrapped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Edge;
    use proptest::prelude::*;

    /// What a message says, as one line.
    fn told(message: &[u8]) -> String {
        let Some(EdgeLine { edge: Edge { channels, use_, from, to, end, .. }, via, comm }) = read_edge(message) else {
            return format!("{:?}", read(message));
        };
        let transport = read_transport(via, busbw_model::Place::default());
        let transport =
            transport.map(|t| format!("{} {:?} nic {:?} pxn {} gdr {}", t.kind, t.via, t.nic, t.pxn, t.gdr));
        let transport = transport.as_deref().unwrap_or("torn");
        let channel = channels.iter().next().unwrap_or(u16::MAX);
        format!("{use_:?} {channel}: {from} -> {to} {end:?}, {transport}, comm {comm:x?}")
    }

    /// Real lines, one of each form; below each what it is read as.
    #[test]
    fn messages_of_all_versions_are_read() {
        let cases = include_str!("../../tests/data/messages.txt").lines().filter(|line| !line.starts_with('#'));
        for [message, expected] in cases.collect::<Vec<_>>().as_chunks().0 {
            assert_eq!(told(message.as_bytes()), expected.trim_start(), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read_edge(&bytes);
        }

        #[test]
        fn damaged_messages_are_read_without_panic(which in 0usize..9, cut in 0usize..80, junk in "[ -~]{0,6}") {
            let lines = ["Channel 00/16 :    0   7   5", "Trees [0] 1/-1/-1->0->-1", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(2)/GDRDMA",
                "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x2 - Init START", "16 coll channels, 0 nvls channels, 16 p2p channels",
                "NET/IB : Using [0]={[0] a:1/RoCE, [1] b:1/RoCE}; OOB e:1.2.3.4<0>", "Pattern 4, crossNic 0, nChannels 8, bw 2.0/2.0, type NVL/PIX",
                "AllReduce: 64 Bytes -> Algo 1 proto 2 time 3.1", "transport/net.cc:783 -> 2"];
            let mut bytes = lines[which].as_bytes().to_vec();
            let at = cut.min(bytes.len());
            bytes.splice(at..at, junk.bytes());
            let _ = read(&bytes);
            let _ = read_edge(&bytes);
            let _ = read(&bytes[..at]);
        }
    }
}
