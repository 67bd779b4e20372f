//! Reads what PyTorch's NCCL watchdog and heartbeat monitor write when a collective hangs or fails.
//!
//! `torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp` of PyTorch 1.9 to 2.12. The rank in a line's brackets counts within
//! the process group; the label `[rank4]:` that PyTorch itself puts in front counts within the job, and goes before it.

use super::{fingerprint, ranks_in};
use crate::TextLine;
use crate::text::{leading, part_digits};
use busbw_model::{GroupName, SourceLine, Standing, TorchEvent, TorchStatement, TorchWork};
use rustc_hash::FxHashMap;

/// More different statements add nothing new.
const MOST_KEPT: usize = 20_000;

/// What a rank says of how it stood as it timed out; of an error it says the rest alone.
const AT_TIMEOUT: &str = "] Timeout at NCCL work: ";
/// Why a rank's monitor has its recorder dumped (2.5 and later): another rank's time-out is `from another rank`.
const DUMPS_OWN: &str = "due to a collective timeout from this local rank";

/// Collects statements from lines. Labels of launchers are left in the text, because they name the rank.
///
/// ```
/// use busbw_ingest::{TextLine, torch::WatchdogReader};
/// use busbw_model::{Place, TorchEvent};
/// let text = "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: \
///             WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600017 milliseconds";
/// let mut reader = WatchdogReader::default();
/// assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// let statements = reader.finish();
/// assert!(matches!(&statements[0].event, TorchEvent::Timeout { work, .. } if work.sequence == 7));
/// ```
#[derive(Debug, Default)]
pub struct WatchdogReader {
    found: Vec<TorchStatement>,
    /// Where a rank's statement stands in `found`: ranks say things twice, and uncaught exceptions say them again.
    known: FxHashMap<(Option<u32>, String), usize>,
}

impl WatchdogReader {
    /// Takes a line; true when it is PyTorch's.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let (group_rank, group) = speaker(line.text);
        let events = events(line.text);
        // Signatures read what a socket says as well.
        let belongs = events.iter().any(|(_, event)| !matches!(event, TorchEvent::Unreachable(_)));
        for (speaker, event) in events {
            let rank = label(line.text).or_else(|| label(line.stream)).or(speaker).or(group_rank);
            let source = SourceLine::new(line.place, line.text);
            self.keep(TorchStatement { rank, group: group.clone(), event, source });
        }
        belongs
    }

    /// The statements in order, each once per rank. A rank says twice that it timed out, and an excerpt may hold only how it stands then.
    pub fn finish(mut self) -> Vec<TorchStatement> {
        let is_timeout = |told: &&TorchStatement| matches!(told.event, TorchEvent::Timeout { .. });
        let timed_out: Vec<Option<u32>> = self.found.iter().filter(is_timeout).map(|told| told.rank).collect();
        let standing = self.found.iter().filter(|told| !timed_out.contains(&told.rank));
        let also: Vec<TorchStatement> = standing.filter_map(at_timeout).collect();
        self.found.extend(also);
        self.found
    }

    fn keep(&mut self, statement: TorchStatement) {
        let key = (statement.rank, format!("{:?}", statement.event));
        match self.known.get(&key) {
            // Timeouts are reported without their group first, then again with it.
            Some(index) if self.found[*index].group == GroupName::default() => {
                self.found[*index].group = statement.group
            }
            Some(index) if statement.source.text.contains(AT_TIMEOUT) => self.found[*index].source = statement.source,
            Some(_) => {}
            None if self.found.len() < MOST_KEPT => {
                self.known.insert(key, self.found.len());
                self.found.push(statement);
            }
            None => {}
        }
    }
}

/// Everything that a line says, with the rank that says it where that stands in the sentence itself.
fn events(text: &str) -> Vec<(Option<u32>, TorchEvent)> {
    if let Some((rank, mismatch)) = fingerprint::read(text) {
        return vec![(Some(rank), mismatch)];
    }
    let mut found = Vec::new();
    found.extend(timeout(text));
    found.extend(standing(text).map(|event| (None, event)));
    found.extend(barrier(text).map(|ranks| (None, TorchEvent::BarrierMissed(ranks))));
    found.extend(unreachable(text).map(|host| (None, TorchEvent::Unreachable(host))));
    let has = |words: &str| text.contains(words);
    const STUCK: [&str; 4] = [
        "watchdog got stuck",
        "Heartbeat monitor timed out",
        "no heartbeat of its watchdog",
        "due to ProcessGroupNCCL watchdog hang",
    ];
    if STUCK.iter().any(|words| has(words)) {
        found.push((None, TorchEvent::NoHeartbeat));
    }
    found.extend(not_joined(text).map(|event| (None, event)));
    found
}

