//! What PyTorch's process groups and NCCL's RAS witness: who is behind, who is missing. [`super::hang`] has the sets over all ranks.

use super::{found, hang};
use crate::case::Case;
use crate::culprit;
use crate::words::listed;
use busbw_model::{
    Code, CollectiveMismatch, CulpritClass, Ended, Evidence, Finding, MismatchKind, ProcessGroup, RankStanding,
    RasCommunicator, RasError, RasRank, Severity, SourceLine, Suspects, TorchEvent, TorchWork, counted,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Process groups and communicators whose ranks do not agree.
pub fn rule(case: &Case) -> Vec<Finding> {
    let groups = || case.run.process_groups.iter();
    // Dumps of a job that goes on differ as well: ranks write theirs one after the other.
    let waits = |group: &&ProcessGroup| {
        let stuck = |rank: &RankStanding| rank.timed_out || rank.stuck_in.is_some();
        group.ranks.values().any(stuck) || !case.run.torch_statements.is_empty()
    };
    let differing = groups().find_map(mismatch).or_else(|| groups().filter(waits).find_map(behind));
    let waiting = differing.or_else(|| crossed(case)).or_else(|| groups().find_map(|group| waiting(case, group)));
    // The job's own output shows more than dumps that were asked for while it ran.
    let went_on = hang::ended_well(case) || hang::is_dumps_alone(case) && hang::moved(case);
    let waiting = waiting.filter(|_| !went_on);
    // All time-outs are of launches that are over, and nothing else shows ranks.
    let timed_out =
        || case.run.torch_statements.iter().any(|statement| matches!(statement.event, TorchEvent::Timeout { .. }));
    let is_over =
        case.ends.timeouts.is_empty() && case.run.flight_dumps.is_empty() && case.run.stacks.is_empty() && timed_out();
    if is_over {
        return rest(case);
    }
    let told = named(case).or(waiting).or_else(|| alone(case)).or_else(|| stuck(case));
    let told = match hang::suspects(case) {
        Some(suspects) => Some(accuse(case, told, suspects)),
        None => told,
    };
    // Who calls another collective than the others does not catch up with them.
    let differ = groups().any(|group| mismatch(group).is_some());
    let of_a_moment = hang::is_dumps_alone(case) && !differ;
    let told = told.map(|told| if hang::is_unsure_of(case, &told) { unsure(told, of_a_moment) } else { told });
    told.into_iter().chain(rest(case)).collect()
}

/// A finding that accuses nobody. It is a question where a job that moves may leave the same at any moment.
fn unsure(told: Finding, of_a_moment: bool) -> Finding {
    let severity = if of_a_moment { Severity::Info } else { told.severity };
    Finding { severity, suspects: None, ..told }
}

/// The first communicator whose ranks do not answer RAS, or differ there.
fn rest(case: &Case) -> Vec<Finding> {
    let communicators = case.run.ras_reports.iter().flat_map(|report| &report.communicators);
    communicators.filter_map(ras).take(1).collect()
}

/// A finding about suspects: in the words of the one that the groups show, if it is about them; the remedy follows from the class.
fn accuse(case: &Case, told: Option<Finding>, suspects: Suspects) -> Finding {
    let id = match suspects.class {
        Some(CulpritClass::Exception) => "culprit.exception",
        Some(CulpritClass::Killed) => "culprit.killed",
        Some(CulpritClass::Stopped) => "culprit.stopped",
        Some(CulpritClass::Divergence) => "culprit.divergence",
        Some(CulpritClass::Data) => "culprit.data",
        Some(CulpritClass::Busy) if hang::is_without_stack(case, &suspects) => "culprit.elsewhere",
        Some(CulpritClass::Busy) => "culprit.busy",
        Some(CulpritClass::Gpu) => "culprit.gpu",
        Some(CulpritClass::Network) => "culprit.network",
        None => "culprit.unknown",
    };
    let said = culprit::fill(case, &suspects).to_string();
    let of_class = found(id, &[("said", &said)], hang::evidence(case, &suspects));
    let finding = match told {
        Some(told) if names(&told, &suspects) => {
            Finding { remedy: if suspects.class.is_some() { of_class.remedy } else { told.remedy.clone() }, ..told }
        }
        Some(told) => Finding { evidence: [of_class.evidence, told.evidence].concat(), ..of_class },
        None => of_class,
    };
    Finding { suspects: Some(suspects), ..finding }
}

/// Whether a finding is about the same ranks.
fn names(finding: &Finding, suspects: &Suspects) -> bool {
    // Of two ranks that differ, the words leave open which is right.
    let differ = suspects.class == Some(CulpritClass::Divergence);
    finding.suspects.as_ref().map_or(differ, |said| {
        said.ranks == suspects.ranks && suspects.class.is_none_or(|class| said.class.is_none_or(|said| said == class))
    })
}

/// A finding with the ranks that it accuses.
fn about(finding: Finding, ranks: &[u32], class: Option<CulpritClass>) -> Finding {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    Finding { suspects: (!ranks.is_empty()).then_some(Suspects::of(ranks, class)), ..finding }
}

fn lines<'a>(sources: impl IntoIterator<Item = &'a SourceLine>) -> Vec<Evidence> {
    sources.into_iter().take(4).map(|source| Evidence::new(source.clone())).collect()
}

