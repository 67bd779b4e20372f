//! What PyTorch's process groups and NCCL's RAS witness: who is behind, who is missing.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{
    Code, CollectiveMismatch, Ended, Evidence, Finding, MismatchKind, ProcessGroup, RankStanding, RasCommunicator,
    RasRank, Severity, SourceLine, TorchEvent, TorchWork,
};
use std::collections::{BTreeMap, BTreeSet};

const REMEDY: &[&str] = &[
    "Look at the output of the ranks that are behind, and where they are: `py-spy dump --pid PID`",
    "Let PyTorch record every call: `export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`, and compare the dumps",
];

/// Process groups and communicators whose ranks do not agree.
pub fn rule(case: &Case) -> Vec<Finding> {
    let groups = || case.run.process_groups.iter();
    let differing = groups().find_map(mismatch).or_else(|| groups().find_map(behind));
    let waiting = differing.or_else(|| crossed(case)).or_else(|| groups().find_map(|group| waiting(case, group)));
    let told = named(case).or(waiting).or_else(|| alone(case)).or_else(|| stuck(case));
    let communicators = case.run.ras_reports.iter().flat_map(|report| &report.communicators).filter_map(ras);
    told.into_iter().chain(communicators.take(1)).collect()
}

/// A finding of ranks that wait.
fn hang(confidence: f64, title: String, explanation: &str, sources: Vec<&SourceLine>) -> Finding {
    let explanation = explanation.to_string();
    let draft = Draft { code: Code::HangMismatch, severity: Severity::Error, confidence, title, explanation };
    draft.finding(sources.into_iter().take(4).map(|source| Evidence::new(source.clone())).collect(), REMEDY)
}

/// The ranks of a group that timed out, with what they wait in.
fn timed_out(group: &ProcessGroup) -> impl Iterator<Item = (u32, &RankStanding, &TorchWork)> {
    let late = group.ranks.iter().filter(|(_, standing)| standing.timed_out);
    late.filter_map(|(rank, standing)| Some((*rank, standing, standing.stuck_in.as_ref()?)))
}

/// The ranks that a group has: as the flight recorder tells, else, for the group of all ranks, as many as a communicator or the labels
/// of the input name.
fn members(case: &Case, group: &ProcessGroup) -> Vec<u32> {
    if !group.members.is_empty() {
        return group.members.clone();
    }
    let is_default = group.name.id.unwrap_or(0) == 0;
    let largest = case.largest().and_then(|comm| comm.nranks).filter(|_| is_default).unwrap_or(0);
    let labelled = case.run.torch_statements.iter().filter_map(|statement| statement.rank).max();
    let ended = case.run.ends.iter().flat_map(|end| end.ranks.iter().copied()).max();
    let highest = labelled.max(ended).map_or(0, |rank| rank.saturating_add(1)).min(MOST_RANKS);
    (0..largest.max(if is_default { highest } else { 0 })).collect()
}

/// More ranks than any job has: a label that only looks like a rank's.
const MOST_RANKS: u32 = 1 << 16;

/// Ranks that wait in one collective: who is missing, or that nobody is.
fn waiting(case: &Case, group: &ProcessGroup) -> Option<Finding> {
    let (_, _, work) = timed_out(group).next()?;
    let here: Vec<u32> =
        timed_out(group).filter(|(.., w)| w.sequence == work.sequence).map(|(rank, ..)| rank).collect();
    let missing: Vec<u32> = members(case, group).into_iter().filter(|rank| !here.contains(rank)).collect();
    let sources = timed_out(group).filter_map(|(_, standing, _)| standing.sources.first()).collect();
    let what = describe(work, group);
    let finding = match (here.len(), missing.len()) {
        (1, _) => hang(0.5, format!("{} timed out in {what}", ranks("Rank", &here)), ONE, sources),
        (_, 0) => hang(
            0.7,
            format!("All {} ranks that the input shows are in {what}: it did not finish", here.len()),
            STUCK,
            sources,
        ),
        (waiting, gone) if gone < waiting => {
            // Who is killed with the others had no time to tell of its own time-out.
            let killed = case.ends.standing.iter().any(|end| matches!(end.how, Ended::Killed(_)));
            let gone =
                if killed { format!("nothing is told of {}", ranks("rank", &missing)) } else { absent(&missing) };
            let title = format!("{} wait in {what}: {gone}", ranks("Rank", &here));
            hang(0.8, title, MISSING, sources)
        }
        _ => hang(0.6, format!("{} timed out in {what}", ranks("Rank", &here)), ONE, sources),
    };
    Some(finding)
}