/// `[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, NumelOut=1,
/// Timeout(ms)=600000) ran for 600017 milliseconds before timing out.` Up to 2.0 it is TensorShape, in 1.9 without SeqNum.
fn timeout(text: &str) -> Option<(Option<u32>, TorchEvent)> {
    let (before, rest) = text.split_once("atchdog caught collective operation timeout: ")?;
    let (_, work) = rest.split_once("Work")?;
    let field = |name: &str| work.split_once(name).map(|(_, value)| value);
    // Of several at once no size is known, which an old PyTorch prints as -1 without its sign.
    let number = |name: &str| leading(field(name)?).filter(|number| *number != u64::MAX);
    let shape = field("TensorShape=[").and_then(|rest| rest.split_once(']')).map(|(shape, _)| shape);
    let product = |shape: &str| shape.split(',').try_fold(1u64, |all, dim| all.checked_mul(dim.trim().parse().ok()?));
    let op = field("OpType=").and_then(|rest| rest.split([',', ')']).next());
    let work = TorchWork {
        sequence: number("SeqNum=").unwrap_or_default(),
        op: op.unwrap_or_default().trim().to_string(),
        numel_in: number("NumelIn=").or_else(|| shape.and_then(product)),
        numel_out: number("NumelOut="),
        timeout_ms: number("Timeout(ms)="),
        ..TorchWork::default()
    };
    let ran_ms = rest.split_once("ran for ").and_then(|(_, rest)| leading(rest));
    let rank = before.rsplit_once("[Rank ").and_then(|(_, rest)| leading(rest));
    Some((rank, TorchEvent::Timeout { work, ran_ms }))
}

/// `failure detected by watchdog at work sequence id: 20585 PG status: last enqueued work: 20589, last completed work:
/// 20584`, `Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: -1.` and `Last enqueued NCCL
/// work: 9, last completed NCCL work: 8.`
fn standing(text: &str) -> Option<TorchEvent> {
    let after = |word: &str| {
        let rest = text.split_once(word)?.1;
        let rest = rest.trim_start().strip_prefix("NCCL ").unwrap_or(rest.trim_start()).strip_prefix("work: ")?;
        sequence(rest)
    };
    let standing = Standing {
        enqueued: after("ast enqueued"),
        started: after("last started"),
        completed: after("last completed"),
    };
    let failed_at = ["work sequence id: ", "Timeout at NCCL work: ", "detected by watchdog at work: "]
        .iter()
        .find_map(|words| leading(text.split_once(words)?.1));
    (standing != Standing::default()).then_some(TorchEvent::Standing { standing, failed_at })
}

/// The time-out of a rank that says how it stood then: `Timeout at NCCL work: 32, last enqueued NCCL work: 32, …`, `Received a dump signal due
/// to a collective timeout from this local rank … Last enqueued NCCL work: 40, last completed NCCL work: 31.`
fn at_timeout(told: &TorchStatement) -> Option<TorchStatement> {
    let TorchEvent::Standing { standing, .. } = &told.event else { return None };
    let text = &told.source.text;
    let sequence = match text.split_once(AT_TIMEOUT) {
        Some((_, work)) => leading(work)?,
        // Collectives of a group end in order.
        None => standing.completed.filter(|_| text.contains(DUMPS_OWN))? + 1,
    };
    let work = TorchWork { sequence, ..TorchWork::default() };
    Some(TorchStatement { event: TorchEvent::Timeout { work, ran_ms: None }, ..told.clone() })
}

/// A sequence number: -1 is none, so 0. PyTorch 2.3 printed numbers that were never set; none of these is believed.
fn sequence(text: &str) -> Option<u64> {
    const LARGEST: u64 = 1 << 31;
    match text.strip_prefix('-') {
        Some(_) => Some(0),
        None => leading(text).filter(|number: &u64| *number < LARGEST),
    }
}

/// `[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 30000 ms`.
fn barrier(text: &str) -> Option<Vec<u32>> {
    let (before, _) = text.split_once(" failed to pass monitoredBarrier")?;
    let (_, ranks) = before.rsplit_once("Rank")?;
    Some(ranks_in(ranks)).filter(|ranks| !ranks.is_empty())
}

/// `The client socket has failed to connect to any network address of (h1, 29500). The client socket has failed to connect to 10.0.0.1:29500
/// (errno: 113 - No route to host).` (`socket.cpp` of 1.11 and later), with what Linux says of networks.
fn unreachable(text: &str) -> Option<String> {
    const OF_NETWORKS: [u64; 4] = [101, 110, 112, 113]; // ENETUNREACH, ETIMEDOUT, EHOSTDOWN, EHOSTUNREACH
    let (_, rest) = text.split_once("has failed to connect to any network address of (")?;
    let (host, rest) = rest.split_once(", ")?;
    let number: u64 = leading(rest.split_once("(errno: ")?.1)?;
    OF_NETWORKS.contains(&number).then(|| host.to_string())
}

