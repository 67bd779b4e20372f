//! Who holds a job up, as `busbw watch` saw its ranks: ended, stopped, unreachable, elsewhere than the others, or busy.

mod network;
mod places;
mod told;

use crate::case::Case;
use crate::ends::{Weight, weight};
use crate::words::listed;
use busbw_model::{
    EndTeller, Ended, Evidence, Finding, Place, ProcessEnd, ProcessState, RankEnd, SourceLine, Watched, WatchedRank,
};
use network::{deaf, unreachable};
use places::{by_calls, elsewhere};
use std::collections::BTreeSet;

/// Ranks and hosts that are named at most.
const MOST: usize = 8;
/// A rank that uses less of a core than this only waits; one that uses more than `BUSY` computes.
const WAITS: f64 = 0.2;
const BUSY: f64 = 0.5;
/// Ranks that end so close to each other may have failed in either order: what takes longer to end is seen later.
const TIE_US: u64 = 100_000;
/// Signals by which launchers and schedulers ask all ranks to end.
const ASKED: [i32; 2] = [2, 15];

/// One finding: the fault that explains the rest.
pub fn rule(case: &Case) -> Vec<Finding> {
    fault(case).map(|fault| fault.finding(case)).into_iter().collect()
}

/// What kind of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Its process left with an exit status that is not 0.
    Failed,
    /// A signal ended its process.
    Killed,
    /// It ended well, and others still wait for it.
    Left,
    /// A signal holds its process.
    Stopped,
    /// A host acknowledges nothing.
    Unreachable,
    /// It waits inside the kernel, for a disk or a driver.
    Device,
    /// It is elsewhere in the program than the others.
    Elsewhere,
    /// It computes while the others wait.
    Busy,
    /// It acknowledges and reads nothing; its process is not seen here.
    Deaf,
    /// It failed because of another that is not seen here.
    Followed,
    /// Nobody is told from the others.
    Unknown,
}

/// Who is at fault, and what it does instead of what the others wait for.
#[derive(Debug, Clone)]
pub(crate) struct Fault<'a> {
    pub class: Class,
    pub ranks: Vec<u32>,
    pub host: Option<String>,
    pub doing: String,
    since_us: u64,
    seen: Seen<'a>,
    evidence: Vec<Evidence>,
}

/// Everything that was seen, of all hosts.
#[derive(Debug, Clone)]
struct Seen<'a> {
    documents: Vec<(Place, &'a Watched)>,
    ranks: Vec<One<'a>>,
}

/// A rank, and the document that it is in.
#[derive(Debug, Clone, Copy)]
struct One<'a> {
    rank: &'a WatchedRank,
    of: &'a Watched,
    place: Place,
}

/// The fault that explains the others, if anybody watched.
pub(crate) fn fault<'a>(case: &Case<'a>) -> Option<Fault<'a>> {
    let seen = Seen::of(case)?;
    let stalled = seen.documents.iter().any(|(_, watched)| watched.stall.is_some());
    // What came first explains what follows.
    let surest = [failed(case, &seen), stopped(&seen)].into_iter().flatten().min_by_key(|fault| fault.since_us);
    if surest.is_some() || !stalled {
        return surest.or_else(|| followed(&seen));
    }
    left(&seen)
        .or_else(|| unreachable(&seen))
        .or_else(|| device(&seen))
        .or_else(|| elsewhere(case, &seen))
        .or_else(|| busy(&seen))
        .or_else(|| by_calls(&seen))
        .or_else(|| deaf(&seen))
        .or_else(|| Some(seen.fault(Class::Unknown, &[], String::new())))
}

impl<'a> Seen<'a> {
    fn of(case: &Case<'a>) -> Option<Self> {
        let documents: Vec<(Place, &Watched)> =
            case.run.watched.iter().map(|(place, watched)| (*place, watched)).collect();
        let ranks =
            documents.iter().flat_map(|(place, of)| of.ranks.iter().map(|rank| One { rank, of, place: *place }));
        let mut ranks: Vec<One> = ranks.collect();
        ranks.sort_by_key(|one| one.rank.rank);
        (!documents.is_empty()).then_some(Seen { documents, ranks })
    }