/// `collective 500 (ALLREDUCE, 1000 elements) of default_pg`.
fn describe(work: &TorchWork, group: &ProcessGroup) -> String {
    let elements = work.numel_in.map_or(String::new(), |n| format!(", {n} element{}", if n == 1 { "" } else { "s" }));
    format!("{} ({}{elements}) of {}", numbered(work.sequence), work.op, group.name)
}

/// `collective 500`; PyTorch 1.9 tells no number.
fn numbered(sequence: u64) -> String {
    if sequence == 0 { "a collective".into() } else { format!("collective {sequence}") }
}

/// `Rank 0`, `ranks 1, 2, 3`.
fn ranks(word: &str, ranks: &[u32]) -> String {
    format!("{word}{} {}", if ranks.len() > 1 { "s" } else { "" }, list(ranks))
}

/// `rank 0 is missing`.
fn absent(missing: &[u32]) -> String {
    format!("{} {} missing", ranks("rank", missing), if missing.len() > 1 { "are" } else { "is" })
}

const MISSING: &str = "The ranks that timed out wait in the same collective. The missing rank did not call it, or did not say so: it is busy (data, a \
                       checkpoint), went another way through the program, or has died. Its own output says which.";
const STUCK: &str = "All of them called the same collective, so nobody is missing and nobody is behind. Data stopped moving: a link, a NIC or a GPU \
                     stalled, or a rank that the input does not show is missing.";
const ONE: &str = "These ranks waited for a collective until the watchdog ended them. The input does not show where the other ranks were: some never \
                   called it, or data stopped moving.";
// `heartbeatMonitor` and `HeartbeatMonitor` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
const NO_HEARTBEAT: &str = "PyTorch's watchdog looks at the rank's collectives and did not come back from a call of its own: the driver does not answer, \
                            another thread holds a lock of CUDA's or Python's (the GIL), or NCCL waits for ranks that are gone.";
// `check_current_entry_match` in torch/distributed/flight_recorder/components/utils.py: it takes the first rank to be right.
const DIFFERS: &str = "The flight recorders differ: these ranks called another operation, size or type than the first rank of the group, or were further. \
                       Where most ranks are named, it is the first rank that differs.";
const CROSSED: &str = "Each of these ranks waits in two groups at once, and nobody is behind in either: kernels of two communicators wait for each other. \
                       Collectives of different groups must start in the same order on every rank, or one after the other.";

/// Ranks that wait in two groups at once.
fn crossed(case: &Case) -> Option<Finding> {
    let groups: Vec<&ProcessGroup> =
        case.run.process_groups.iter().filter(|group| timed_out(group).count() > 1).collect();
    let (one, other, shared) = groups.iter().enumerate().find_map(|(index, one)| {
        groups[index + 1..].iter().find_map(|other| {
            let in_other = |rank: &u32| timed_out(other).any(|(known, ..)| known == *rank);
            let shared: Vec<u32> = timed_out(one).map(|(rank, ..)| rank).filter(in_other).collect();
            (shared.len() > 1).then_some((*one, *other, shared))
        })
    })?;
    let (work, theirs) = (timed_out(one).next()?.2, timed_out(other).next()?.2);
    let sources =
        timed_out(one).chain(timed_out(other)).filter_map(|(_, standing, _)| standing.sources.first()).collect();
    let title = format!(
        "{} wait in two groups at once: {} and {}",
        ranks("Rank", &shared),
        describe(work, one),
        describe(theirs, other)
    );
    let mut finding = hang(0.75, title, CROSSED, sources);
    finding.remedy.insert(
        0,
        "Let NCCL order launches by the program's order: `export NCCL_LAUNCH_ORDER_IMPLICIT=1` (NCCL 2.26 and later)"
            .into(),
    );
    Some(finding)
}

/// Time-outs without a rank, or of a group that is not named.
fn alone(case: &Case) -> Option<Finding> {
    const MOST: usize = 3;
    let mut waited: BTreeMap<(u64, &str), BTreeSet<u32>> = BTreeMap::new();
    for timeout in &case.ends.timeouts {
        if let TorchEvent::Timeout { work, .. } = &timeout.event {
            waited.entry((work.sequence, &work.op)).or_default().extend(timeout.rank);
        }
    }
    let said = |((sequence, op), who): (&(u64, &str), &BTreeSet<u32>)| {
        format!("{} in {} ({op})", all(who), numbered(*sequence))
    };
    let said: Vec<String> = waited.iter().take(MOST).map(said).collect();
    let title = format!("The watchdog timed out on {}", said.join(", on "));
    (!said.is_empty())
        .then(|| hang(0.5, title, ONE, case.ends.timeouts.iter().map(|timeout| &timeout.source).collect()))
}