/// The ranks of a group that timed out, with what they wait in.
fn timed_out(group: &ProcessGroup) -> impl Iterator<Item = (u32, &RankStanding, &TorchWork)> {
    let late = group.ranks.iter().filter(|(_, standing)| standing.timed_out);
    late.filter_map(|(rank, standing)| Some((*rank, standing, standing.stuck_in.as_ref()?)))
}

/// The ranks that a group has: as the flight recorder shows, else, for the group of all ranks, as many as a communicator or the labels
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
    let of_sizes = timed_out(group).filter_map(|(.., work)| ranks_by_sizes(work)).max().unwrap_or(0);
    (0..largest.max(if is_default { highest.max(of_sizes) } else { 0 })).collect()
}

/// How many ranks a group has by the elements that go into an operation and come out of it.
fn ranks_by_sizes(work: &TorchWork) -> Option<u32> {
    let (few, many) = match work.op.trim_start_matches('_') {
        op if op.starts_with("ALLGATHER") => (work.numel_in?, work.numel_out?),
        op if op.starts_with("REDUCE_SCATTER") => (work.numel_out?, work.numel_in?),
        _ => return None,
    };
    let ranks = many.checked_div(few).filter(|ranks| ranks * few == many)?;
    u32::try_from(ranks).ok().filter(|ranks| *ranks <= MOST_RANKS)
}

/// More ranks than any job has: a label that only looks like a rank's.
const MOST_RANKS: u32 = 1 << 16;

/// Ranks that wait in one collective: who is missing, or that nobody is.
fn waiting(case: &Case, group: &ProcessGroup) -> Option<Finding> {
    let (_, _, work) = timed_out(group).next()?;
    let here: Vec<u32> =
        timed_out(group).filter(|(.., w)| w.sequence == work.sequence).map(|(rank, ..)| rank).collect();
    let missing: Vec<u32> = members(case, group).into_iter().filter(|rank| !here.contains(rank)).collect();
    // A rank that was killed with the others had no time to report its own time-out.
    let killed = case.ends.standing.iter().any(|end| matches!(end.how, Ended::Killed(_)));
    let gone = if killed { format!("nothing is told of {}", ranks("rank", &missing)) } else { absent(&missing) };
    let id = match (here.len(), missing.len()) {
        (1, _) => "hang.one",
        (_, 0) => "hang.stalled",
        (waiting, gone) if gone < waiting => "hang.missing",
        _ => "hang.one",
    };
    let words: [(&str, &dyn Display); 4] =
        [("who", &ranks("Rank", &here)), ("count", &here.len()), ("what", &describe(work, group)), ("gone", &gone)];
    let finding = found(id, &words, lines(timed_out(group).filter_map(|(_, standing, _)| standing.sources.first())));
    let confidence = if here.len() == 1 { 0.5 } else { finding.confidence };
    let gone = if id == "hang.missing" { missing.as_slice() } else { &[] };
    Some(about(Finding { confidence, ..finding }, gone, None))
}

