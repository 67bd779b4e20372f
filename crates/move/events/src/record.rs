//! An event as seven words. Reading them never fails: a process may have died, or be another program, so what makes no sense is `None`.

use busbw_model::{Collective, Datatype};

/// Words of an event.
pub(crate) const WORDS: usize = 7;
/// An event's number has its kind in these bits.
const KIND_BITS: u32 = 4;
/// What is not known of an algorithm, protocol or datatype.
const UNKNOWN: u8 = 0xff;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time_ns: u64,
    /// Which operation, step or communicator: a number of this ring's own, never 0.
    pub id: u64,
    /// What it is part of; 0 where nothing is known of that.
    pub parent: u64,
    /// Of a collective: how many its communicator had before on this rank. So ranks' events belong together wherever reading begins.
    pub sequence: Option<u64>,
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A communicator was made; its number is the event's. `ranks` is 0 where NCCL does not tell.
    Communicator { hash: u64, ranks: u32, nodes: u32, rank: u32, source: Source },
    /// The application called NCCL; `captured`: into a CUDA graph, whose replays begin operations with this parent again.
    Call { captured: bool },
    /// An operation began.
    Operation {
        communicator: u32,
        function: Function,
        datatype: Option<Datatype>,
        algorithm: u8,
        protocol: u8,
        channels: u8,
        count: u64,
    },
    /// One channel's part of an operation in NCCL's proxy thread. `process` is that of the operation that it is part of: another than
    /// the ring's where a neighbour's proxy sends for this GPU (PXN).
    ProxyOperation { process: u32, channel: u8, peer: u32, steps: u32, chunk: u32, sends: bool },
    /// One chunk on its way.
    ProxyStep { step: u32 },
    /// A GPU began a channel's part.
    Kernel { channel: u8, timer_ns: u64 },
    /// A message of the network plugin.
    Message { plugin: u64, bytes: u64 },
    /// A thing changed its state. `value`: bytes, or the GPU's time.
    State { state: State, value: u64 },
    /// It ended.
    Stop,
}

/// Who made a communicator, and so what the end of an operation's own event means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// NCCL: the end is that of enqueueing; the operation itself ends with the last of its parts.
    Nccl,
    /// busbw's engine on CPU cores: the end is the end.
    Engine,
    /// PyTorch: the end is the end.
    Torch,
}

/// What a rank calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    Collective(Collective),
    Send,
    Receive,
}

/// The states of a step, as NCCL's proxy goes through them, and what else is noted of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A sender waits for its GPU to fill the buffer.
    SendGpu,
    /// It waits for the receiver to offer room.
    SendPeer,
    /// The network has it.
    SendNetwork,
    /// A receiver waits for the network.
    ReceiveNetwork,
    /// It waits until what came is visible to the GPU.
    ReceiveFlush,
    /// It waits for the GPU to take what came.
    ReceiveGpu,
    /// The GPU's time at the end of a channel's part.
    KernelEnd,
    /// Bytes that a message carried so far.
    Bytes,
    /// Segments of a message that TCP sent again.
    Resent,
}

/// The kinds of things that have a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Communicator,
    Call,
    Operation,
    ProxyOperation,
    ProxyStep,
    Kernel,
    Message,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Communicator,
        Kind::Call,
        Kind::Operation,
        Kind::ProxyOperation,
        Kind::ProxyStep,
        Kind::Kernel,
        Kind::Message,
    ];

    /// The number of the `count`th thing, of this kind.
    pub(crate) fn number(self, count: u64) -> u64 {
        count << KIND_BITS | (self as u64 + 1)
    }

    /// Which thing of its kind a number is.
    pub(crate) fn count(number: u64) -> usize {
        (number >> KIND_BITS) as usize
    }
}

/// The kind of a thing by its number.
pub fn kind_of(id: u64) -> Option<Kind> {
    let code = id & ((1 << KIND_BITS) - 1);
    Kind::ALL.get(usize::try_from(code).ok()?.checked_sub(1)?).copied()
}

impl State {
    const ALL: [State; 9] = [
        State::SendGpu,
        State::SendPeer,
        State::SendNetwork,
        State::ReceiveNetwork,
        State::ReceiveFlush,
        State::ReceiveGpu,
        State::KernelEnd,
        State::Bytes,
        State::Resent,
    ];
}

impl Function {
    const SEND: u8 = 100;
    const RECEIVE: u8 = 101;

    fn code(self) -> u8 {
        match self {
            Function::Collective(collective) => collective as u8,
            Function::Send => Self::SEND,
            Function::Receive => Self::RECEIVE,
        }
    }

    fn of(code: u8) -> Option<Self> {
        match code {
            Self::SEND => Some(Function::Send),
            Self::RECEIVE => Some(Function::Receive),
            _ => Collective::ALL.get(usize::from(code)).map(|collective| Function::Collective(*collective)),
        }
    }
}

/// The words of `What`: a code, three small numbers, and two large ones.
struct Words {
    code: u8,
    small: [u8; 3],
    middle: u32,
    large: [u64; 2],
}