/// Watchdogs whose own calls do not return.
fn stuck(case: &Case) -> Option<Finding> {
    let told = case.run.torch_statements.iter().filter(|statement| statement.event == TorchEvent::NoHeartbeat);
    let who: BTreeSet<u32> = told.clone().filter_map(|statement| statement.rank).collect();
    let title = format!("The watchdog of {} is stuck: a call of CUDA or NCCL does not return", all(&who));
    let sources: Vec<&SourceLine> = told.map(|statement| &statement.source).collect();
    (!sources.is_empty()).then(|| hang(0.5, title, NO_HEARTBEAT, sources))
}

/// `ranks 1, 2`, or that it is not told which.
fn all(who: &BTreeSet<u32>) -> String {
    if who.is_empty() { "a rank".into() } else { ranks("rank", &who.iter().copied().collect::<Vec<_>>()) }
}

/// Ranks that a monitored barrier waited for in vain, or that `fr_trace` names.
fn named(case: &Case) -> Option<Finding> {
    case.run.torch_statements.iter().find_map(|statement| {
        let group = &statement.group;
        let (named, why, title) = match &statement.event {
            TorchEvent::BarrierMissed(gone) => {
                (gone, MISSING, format!("{} did not reach the barrier", ranks("Rank", gone)))
            }
            TorchEvent::NotJoined { ranks: gone, sequence } => {
                let number = if *sequence == 0 { "A collective".into() } else { format!("Collective {sequence}") };
                (gone, MISSING, format!("{number} of {group} does not end: {}", absent(gone)))
            }
            TorchEvent::Differs { ranks: others, sequence, what } => (
                others,
                DIFFERS,
                format!("{} called something else in collective {sequence} of {group}: {what}", ranks("Rank", others)),
            ),
            _ => return None,
        };
        (!named.is_empty()).then(|| hang(0.85, title, why, vec![&statement.source]))
    })
}

fn mismatch(group: &ProcessGroup) -> Option<Finding> {
    let mismatch = group.mismatches.first()?;
    let (first, _) = mismatch.variants.first()?;
    let said =
        |(work, ranks): &(TorchWork, Vec<u32>)| format!("{} on rank {}", aspect(mismatch.kind, work), list(ranks));
    let said: Vec<String> = mismatch.variants.iter().take(4).map(said).collect();
    let (what, why, remedy) = wording(mismatch.kind, &first.op);
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Error,
        confidence: 0.92,
        title: format!("Ranks of {} {what}: {}", group.name, said.join(", ")),
        explanation: format!("{why} NCCL does not check that; it hangs or mixes data.{}", also(mismatch)),
    };
    let mut lines: Vec<Evidence> = mismatch.sources.iter().take(4).map(|s| Evidence::new(s.clone())).collect();
    lines.dedup_by(|later, earlier| later.source == earlier.source);
    Some(draft.finding(lines, &[remedy, REMEDY[1]]))
}

/// What a work is in what differs.
fn aspect(kind: MismatchKind, work: &TorchWork) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "an unknown one".into());
    match (kind, &work.shape, work.numel_in.or(work.numel_out)) {
        (MismatchKind::Operation, ..) => work.op.clone(),
        (MismatchKind::Size, Some(shape), _) => format!("[{shape}]"),
        (MismatchKind::Size, None, Some(elements)) => format!("{elements} elements"),
        (MismatchKind::Size, None, None) => "no tensor".into(),
        (MismatchKind::Datatype, ..) => known(&work.datatype),
        (MismatchKind::Device, ..) => known(&work.device),
        (MismatchKind::Sequence, ..) => format!("number {}", work.sequence),
    }
}

/// What the ranks do, why that cannot go well, and what helps.
fn wording(kind: MismatchKind, op: &str) -> (String, &'static str, &'static str) {
    let (what, why, remedy) = match kind {
        MismatchKind::Operation => {
            return (
                "are in different collectives".into(),
                "At one place of the sequence the ranks called different operations: before it, some rank went another way through the \
                 program, as where it logs, saves, evaluates or skips what others do not.",
                "Look for the call in each rank's traceback, and for the branch that leads only some ranks there: `py-spy dump --pid PID`",
            );
        }
        MismatchKind::Size => (
            "with different sizes",
            "The ranks called the same operation with tensors of different sizes, as where a batch or a sequence is shorter on one of them.",
            "Print the shape before the call on every rank; where lengths may differ, gather them first and pad to the longest",
        ),
        MismatchKind::Datatype => (
            "with different datatypes",
            "The ranks called the same operation with elements of different types.",
            "Cast to one type before the call; look for autocast, or a default type, that is set on some ranks only",
        ),
        MismatchKind::Device => (
            "with tensors on different kinds of devices",
            "The ranks called the same operation, some with a tensor that lies elsewhere than the others'.",
            "Move the tensor to the same kind of device on every rank before the call",
        ),
        MismatchKind::Sequence => (
            "at different places of their sequences",
            "The ranks called the same operation, but some have called more before it than others: what they exchange does not belong together.",
            "Count the calls: look for a loop that runs longer on some ranks, or a branch with a collective that some do not take",
        ),
    };
    (format!("call {op} {what}"), why, remedy)
}