/// `collective 500 (ALLREDUCE, 1000 elements) of default_pg`.
fn describe(work: &TorchWork, group: &ProcessGroup) -> String {
    let elements = work.numel_in.map_or(String::new(), |n| format!(", {n} element{}", if n == 1 { "" } else { "s" }));
    let what = if work.op.is_empty() { String::new() } else { format!(" ({}{elements})", work.op) };
    format!("{}{what} of {}", numbered(work.sequence), group.name)
}

/// `collective 500`; PyTorch 1.9 tells no number.
fn numbered(sequence: u64) -> String {
    if sequence == 0 { "a collective".into() } else { format!("collective {sequence}") }
}

/// `Rank 0`, `ranks 1, 2, 3`.
pub(crate) fn ranks(word: &str, ranks: &[u32]) -> String {
    format!("{word}{} {}", if ranks.len() > 1 { "s" } else { "" }, list(ranks))
}

/// `rank 0 is missing`.
fn absent(missing: &[u32]) -> String {
    format!("{} {} missing", ranks("rank", missing), if missing.len() > 1 { "are" } else { "is" })
}

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
    let sources = timed_out(one).chain(timed_out(other)).filter_map(|(_, standing, _)| standing.sources.first());
    let words: [(&str, &dyn Display); 3] =
        [("who", &ranks("Rank", &shared)), ("what", &describe(work, one)), ("other", &describe(theirs, other))];
    Some(about(found("hang.crossed", &words, lines(sources)), &shared, Some(CulpritClass::Divergence)))
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
    let sources = case.ends.timeouts.iter().map(|timeout| &timeout.source);
    (!said.is_empty()).then(|| found("hang.watchdog", &[("said", &said.join(", on "))], lines(sources)))
}

/// Watchdogs whose own calls do not return.
fn stuck(case: &Case) -> Option<Finding> {
    let told = case.run.torch_statements.iter().filter(|statement| statement.event == TorchEvent::NoHeartbeat);
    let who: BTreeSet<u32> = told.clone().filter_map(|statement| statement.rank).collect();
    let evidence = lines(told.map(|statement| &statement.source));
    (!evidence.is_empty()).then(|| found("hang.no-heartbeat", &[("who", &all(&who))], evidence))
}

/// `ranks 1, 2`, or words for unknown ranks.
fn all(who: &BTreeSet<u32>) -> String {
    if who.is_empty() { "a rank".into() } else { ranks("rank", &who.iter().copied().collect::<Vec<_>>()) }
}

/// Ranks that a monitored barrier waited for without success, or that `fr_trace` names.
fn named(case: &Case) -> Option<Finding> {
    let mut of_run = case.run.torch_statements.iter().filter(|statement| !case.refuters.is_elsewhere(statement));
    of_run.find_map(|statement| {
        let (id, named, sequence, what) = match &statement.event {
            TorchEvent::BarrierMissed(gone) => ("hang.barrier", gone, 0, ""),
            TorchEvent::NotJoined { ranks, sequence } => ("hang.not-joined", ranks, *sequence, ""),
            TorchEvent::Differs { ranks, sequence, what } => ("hang.differs", ranks, *sequence, what.as_str()),
            _ => return None,
        };
        let number = if sequence == 0 { "A collective".into() } else { format!("Collective {sequence}") };
        let words: [(&str, &dyn Display); 6] = [
            ("who", &ranks("Rank", named)),
            ("gone", &absent(named)),
            ("number", &number),
            ("sequence", &sequence),
            ("group", &statement.group),
            ("what", &what),
        ];
        let class = (id == "hang.differs").then_some(CulpritClass::Divergence);
        (!named.is_empty()).then(|| about(found(id, &words, lines([&statement.source])), named, class))
    })
}