    /// The ranks that run.
    fn there(&self) -> impl Iterator<Item = One<'a>> {
        self.ranks.iter().copied().filter(|one| one.rank.ended.is_none())
    }

    fn since(&self) -> u64 {
        let stalls = self.documents.iter().filter_map(|(_, watched)| watched.stall);
        stalls.map(|stall| stall.since_us).max().unwrap_or(0)
    }

    fn fault(&self, class: Class, those: &[One<'a>], doing: String) -> Fault<'a> {
        let ranks: BTreeSet<u32> = those.iter().map(|one| one.rank.rank).collect();
        let hosts: BTreeSet<&str> = those.iter().map(|one| one.rank.host.as_str()).collect();
        let host = (hosts.len() == 1).then(|| hosts.into_iter().next().unwrap_or_default().to_owned());
        Fault {
            class,
            ranks: ranks.into_iter().collect(),
            host,
            doing,
            since_us: self.since(),
            seen: self.clone(),
            evidence: those.iter().map(|one| one.evidence()).collect(),
        }
    }

    /// How many ranks the job has, and how many of them were seen.
    fn unseen(&self) -> u32 {
        let all = self.documents.iter().filter_map(|(_, watched)| watched.nranks).max().unwrap_or(0);
        all.saturating_sub(u32::try_from(self.ranks.len()).unwrap_or(u32::MAX))
    }
}

impl One<'_> {
    fn evidence(&self) -> Evidence {
        let WatchedRank { rank, host, pid, state, cores, .. } = self.rank;
        let call = self.rank.system_call.as_ref().map_or(String::new(), |call| format!(", in {call}"));
        let text = match self.rank.ended {
            Some(end) => format!("rank {rank} on {host}, process {pid}: {}", how(&end)),
            None => format!("rank {rank} on {host}, process {pid}: {}{call}, {cores:.2} cores", state.as_str()),
        };
        Evidence::new(SourceLine::new(self.place, &text))
    }
}

fn how(end: &ProcessEnd) -> String {
    match (end.signal, end.status) {
        (Some(signal), _) => format!("killed by {}", name_of(signal)),
        (None, Some(status)) => format!("ended with exit status {status}"),
        (None, None) => "ended".into(),
    }
}

/// The usual signals by name; signal(7).
fn name_of(signal: i32) -> String {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    let known = names.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// The first rank that failed by itself; a launcher then ends the others. What ended after a standstill had been told follows from it.
fn failed<'a>(case: &Case<'a>, seen: &Seen<'a>) -> Option<Fault<'a>> {
    let told = seen.documents.iter().filter_map(|(_, watched)| watched.stall);
    let told = told.map(|stall| stall.since_us + stall.limit_us).min().unwrap_or(u64::MAX);
    let ended = |one: &One<'a>| Some((one.rank.ended.filter(|end| end.failed() && end.time_us < told)?, *one));
    let asked = |end: &ProcessEnd| end.signal.is_some_and(|signal| ASKED.contains(&signal));
    // Others that were asked to end, and failed ones beside them: those explain it.
    let alone = !seen.ranks.iter().filter_map(ended).any(|(end, _)| !asked(&end));
    // A rank that lost its connection to another says so, and the other need not be seen here.
    let said = |one: &One<'a>| {
        let number = one.rank.rank;
        let own = move |end: &&RankEnd| end.ranks == [number] && matches!(end.how, Ended::Exception { .. });
        case.run.ends.iter().filter(own)
    };
    let of_another = |end: &RankEnd| weight(&end.how, false) == Weight::Consequence;
    let follows = |one: &One<'a>| said(one).next().is_some() && said(one).all(of_another);
    let all: Vec<(ProcessEnd, One)> = seen
        .ranks
        .iter()
        .filter(|one| !follows(one))
        .filter_map(ended)
        .filter(|(end, _)| alone || !asked(end))
        .collect();
    let earliest = all.iter().min_by_key(|(end, _)| end.time_us);
    let says_why = |one: &One<'a>| said(one).any(|end| !of_another(end));
    let may_follow = !all.iter().any(|(_, one)| says_why(one)) && earliest.is_none_or(|(end, _)| end.signal.is_none());
    if may_follow && let Some(killed) = killed_then(case, seen, earliest.map(|(end, _)| end)) {
        return Some(killed);
    }
    let (end, first) = earliest?;
    let class = if end.signal.is_some() { Class::Killed } else { Class::Failed };
    // Of several at once, the one that says why; where none does, any may be the first.
    let alike = |(other, _): &&(ProcessEnd, One)| other.time_us <= end.time_us + TIE_US && how(other) == how(end);
    // What started them had taken the status of some before anybody looked.
    let unseen = |one: &One| {
        let other = one.rank.ended.filter(|other| other.status.is_none() && other.signal.is_none());
        other.is_some_and(|other| other.time_us.abs_diff(end.time_us) <= TIE_US)
    };
    let failed = all.iter().filter(alike).map(|(_, one)| *one);
    let mut at_once: Vec<One> = failed.chain(seen.ranks.iter().copied().filter(unseen)).collect();
    at_once.sort_by_key(|one| one.rank.rank);
    let speaks = at_once.iter().find(|one| says_why(one));
    let those = if class == Class::Failed { speaks.map_or(at_once.clone(), |one| vec![*one]) } else { vec![*first] };
    Some(Fault { since_us: end.time_us, ..seen.fault(class, &those, how(end)) })
}