/// `[7] finished collective #182, but didn't join collective #183 (count from 1)`, `ranks [2, 3] are the lagging ranks that caused this
/// timeout. They never joined any collectives`: `retrieveDesyncReport` in `torch/csrc/distributed/c10d/TraceUtils.h`.
fn not_joined(text: &str) -> Option<TorchEvent> {
    let (before, sequence) = match text.split_once("but didn't join collective #") {
        Some((before, number)) => (before, leading(number)?),
        None => (text.split_once(" are the lagging ranks that caused this timeout. They never joined any")?.0, 0),
    };
    let ranks = ranks_in(before.rsplit_once('[')?.1.split_once(']')?.0);
    Some(TorchEvent::NotJoined { ranks, sequence })
}

/// Rank and group of `[PG ID 0 PG GUID 0(default_pg) Rank 7]`, `[PG 0 Rank 7]`, `[PG 2 (TP) Rank 1]`, `[Rank 7]`.
fn speaker(text: &str) -> (Option<u32>, GroupName) {
    let rank = |inside: &str| inside.rsplit_once("Rank ").and_then(|(_, rest)| leading(rest));
    let bracketed = |open: &str| text.split_once(open)?.1.split_once(']').map(|(inside, _)| inside);
    let Some(inside) = bracketed("[PG ").filter(|inside| inside.contains("Rank ")) else {
        return (bracketed("[Rank ").and_then(leading), GroupName::default());
    };
    let names = inside.split_once(" Rank ").map_or(inside, |(names, _)| names);
    let description =
        names.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).map(|(description, _)| description);
    let name = names.split_once("GUID ").and_then(|(_, rest)| rest.split(['(', ' ']).next());
    let owned = |text: &str| Some(text.trim().to_string()).filter(|text| !text.is_empty());
    let group = GroupName {
        id: leading(names.trim_start_matches("ID ")),
        name: name.and_then(owned),
        description: description.and_then(owned),
    };
    (rank(inside), group)
}

/// The rank of the job in a label: `[rank3]:`, or a stream that is called `rank3` or `default3`.
fn label(text: &str) -> Option<u32> {
    let rest = match text.split_once("[rank") {
        Some((_, rest)) if rest.contains("]:") => rest,
        _ => text.strip_prefix("rank").or(text.strip_prefix("default"))?,
    };
    let (number, rest) = part_digits(rest);
    (rest.is_empty() || rest.starts_with(']')).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<TorchStatement> {
        let mut reader = WatchdogReader::default();
        for text in text.lines() {
            reader.feed(&TextLine { place: Place::default(), stream: "", text });
        }
        reader.finish()
    }

    fn told(text: &str) -> Vec<String> {
        let short = |event: &TorchEvent| match event {
            TorchEvent::Timeout { work, ran_ms } => {
                format!("timeout {} {} {:?}/{:?} {:?}", work.sequence, work.op, work.numel_in, work.numel_out, ran_ms)
            }
            TorchEvent::Standing { standing: s, failed_at } => {
                format!("at {:?}/{:?}/{:?} failed {failed_at:?}", s.enqueued, s.started, s.completed)
            }
            other => format!("{other:?}"),
        };
        read(text).iter().map(|s| format!("{:?}, {}: {}", s.rank, s.group, short(&s.event))).collect()
    }

    #[test]
    fn lines_of_all_versions_are_read() {
        let cases = include_str!("../../tests/data/watchdog.txt").lines().filter(|line| !line.starts_with('#'));
        for [line, expected] in cases.collect::<Vec<_>>().as_chunks().0 {
            assert_eq!(told(line).join("; "), expected.trim_start(), "{line}");
        }
    }

    /// A timeout is told by the work, then by its group's watchdog, then by an uncaught exception.
    #[test]
    fn the_group_comes_from_the_repetition() {
        let work = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800011 milliseconds before timing out.";
        let lines = format!(
            "[rank3]:[E ProcessGroupNCCL.cpp:632] {work}\n[rank3]: what():  [PG ID 2 PG GUID 22(TP) Rank 3] Process group watchdog thread terminated with exception: {work}"
        );
        let found = read(&lines);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].group, GroupName { id: Some(2), name: Some("22".into()), description: Some("TP".into()) });
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC{0,120}", which in 0usize..6) {
            let heads = ["", "[rank", "[PG ID 0 PG GUID 0(", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",
                "Detected mismatch between collectives on ranks. Rank 1 is running ", "last enqueued work: "];
            read(&format!("{}{text}", heads[which]));
        }
    }
}