fn mismatch(group: &ProcessGroup) -> Option<Finding> {
    let mismatch = group.mismatches.first()?;
    let (first, _) = mismatch.variants.first()?;
    let said =
        |(work, ranks): &(TorchWork, Vec<u32>)| format!("{} on rank {}", aspect(mismatch.kind, work), list(ranks));
    let said: Vec<String> = mismatch.variants.iter().take(4).map(said).collect();
    let id = match mismatch.kind {
        MismatchKind::Operation => "hang.operation",
        MismatchKind::Size => "hang.size",
        MismatchKind::Datatype => "hang.datatype",
        MismatchKind::Device => "hang.device",
        MismatchKind::Sequence => "hang.sequence",
    };
    let mut evidence = lines(&mismatch.sources);
    evidence.dedup_by(|later, earlier| later.source == earlier.source);
    let words: [(&str, &dyn Display); 4] =
        [("group", &group.name), ("op", &first.op), ("said", &said.join(", ")), ("also", &also(mismatch))];
    let most = mismatch.variants.first().map_or(0, |(_, ranks)| ranks.len());
    let fewer = mismatch.variants.iter().filter(|(_, ranks)| ranks.len() < most);
    let fewer: Vec<u32> = fewer.flat_map(|(_, ranks)| ranks.iter().copied()).collect();
    Some(about(found(id, &words, evidence), &fewer, Some(CulpritClass::Divergence)))
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
    let words: [(&str, &dyn Display); 5] = [
        ("who", &self::ranks("Rank", &ranks)),
        ("group", &group.name),
        ("verb", &verb),
        ("theirs", &theirs),
        ("others", &others),
    ];
    let sources = ranks.iter().filter_map(|rank| group.ranks.get(rank)).flat_map(|rank| &rank.sources);
    Some(about(found("hang.behind", &words, lines(sources)), &ranks, None))
}

/// Errors of ranks that NCCL's RAS reports: the first of a communicator that is not another rank's.
pub fn ras_errors(case: &Case) -> Vec<Finding> {
    let communicators = case.run.ras_reports.iter().flat_map(|report| &report.communicators);
    let error = |comm: &RasCommunicator| {
        let is_remote = |error: &&RasError| error.error == "Remote process error";
        comm.errors.iter().find(|error| !is_remote(error)).or_else(|| comm.errors.first()).map(ras_error)
    };
    communicators.filter_map(error).take(1).collect()
}

fn ras_error(error: &RasError) -> Finding {
    let who = if error.ranks.is_empty() { counted(error.count as usize, "rank") } else { ranks("rank", &error.ranks) };
    let when =
        if error.asynchronous { "It came after the communicator was up" } else { "The communicator did not come up" };
    let code = match error.error.as_str() {
        "Unhandled CUDA error" => Code::GpuError,
        "System error" => Code::NetUnreachable,
        "Remote process error" => Code::PeerDied,
        _ => Code::RankFailed,
    };
    let words: [(&str, &dyn Display); 3] = [("who", &who), ("error", &error.error), ("when", &when)];
    Finding { code, ..found("ras.error", &words, lines([&error.source])) }
}

fn ras(communicator: &RasCommunicator) -> Option<Finding> {
    if communicator.missing_ranks > 0 {
        let missing: Vec<u32> = communicator.missing.iter().map(|rank| rank.rank).collect();
        let (who, verb, place) = match communicator.missing.as_slice() {
            [] => (format!("{} ranks", communicator.missing_ranks), "do", String::new()),
            [one] => (ranks("Rank", &missing), "does", place(one)),
            _ => (ranks("Rank", &missing), "do", String::new()),
        };
        let words = &[("who", &who as &dyn Display), ("verb", &verb), ("place", &place)];
        return Some(about(found("ras.missing", words, lines([&communicator.source])), &missing, None));
    }
    let launched = communicator.launched.iter().find(|launched| launched.differs())?;
    let behind = launched.behind()?;
    let who = if behind.ranks.is_empty() { format!("{} ranks", behind.count) } else { ranks("Rank", &behind.ranks) };
    let words: [(&str, &dyn Display); 4] =
        [("who", &who), ("value", &behind.value), ("operation", &launched.operation), ("most", &launched.most())];
    Some(about(found("ras.behind", &words, lines([&behind.source])), &behind.ranks, None))
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