/// What differs besides.
fn also(mismatch: &CollectiveMismatch) -> String {
    let differs = |kind: MismatchKind| {
        let known = |work: &TorchWork| match kind {
            MismatchKind::Size => work.shape.is_some(),
            MismatchKind::Datatype => work.datatype.is_some(),
            _ => work.device.is_some(),
        };
        let mut said: Vec<String> =
            mismatch.variants.iter().filter(|(work, _)| known(work)).map(|(work, _)| aspect(kind, work)).collect();
        said.dedup();
        (kind > mismatch.kind && said.len() > 1).then(|| said.join(" and "))
    };
    let named = [(MismatchKind::Size, "size"), (MismatchKind::Datatype, "datatype"), (MismatchKind::Device, "device")];
    let found = named.into_iter().filter_map(|(kind, name)| Some(format!("{name} ({})", differs(kind)?)));
    let found: Vec<String> = found.collect();
    if found.is_empty() { String::new() } else { format!(" They differ in {} as well.", found.join(" and ")) }
}

fn behind(group: &ProcessGroup) -> Option<Finding> {
    let (ranks, theirs, others) = group.behind()?;
    let verb = if ranks.len() > 1 { "are" } else { "is" };
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Error,
        confidence: 0.85,
        title: format!("{} of {} {verb} behind: collective {theirs}, the others wait in {others}", self::ranks("Rank", &ranks), group.name),
        explanation: "Collectives of a group are numbered. These ranks never called what the others wait for: their program went another \
                      way, is busy with something else, or stands. Time-outs of the others follow from it."
            .into(),
    };
    let sources = ranks.iter().filter_map(|rank| group.ranks.get(rank)).flat_map(|rank| &rank.sources);
    Some(draft.finding(sources.take(4).map(|s| Evidence::new(s.clone())).collect(), REMEDY))
}

fn ras(communicator: &RasCommunicator) -> Option<Finding> {
    if communicator.missing_ranks > 0 {
        let ranks: Vec<u32> = communicator.missing.iter().map(|rank| rank.rank).collect();
        let draft = Draft {
            code: Code::PeerDied,
            severity: Severity::Error,
            confidence: 0.8,
            title: match ranks.as_slice() {
                [] => format!("{} ranks do not answer RAS", communicator.missing_ranks),
                [rank] => format!("Rank {rank} does not answer RAS{}", communicator.missing.first().map_or(String::new(), place)),
                _ => format!("Ranks {} do not answer RAS", list(&ranks)),
            },
            explanation: "NCCL's watcher (RAS) asks every process of the job. These do not answer: they died, their node is gone, or it \
                          cannot be reached. Look at them first."
                .into(),
        };
        return Some(draft.finding(vec![Evidence::new(communicator.source.clone())], REMEDY));
    }
    let launched = communicator.launched.iter().find(|launched| launched.differs())?;
    let behind = launched.behind()?;
    let who = if behind.ranks.is_empty() { format!("{} ranks", behind.count) } else { ranks("Rank", &behind.ranks) };
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Warning,
        confidence: 0.7,
        title: format!("{who} launched {} {}, others {}", behind.value, launched.operation, launched.most()),
        explanation: "RAS counts what each rank launched. A rank that launched fewer operations than the others is the one they wait for, if \
                      the difference stays when you ask again."
            .into(),
    };
    Some(draft.finding(vec![Evidence::new(behind.source.clone())], REMEDY))
}

/// ` (process 20027 on 10.91.7.2)`.
fn place(rank: &RasRank) -> String {
    match (rank.pid, &rank.host) {
        (Some(pid), Some(host)) => format!(" (process {pid} on {host})"),
        (None, Some(host)) => format!(" (on {host})"),
        _ => String::new(),
    }
}

fn list(ranks: &[u32]) -> String {
    listed(ranks.iter(), 8)
}