/// A rank that a signal ended when another left with a status: who loses a peer leaves at once, and the looks at both may come in any order. What started it
/// may have taken the status away before busbw saw it, and tells it.
fn killed_then<'a>(case: &Case<'a>, seen: &Seen<'a>, left: Option<&ProcessEnd>) -> Option<Fault<'a>> {
    let told = |one: &One| {
        let is_of_it = |end: &&RankEnd| {
            end.pid == Some(one.rank.pid.into()) || end.told_by == EndTeller::Launcher && end.ranks == [one.rank.rank]
        };
        let by_signal = |end: &RankEnd| matches!(end.how, Ended::Killed(_) | Ended::Crash { .. });
        case.run.ends.iter().filter(is_of_it).any(by_signal)
    };
    let killed = seen.ranks.iter().filter_map(|one| Some((one.rank.ended?, *one))).find(|(end, one)| {
        let by_signal = end.signal.map_or_else(|| end.status.is_none() && told(one), |signal| !ASKED.contains(&signal));
        by_signal && left.is_none_or(|left| end.time_us.abs_diff(left.time_us) <= TIE_US)
    });
    let (end, one) = killed?;
    let how = if end.signal.is_some() { how(&end) } else { "was ended by a signal, says what started it".into() };
    Some(Fault { since_us: end.time_us, ..seen.fault(Class::Killed, &[one], how) })
}

/// The first rank that failed because of another.
fn followed<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let ended = |one: &One<'a>| Some((one.rank.ended.filter(ProcessEnd::failed)?, *one));
    let (end, one) = seen.ranks.iter().filter_map(ended).min_by_key(|(end, _)| end.time_us)?;
    Some(Fault { since_us: end.time_us, ..seen.fault(Class::Followed, &[one], how(&end)) })
}

fn stopped<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let those: Vec<One> = seen.there().filter(|one| one.rank.is_stopped()).collect();
    let first = those.iter().min_by_key(|one| one.rank.state_since_us)?;
    let doing = match first.rank.state {
        ProcessState::Traced => "a debugger holds it",
        _ => "a signal holds it (SIGSTOP)",
    };
    Some(Fault { since_us: first.rank.state_since_us, ..seen.fault(Class::Stopped, &those, doing.into()) })
}

fn left<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let ended = |one: &One| one.rank.ended.is_some_and(|end| !end.failed());
    let those: Vec<One> = seen.ranks.iter().copied().filter(ended).collect();
    let first = those.iter().filter_map(|one| one.rank.ended).min_by_key(|end| end.time_us)?;
    let waits = seen.there().next().is_some();
    waits.then(|| Fault { since_us: first.time_us, ..seen.fault(Class::Left, &those, how(&first)) })
}

fn device<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let those: Vec<One> =
        seen.there().filter(|one| one.rank.state == ProcessState::Uninterruptible && one.rank.cores < WAITS).collect();
    let first = those.first().filter(|_| those.len() < seen.there().count())?;
    let at = first.rank.kernel_function.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    let doing = format!("it waits inside the kernel, for a disk or a driver{at}");
    Some(seen.fault(Class::Device, &those, doing))
}

/// Ranks that compute while others only wait. With GPUs all that wait for one look busy, and none is told from the others.
fn busy<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    let those: Vec<One> = seen.there().filter(|one| one.rank.cores >= BUSY).collect();
    let waiting = seen.there().filter(|one| one.rank.cores < WAITS).count();
    let first = those.first().filter(|_| those.len() <= waiting && those.len() + waiting == seen.there().count())?;
    let doing = format!("it computes ({:.1} cores)", first.rank.cores);
    Some(seen.fault(Class::Busy, &those, doing))
}

/// `rank 1 or rank 3`.
fn either(those: &[u32]) -> String {
    let named: Vec<String> = those.iter().take(MOST).map(|rank| format!("rank {rank}")).collect();
    named.join(" or ")
}

/// `rank 2`, `ranks 0, 1, 3`.
fn ranks(those: &[u32]) -> String {
    format!("rank{} {}", if those.len() == 1 { "" } else { "s" }, listed(those.iter(), MOST))
}
