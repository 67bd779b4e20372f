//! Puts process groups together from the watchdog lines and flight-recorder dumps of any number of ranks.

use super::Recording;
use busbw_model::{
    CollectiveMismatch, FlightEntry, GroupName, MismatchKind, ProcessGroup, RankStanding, SourceLine, Standing,
    TorchEvent, TorchStatement, TorchWork, WorkState,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// Mismatches beyond this number add nothing new: after the first, everything differs.
const MOST_MISMATCHES: usize = 64;
/// Lines kept as evidence of where one rank is.
const MOST_SOURCES: usize = 8;

/// What is known of every process group so far, apart for each start of a job whose dumps were given together.
#[derive(Debug, Default)]
pub(crate) struct ProcessGroups {
    starts: Vec<Start>,
}

/// The groups of one start of a job.
#[derive(Debug, Default)]
struct Start {
    groups: Vec<Gathered>,
    /// By the key that distinguishes groups of the whole job.
    by_key: FxHashMap<String, usize>,
    /// Who wrote dumps of it, and from when to when these are.
    ranks: BTreeSet<u32>,
    span_ns: Option<(u64, u64)>,
}

/// Dumps that are so far apart are of two jobs.
const APART_NS: u64 = 600_000_000_000;

impl ProcessGroups {
    /// Takes a dump, to those of its start.
    pub fn recording(&mut self, recording: &Recording) {
        let index = self.starts.iter().position(|start| start.fits(recording)).unwrap_or(self.starts.len());
        if index == self.starts.len() {
            self.starts.push(Start::default());
        }
        self.starts[index].recording(recording);
    }

    /// The groups of the start of which most ranks wrote dumps, with what watchdogs say, the one with most witnesses first; and from when to
    /// when that start is.
    pub fn finish(self, statements: &[TorchStatement]) -> (Vec<ProcessGroup>, Option<(u64, u64)>) {
        let latest = |start: &Start| (start.ranks.len(), start.span_ns);
        let mut start = self.starts.into_iter().max_by_key(latest).unwrap_or_default();
        start.statements(statements);
        let span = start.span_ns;
        (start.finish(), span)
    }
}

#[derive(Debug, Default)]
struct Gathered {
    group: ProcessGroup,
    /// What ranks ran at each sequence number, equal collectives together.
    works: BTreeMap<u64, Vec<Variant>>,
    /// Where a rank's recorder has an operation that never followed the one before it so far.
    unusual: FxHashMap<u32, BTreeSet<u64>>,
}

#[derive(Debug)]
struct Variant {
    work: TorchWork,
    ranks: Vec<u32>,
    source: SourceLine,
}

impl Start {
    /// Whether a dump is of this start: of a rank that has none yet, and of the same time.
    fn fits(&self, recording: &Recording) -> bool {
        let dump = &recording.dump;
        let again = dump.rank.is_some_and(|rank| self.ranks.contains(&rank));
        let (Some((first, last)), Some((begin, end))) = (dump.span_ns, self.span_ns) else { return !again };
        let is_new = first > end && recording.entries.iter().any(|entry| entry.work.sequence == 1);
        !again && !is_new && first <= end.saturating_add(APART_NS) && begin <= last.saturating_add(APART_NS)
    }

    fn statements(&mut self, statements: &[TorchStatement]) {
        let numbered = statements.iter().any(|told| is_number(&told.group));
        for statement in statements {
            let Some(rank) = statement.rank else { continue };
            let name = match &statement.event {
                TorchEvent::Timeout { work, .. } if statement.group == GroupName::default() => {
                    match group_that_failed(statements, rank, work.sequence) {
                        // It may be of any of the groups that others number, so it is compared with none.
                        None if numbered => continue,
                        known => known.unwrap_or_default(),
                    }
                }
                _ => statement.group.clone(),
            };
            match &statement.event {
                TorchEvent::Timeout { work, .. } => self.timeout(name, (rank, work, &statement.source)),
                TorchEvent::Standing { standing, .. } => self.standing(&name, rank, (*standing, &statement.source)),
                TorchEvent::Mismatch { mine, other, theirs } => {
                    let Some(group) = self.group(&name) else { continue };
                    group.mismatch(&[(rank, mine), (*other, theirs)], &statement.source);
                }
                _ => {}
            }
        }
    }

    fn recording(&mut self, recording: &Recording) {
        // Gloo's groups have no name there, and the last one that was made stands for all.
        let named = |(name, _): &&(GroupName, Vec<u32>)| name.name.is_some() || name.description.is_some();
        for (name, members) in recording.dump.members.iter().filter(named) {
            if let Some(group) = self.group(name) {
                group.group.members = members.clone();
            }
        }
        let Some(rank) = recording.dump.rank else { return };
        self.ranks.insert(rank);
        if let Some((first, last)) = recording.dump.span_ns {
            let (begin, end) = self.span_ns.unwrap_or((first, last));
            self.span_ns = Some((begin.min(first), end.max(last)));
        }
        // Gloo counts sends and receives there as well, and collectives alone in its entries.
        let standing = recording.dump.standing.iter().filter(|_| !recording.of_gloo());
        for (name, standing) in standing {
            self.standing(name, rank, (*standing, &recording.dump.source));
        }
        if recording.dump.cut {
            return;
        }
        let mut runs: Vec<&FlightEntry> = recording.entries.iter().filter(|entry| !entry.p2p).collect();
        runs.sort_by_key(|entry| (entry.group.clone(), entry.work.sequence));
        for of_group in runs.chunk_by(|a, b| a.group == b.group) {
            let unusual = unusual(of_group);
            if let Some(group) = self.group(&of_group[0].group) {
                group.unusual.insert(rank, unusual);
            }
        }
        for run in runs.chunk_by(|a, b| a.group == b.group && a.work.sequence == b.work.sequence) {
            let Some(group) = self.group(&run[0].group) else { continue };
            // Several operations under one number were coalesced; ranks may fill such a group differently.
            if let [entry] = run {
                group.works(entry.work.sequence, (rank, &entry.work, &entry.source));
            }
            let open = run.iter().find(|entry| entry.state != WorkState::Completed);
            group.recorded(rank, run[0], open.copied());
        }
    }

    /// The groups, the one with most witnesses first.
    fn finish(self) -> Vec<ProcessGroup> {
        let mut groups: Vec<ProcessGroup> = self.groups.into_iter().map(Gathered::finish).collect();
        groups.retain(|group| !group.ranks.is_empty() || !group.mismatches.is_empty());
        groups.sort_by_key(|group| std::cmp::Reverse(group.ranks.len()));
        groups
    }

    /// The group of a name. `None` for a number alone beyond the first group's: processes number their groups
    /// themselves, so that equal numbers may be different groups.
    fn group(&mut self, name: &GroupName) -> Option<&mut Gathered> {
        let key = match name {
            GroupName { name: Some(name), .. } => name.clone(),
            GroupName { description: Some(description), .. } => format!("({description})"),
            GroupName { id: Some(0), .. } => "0".to_string(),
            GroupName { id: Some(_), .. } => return None,
            _ => String::new(),
        };
        let next = self.groups.len();
        let index = *self.by_key.entry(key).or_insert(next);
        if index == next {
            self.groups.push(Gathered::default());
        }
        let group = &mut self.groups[index];
        let known = &mut group.group.name;
        known.id = known.id.or(name.id);
        known.name = known.name.take().or_else(|| name.name.clone());
        known.description = known.description.take().or_else(|| name.description.clone());
        Some(group)
    }

    fn timeout(&mut self, name: GroupName, (rank, work, source): (u32, &TorchWork, &SourceLine)) {
        let Some(group) = self.group(&name) else { return };
        let standing = group.rank(rank, source);
        standing.timed_out = true;
        if standing.stuck_in.as_ref().is_none_or(|known| work.sequence < known.sequence) {
            standing.stuck_in = Some(work.clone());
        }
        let (enqueued, is_p2p) = (work.sequence, work.is_between_two());
        if enqueued > 0 && !is_p2p {
            standing.standing.enqueued = standing.standing.enqueued.max(Some(enqueued));
        }
        // Of a line that is cut, the operation is not known.
        if enqueued > 0 && !is_p2p && !work.op.is_empty() {
            group.works(enqueued, (rank, work, source));
        }
    }

    fn standing(&mut self, name: &GroupName, rank: u32, (said, source): (Standing, &SourceLine)) {
        let Some(group) = self.group(name) else { return };
        let known = &mut group.rank(rank, source).standing;
        *known = Standing {
            enqueued: known.enqueued.max(said.enqueued),
            started: known.started.max(said.started),
            completed: known.completed.max(said.completed),
        };
    }
}

/// Where a recorder has an operation that it never had behind the one before: numbers of a group's operations in order.
fn unusual(entries: &[&FlightEntry]) -> BTreeSet<u64> {
    let what = |entry: &FlightEntry| {
        (entry.work.op.clone(), entry.work.numel_in, entry.work.datatype.clone(), entry.called_at.clone())
    };
    let mut seen = FxHashSet::default();
    let pairs = entries.windows(2).filter_map(|pair| {
        let new = seen.insert((what(pair[0]), what(pair[1])));
        new.then_some(pair[1].work.sequence)
    });
    pairs.collect()
}

/// Whether a group has a number alone, which each process counts by itself.
fn is_number(name: &GroupName) -> bool {
    name.name.is_none() && name.description.is_none() && name.id.is_some_and(|id| id > 0)
}

/// The group whose watchdog says that it failed at this work: the rank's own, else the only one of which any rank says so.
fn group_that_failed(statements: &[TorchStatement], rank: u32, sequence: u64) -> Option<GroupName> {
    let failed = |s: &&TorchStatement| {
        matches!(s.event, TorchEvent::Standing { failed_at: Some(at), .. } if at == sequence)
            && s.group != GroupName::default()
    };
    let mut groups = statements.iter().filter(failed);
    if let Some(own) = groups.clone().find(|statement| statement.rank == Some(rank)) {
        return Some(own.group.clone());
    }
    let first = groups.next()?;
    groups.all(|other| other.group.to_string() == first.group.to_string()).then(|| first.group.clone())
}

impl Gathered {
    fn rank(&mut self, rank: u32, source: &SourceLine) -> &mut RankStanding {
        let standing = self.group.ranks.entry(rank).or_default();
        if standing.sources.len() < MOST_SOURCES && !standing.sources.contains(source) {
            standing.sources.push(source.clone());
        }
        standing
    }

    fn works(&mut self, sequence: u64, (rank, work, source): (u32, &TorchWork, &SourceLine)) {
        let variants = self.works.entry(sequence).or_default();
        match variants.iter_mut().find(|variant| is_same(&variant.work, work)) {
            Some(variant) if variant.ranks.contains(&rank) => {}
            Some(variant) => variant.ranks.push(rank),
            None => variants.push(Variant { work: work.clone(), ranks: vec![rank], source: source.clone() }),
        }
    }

    fn mismatch(&mut self, sides: &[(u32, &TorchWork); 2], source: &SourceLine) {
        // Numbers differ when a rank left operations out; the comparison is of what both ran at once.
        let [(_, mine), (other, theirs)] = sides;
        for (rank, work) in sides {
            self.works(mine.sequence, (*rank, work, source));
        }
        // PyTorch reported a difference; if all else is equal, the sequence numbers differ.
        if mine.sequence != theirs.sequence && is_same(mine, theirs) {
            let variants = self.works.entry(mine.sequence).or_default();
            variants.iter_mut().for_each(|variant| variant.ranks.retain(|rank| rank != other));
            let (work, ranks) = ((*theirs).clone(), vec![*other]);
            variants.push(Variant { work, ranks, source: source.clone() });
        }
    }

    /// What a flight recorder's entries of one number show about the rank.
    fn recorded(&mut self, rank: u32, any: &FlightEntry, open: Option<&FlightEntry>) {
        let source = open.unwrap_or(any).source.clone();
        let is_news = open.is_some() || !self.group.ranks.contains_key(&rank);
        let standing = if is_news { self.rank(rank, &source) } else { self.group.ranks.entry(rank).or_default() };
        let sequence = Some(any.work.sequence);
        standing.standing.enqueued = standing.standing.enqueued.max(sequence);
        let Some(open) = open else {
            standing.standing.completed = standing.standing.completed.max(sequence);
            return;
        };
        if standing.stuck_in.as_ref().is_none_or(|known| open.work.sequence <= known.sequence) {
            standing.stuck_in = Some(open.work.clone());
            standing.state = Some(open.state);
            standing.called_at = open.called_at.clone();
        }
    }

    fn finish(mut self) -> ProcessGroup {
        let differing = self.works.into_iter().filter(|(_, variants)| variants.len() > 1);
        let mismatches = differing.filter_map(|(sequence, mut variants)| {
            variants.sort_by_key(|variant| std::cmp::Reverse(variant.ranks.len()));
            let kind = variants.iter().skip(1).filter_map(|v| difference(&variants[0].work, &v.work)).min()?;
            let sources = variants.iter().map(|variant| variant.source.clone()).collect();
            let here = variants.iter().flat_map(|variant| variant.ranks.iter().copied());
            let unusual = here.filter(|rank| self.unusual.get(rank).is_some_and(|at| at.contains(&sequence))).collect();
            let variants = variants.into_iter().map(|v| (v.work, v.ranks)).collect();
            Some(CollectiveMismatch { sequence, kind, variants, sources, unusual })
        });
        self.group.mismatches = mismatches.take(MOST_MISMATCHES).collect();
        self.group
    }
}

/// Whether two ranks' works count as one. A timeout is each rank's own.
fn is_same(a: &TorchWork, b: &TorchWork) -> bool {
    (&a.op, a.numel_in, a.numel_out) == (&b.op, b.numel_in, b.numel_out)
        && same_if_known(&a.datatype, &b.datatype)
        && same_if_known(&a.shape, &b.shape)
        && same_if_known(&a.device, &b.device)
}

fn same_if_known<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// What differs between two works that should be one; `None` for differences that are allowed, as of all-to-all's sizes.
fn difference(a: &TorchWork, b: &TorchWork) -> Option<MismatchKind> {
    if a.op != b.op {
        return Some(MismatchKind::Operation);
    }
    let sizes = same_if_known(&a.numel_in, &b.numel_in) && same_if_known(&a.numel_out, &b.numel_out);
    if a.has_equal_sizes() && !sizes || !same_if_known(&a.shape, &b.shape) {
        return Some(MismatchKind::Size);
    }
    let differs = [
        (!same_if_known(&a.datatype, &b.datatype), MismatchKind::Datatype),
        (!same_if_known(&a.device, &b.device), MismatchKind::Device),
        (a.sequence != b.sequence, MismatchKind::Sequence),
    ];
    differs.into_iter().find(|(differs, _)| *differs).map(|(_, kind)| kind)
}