impl Record {
    pub(crate) fn words(&self) -> [u64; WORDS] {
        let Words { code, small: [a, b, c], middle, large: [d, e] } = self.what.words();
        let last = self.sequence.map_or(0, |before| before.wrapping_add(1));
        let head = u64::from_le_bytes([code, a, b, c, 0, 0, 0, 0]) | u64::from(middle) << 32;
        [self.time_ns, head, self.id, self.parent, d, e, last]
    }

    pub(crate) fn of(words: [u64; WORDS]) -> Option<Self> {
        let [time_ns, head, id, parent, d, e, last] = words;
        let [code, a, b, c, ..] = head.to_le_bytes();
        let words = Words { code, small: [a, b, c], middle: (head >> 32) as u32, large: [d, e] };
        Some(Record { time_ns, id, parent, sequence: last.checked_sub(1), what: What::of(&words)? })
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl What {
    fn words(self) -> Words {
        let words = |code, small, middle, large| Words { code, small, middle, large };
        match self {
            What::Communicator { hash, ranks, nodes, rank, source } => {
                words(1, [source as u8, 0, 0], rank, [hash, pair(ranks, nodes)])
            }
            What::Call { captured } => words(2, [u8::from(captured), 0, 0], 0, [0, 0]),
            What::Operation { communicator, function, datatype, algorithm, protocol, channels, count } => {
                let datatype = datatype.map_or(UNKNOWN, |datatype| datatype as u8);
                let way = u64::from_le_bytes([algorithm, protocol, channels, 0, 0, 0, 0, 0]);
                words(3, [function.code(), datatype, 0], communicator, [count, way])
            }
            What::ProxyOperation { process, channel, peer, steps, chunk, sends } => {
                words(4, [channel, u8::from(sends), 0], process, [pair(peer, steps), u64::from(chunk)])
            }
            What::ProxyStep { step } => words(5, [0; 3], step, [0, 0]),
            What::Kernel { channel, timer_ns } => words(6, [channel, 0, 0], 0, [timer_ns, 0]),
            What::Message { plugin, bytes } => words(7, [0; 3], 0, [plugin, bytes]),
            What::State { state, value } => words(8, [state as u8, 0, 0], 0, [value, 0]),
            What::Stop => words(9, [0; 3], 0, [0, 0]),
        }
    }

    fn of(words: &Words) -> Option<Self> {
        let Words { code, small: [a, b, _], middle, large: [d, e] } = *words;
        Some(match code {
            1 => {
                let (ranks, nodes) = halves(e);
                let source = *[Source::Nccl, Source::Engine, Source::Torch].get(usize::from(a))?;
                What::Communicator { hash: d, ranks, nodes, rank: middle, source }
            }
            2 => What::Call { captured: a != 0 },
            3 => {
                let [algorithm, protocol, channels, ..] = e.to_le_bytes();
                let datatype = Datatype::ALL.get(usize::from(b)).copied();
                let function = Function::of(a)?;
                What::Operation { communicator: middle, function, datatype, algorithm, protocol, channels, count: d }
            }
            4 => {
                let (peer, steps) = halves(d);
                What::ProxyOperation { process: middle, channel: a, peer, steps, chunk: e as u32, sends: b != 0 }
            }
            5 => What::ProxyStep { step: middle },
            6 => What::Kernel { channel: a, timer_ns: d },
            7 => What::Message { plugin: d, bytes: e },
            8 => What::State { state: *State::ALL.get(usize::from(a))?, value: d },
            9 => What::Stop,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let operation = |function| What::Operation {
            communicator: 7,
            function,
            datatype: Some(Datatype::Bfloat16),
            algorithm: 1,
            protocol: 2,
            channels: 16,
            count: u64::MAX - 1,
        };
        let unknown = What::Operation {
            communicator: 1,
            function: Function::Collective(Collective::HyperCube),
            datatype: None,
            algorithm: 255,
            protocol: 255,
            channels: 0,
            count: 0,
        };
        let process = u32::MAX;
        let mut all = vec![
            What::Communicator { hash: u64::MAX, ranks: 1 << 20, nodes: 3, rank: 5, source: Source::Torch },
            What::Call { captured: true },
            operation(Function::Send),
            operation(Function::Receive),
            operation(Function::Collective(Collective::AllReduce)),
            unknown,
            What::ProxyOperation { process, channel: 31, peer: 70_000, steps: 9, chunk: 1 << 22, sends: true },
            What::ProxyStep { step: 1 << 30 },
            What::Kernel { channel: 3, timer_ns: 1 << 60 },
            What::Message { plugin: 2 << 16 | 1, bytes: 1 << 40 },
            What::Stop,
        ];
        all.extend(State::ALL.map(|state| What::State { state, value: 42 }));
        for what in all {
            for sequence in [None, Some(0), Some(1 << 40)] {
                let record = Record { time_ns: 11, id: Kind::Message.number(1 << 50), parent: 13, sequence, what };
                assert_eq!(Record::of(record.words()), Some(record));
            }
        }
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind_of(kind.number(place as u64 * 1000)), Some(kind));
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_event() {
        for head in [0, 10, 0xff, 1 | 9 << 8, 3 | 99 << 8, 8 | 9 << 8] {
            assert_eq!(Record::of([1, head, 3, 4, 5, 6, 7]), None, "{head:x}");
        }
        assert_eq!(kind_of(0), None);
        assert_eq!(kind_of(15), None);
    }
}
