//! For whom the others wait: sets over the dumps, stacks and outputs of all ranks.
//!
//! Each sign is a set of ranks that stand out. The first that applies counts, and those behind it narrow it down: a rank that lacks a
//! dump may be two ranks, of which one has output that simply stops.

mod explained;
mod gloo;
mod links;
mod moment;
mod output;
mod paces;
mod shown;
mod stalled;
mod waits;

use crate::case::Case;
use crate::ranks::{RankSet, RankView, Ranks};
use busbw_model::{
    CollectiveCall, CulpritClass, Ended, Evidence, FlightEntry, GroupName, ProcessGroup, RankEnd, Suspects, WorkState,
};
use explained::Cause;
use moment::is_of_a_moment;
pub(crate) use moment::{is_unsure_of, moved};
pub(crate) use shown::{call_of, class_of_stack, has_lost, is_in_collective, waits};
use shown::{has_timed_out, is_between_two, is_idle, is_killed, is_of_sizes, lives_elsewhere, may_wait};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Who is at fault, where the inputs show that ranks wait for others.
pub(crate) fn suspects(case: &Case) -> Option<Suspects> {
    let job = Job::of(case);
    let all = case.ranks.all();
    if job.ended_well() {
        return None;
    }
    if let Some(stalled) = job.stalled() {
        return Some(stalled);
    }
    let waiting = job.waiting();
    let diverged = job.diverged();
    let outside = if case.ends.are_over() { job.outside_collectives() } else { RankSet::new() };
    let apart = [&job.cut_off(), &job.unreachable(), &job.stopped()].iter().any(|ranks| !ranks.is_empty());
    let shown = apart || [&waiting, &diverged, &outside].iter().any(|ranks| !ranks.is_empty());
    let of_two = diverged.len() == 2 && case.run.flight_dumps.is_empty();
    if all.len() < 2 || of_two || !shown || is_of_a_moment(case) || is_dumps_alone(case) && moved(case) {
        return None;
    }
    let signs = job.signs(diverged.clone());
    let mut suspects = all.clone();
    for sign in &signs {
        let narrowed: RankSet = suspects.intersection(sign).copied().collect();
        if !narrowed.is_empty() && sign.len() < all.len() {
            suspects = narrowed;
        }
    }
    // Of a host whose launcher does not end, one rank is stopped, and nothing tells which.
    let one_of_many = suspects.len() > 1 && case.ranks.which(|view| view.stopped.is_some()).is_empty();
    if suspects.len() == all.len() || one_of_many && suspects.is_subset(&job.stopped()) {
        return None;
    }
    let class = job.class(&suspects, &diverged);
    if class == Some(CulpritClass::Network) && suspects.iter().all(|rank| job.misses_data(*rank)) {
        job.widen_to_host(&mut suspects);
    }
    if class.is_none() && job.may_only_lack(&suspects) {
        return None;
    }
    // Where nothing shows what they do, most ranks are not the ones that the others wait for.
    if class.is_none() && suspects.len() * 2 > all.len() {
        return None;
    }
    // A cable is of one host: where it may be that of several, none is named.
    if class == Some(CulpritClass::Network) && job.hosts_of(&suspects).len() > 1 {
        suspects.clear();
    }
    Some(Suspects::of(suspects.into_iter().collect(), class))
}

/// Whether more is given than dumps: others are seen to fail, or to stand still.
fn is_told(case: &Case) -> bool {
    has_outputs(case) || !case.run.stacks.is_empty() || case.ends.are_over()
}

/// Whether the output of a rank is given.
fn has_outputs(case: &Case) -> bool {
    case.run.outputs.iter().any(|output| output.rank.is_some())
}

/// Whether nothing but dumps is given.
pub(crate) fn is_dumps_alone(case: &Case) -> bool {
    !case.run.flight_dumps.is_empty() && !is_told(case)
}

/// Whether the output of the job shows that it went on and ended well.
pub(crate) fn ended_well(case: &Case) -> bool {
    Job::of(case).ended_well()
}

/// Ranks that wait for others.
pub(crate) fn waiting(case: &Case) -> RankSet {
    Job::of(case).waiting()
}

/// Whether nothing shows what the suspects do instead.
pub(crate) fn is_without_stack(case: &Case, suspects: &Suspects) -> bool {
    suspects.ranks.iter().all(|rank| case.ranks.get(*rank).is_none_or(|view| view.stack.is_none()))
}

/// Lines that show it: of the suspects, then of those that wait.
pub(crate) fn evidence(case: &Case, suspects: &Suspects) -> Vec<Evidence> {
    const MOST: usize = 4;
    let lines = |rank: &u32| {
        let view = case.ranks.get(*rank);
        let stack = view.and_then(|view| view.stack?.frames.first());
        let lines = [
            view.and_then(|view| view.stopped.or(view.unended)),
            view.and_then(|view| view.end.map(|end| &end.source)),
            stack,
            view.and_then(|view| Some(&view.dump?.at.as_ref()?.source)),
            view.and_then(|view| view.output.map(|output| &output.last)),
        ];
        lines.into_iter().flatten().next().map(|line| Evidence::noted(line.clone(), format!("rank {rank}")))
    };
    let waiting = waiting(case);
    let others = waiting.iter().filter(|rank| !suspects.ranks.contains(rank));
    suspects.ranks.iter().chain(others).filter_map(lines).take(MOST).collect()
}

struct Job<'a> {
    case: &'a Case<'a>,
    ranks: &'a Ranks<'a>,
    causes: OnceCell<Vec<Cause>>,
    /// Of which collectives of which groups it is known whether they were called alike: all calls of a group are looked at for one.
    alike: RefCell<BTreeMap<(usize, u64), bool>>,
    known: waits::Known,
}

/// Where a rank is, by its dump.
fn at<'a>(ranks: &'a Ranks, rank: u32) -> Option<&'a FlightEntry> {
    ranks.get(rank)?.dump?.at.as_ref()
}

impl<'a> Job<'a> {
    fn of(case: &'a Case<'a>) -> Self {
        Job {
            case,
            ranks: &case.ranks,
            causes: OnceCell::new(),
            alike: RefCell::default(),
            known: waits::Known::default(),
        }
    }

    /// Sets of ranks that stand out, the surest first.
    fn signs(&self, diverged: RankSet) -> [RankSet; 25] {
        // Who has no dump may just not have been asked for it: others must be seen to fail, or to stand still.
        let told = is_told(self.case);
        let of_told = |sign: RankSet| if told { sign } else { RankSet::new() };
        [
            self.cut_off(),
            self.slowed(),
            self.unreachable(),
            self.stopped(),
            self.killed(),
            of_told(self.others_than_who_waits()),
            diverged,
            self.sizes_differ(),
            self.waited_for(),
            self.idle(),
            self.outside_collectives(),
            self.stands_elsewhere(),
            self.silent(),
            self.went_another_way(),
            self.past_all(),
            self.alone(),
            self.ended_unheard(),
            self.counts_less(),
            self.elsewhere(),
            self.explained(),
            self.earliest(),
            self.late(),
            of_told(self.supposed()),
            of_told(self.without_dump()),
            self.speaks_otherwise(),
        ]
    }

    /// Whether ranks may stand out only because their dumps were not given: no rank says that it waited in vain. It may as well be the network.
    fn may_only_lack(&self, suspects: &RankSet) -> bool {
        let lacks = |rank: &u32| self.ranks.get(*rank).is_none_or(|view| view.dump.is_none());
        let nobody_lost = self.ranks.which(|view| view.end.is_some_and(has_lost)).is_empty();
        !self.case.run.flight_dumps.is_empty()
            && suspects.iter().all(lacks)
            && nobody_lost
            && self.case.ends.timeouts.is_empty()
    }

    fn groups(&self) -> &'a [ProcessGroup] {
        &self.case.run.process_groups
    }

    fn group_of(&self, entry: &FlightEntry) -> Option<&'a ProcessGroup> {
        self.groups().get(self.index_of(&entry.group)?)
    }

    /// Which of the groups has a name; each process counts its groups itself.
    fn index_of(&self, name: &GroupName) -> Option<usize> {
        self.groups().iter().position(|group| match (&group.name.name, &name.name) {
            (Some(one), Some(other)) => one == other,
            _ => group.name.to_string() == name.to_string(),
        })
    }

    /// Ranks that wait for others: in an operation that is open, by a time-out or a lost connection, by their stack.
    fn waiting(&self) -> RankSet {
        let late = self.groups().iter().flat_map(|group| &group.ranks).filter(|(_, standing)| standing.timed_out);
        let mut waiting: RankSet = late.map(|(rank, _)| *rank).collect();
        waiting.extend(self.ranks.which(|view| {
            let open = view.dump.and_then(|dump| dump.at.as_ref()).is_some_and(|at| at.state != WorkState::Completed);
            open || view.end.is_some_and(has_lost) || view.stack.is_some_and(is_in_collective)
        }));
        waiting
    }

    /// Whether the output of ranks is there and shows no failure: dumps and stacks are of a job that went on.
    fn ended_well(&self) -> bool {
        let ends = &self.case.ends;
        let told = self.case.run.inputs.iter().any(|input| input.kinds.is_empty() && input.lines > 0);
        told && !ends.are_over() && ends.beside.is_empty()
    }

    /// The hosts of ranks, as far as they are known.
    fn hosts_of(&self, ranks: &RankSet) -> BTreeSet<&'a str> {
        ranks.iter().filter_map(|rank| self.ranks.get(*rank)?.host).collect()
    }

    /// All ranks of the suspects' host, where nothing gets through to it: the cable is the host's.
    fn widen_to_host(&self, suspects: &mut RankSet) {
        let ranks: Vec<u32> = suspects.iter().copied().collect();
        if let Some(host) = self.ranks.host_of(&ranks) {
            suspects.extend(self.ranks.which(|view| view.host == Some(host)));
        }
    }

    /// Whether a rank is in an operation that the others of its group called as it did: nothing but data is missing.
    fn misses_data(&self, rank: u32) -> bool {
        let Some(open) = at(self.ranks, rank).filter(|at| at.state != WorkState::Completed) else { return false };
        self.group_of(open).is_some_and(|group| group.ranks.len() > 1)
            && self.waits_for(rank).is_empty()
            && self.may_wait_for(rank).is_empty()
            && self.called_alike(open)
    }

    /// Ranks that are stopped; else those of which one at least does not react to signals.
    fn stopped(&self) -> RankSet {
        let stopped = self.ranks.which(|view| view.stopped.is_some());
        if stopped.is_empty() { self.ranks.which(|view| view.unended.is_some()) } else { stopped }
    }

    /// Whether launchers were told to end their ranks, and all did: torchrun ends by this exception of its own when its ranks have
    /// (`torch/distributed/elastic/multiprocessing/api.py`), and a stopped rank does not.
    fn all_obeyed(&self) -> bool {
        let told =
            |end: &RankEnd| matches!(&end.how, Ended::Exception { kind, .. } if kind.ends_with("SignalException"));
        self.case.run.unended.is_empty() && self.case.run.ends.iter().any(told)
    }

    /// The one rank whose dump shows that it waits for nobody, where those of others show that they wait.
    fn idle(&self) -> RankSet {
        let idle = self.ranks.which(lives_elsewhere);
        let waiting = self.ranks.which(|view| is_idle(view) == Some(false));
        if idle.len() == 1 && !waiting.is_empty() { idle } else { RankSet::new() }
    }

    /// Ranks that called what nobody calls there; where ranks wait in a circle, only those that would open it.
    fn went_another_way(&self) -> RankSet {
        let unusual = self.ranks.which(|view| view.dump.is_some_and(|dump| dump.unusual));
        if unusual.is_empty() {
            return unusual;
        }
        let opens = self.freeing(unusual.iter().copied());
        if opens.is_empty() && self.freeing(self.waited_for_by_any()).is_empty() { unusual } else { opens }
    }

    /// Ranks that a launcher saw killed: by a signal that none but the kernel or a person sends.
    fn killed(&self) -> RankSet {
        let killed = self.case.ends.standing.iter().filter(|end| is_killed(end));
        killed.flat_map(|end| end.ranks.iter().copied()).collect()
    }

    /// Ranks whose operation differs from that of most others under one number; of two kinds that are as many, those that never did it so.
    fn diverged(&self) -> RankSet {
        let Some(mismatch) = self.groups().iter().find_map(|group| group.mismatches.first()) else {
            return RankSet::new();
        };
        let most = mismatch.variants.first().map_or(0, |(_, ranks)| ranks.len());
        let fewer = mismatch.variants.iter().filter(|(_, ranks)| ranks.len() < most);
        let few: RankSet = fewer.flat_map(|(_, ranks)| ranks.iter().copied()).collect();
        if !few.is_empty() {
            return few;
        }
        let all: RankSet = mismatch.variants.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect();
        let unusual = all.iter().copied().filter(|rank| self.is_unusual(*rank) || mismatch.unusual.contains(rank));
        let unusual: RankSet = unusual.collect();
        if unusual.is_empty() { all } else { unusual }
    }

    fn is_unusual(&self, rank: u32) -> bool {
        self.ranks.get(rank).and_then(|view| view.dump).is_some_and(|dump| dump.unusual)
    }

    /// Ranks that the watchdogs' numbers show to be behind.
    fn behind(&self) -> RankSet {
        let behind = self.groups().iter().find_map(ProcessGroup::behind);
        behind.map_or_else(RankSet::new, |(ranks, ..)| ranks.into_iter().collect())
    }

    /// Ranks without a dump that do not say either that they lost the others, where most have one.
    fn without_dump(&self) -> RankSet {
        let with = self.ranks.which(|view| view.dump.is_some()).len();
        let without = self.ranks.which(|view| view.dump.is_none());
        let many = with < 2 || with <= without.len();
        if many { RankSet::new() } else { &without - &self.ranks.which(|view| view.end.is_some_and(has_lost)) }
    }

    /// Ranks whose stack is in no collective, where others' are.
    fn outside_collectives(&self) -> RankSet {
        let (inside, outside): (RankSet, RankSet) = {
            let has = |inside: bool| self.ranks.which(|view| view.stack.is_some_and(|stack| may_wait(stack) == inside));
            (has(true), has(false))
        };
        if inside.is_empty() { RankSet::new() } else { outside }
    }

    /// Ranks whose stack is in a collective, and elsewhere than most others.
    fn stands_elsewhere(&self) -> RankSet {
        self.fewest(|view| view.stack.filter(|stack| may_wait(stack)).map(call_of).filter(|call| !is_between_two(call)))
    }

    /// Ranks whose call fewer others share than that of most.
    fn fewest(&self, call: impl Fn(&RankView) -> Option<CollectiveCall>) -> RankSet {
        let mut by_call: BTreeMap<CollectiveCall, RankSet> = BTreeMap::new();
        for rank in self.ranks.all() {
            if let Some(call) = self.ranks.get(rank).and_then(&call) {
                by_call.entry(call).or_default().insert(rank);
            }
        }
        let most = by_call.values().map(RankSet::len).max().unwrap_or(0);
        by_call.into_values().filter(|ranks| ranks.len() < most).flatten().collect()
    }

    /// What kind of trouble the suspects have.
    fn class(&self, suspects: &RankSet, diverged: &RankSet) -> Option<CulpritClass> {
        let has = |signs: &RankSet| suspects.iter().all(|rank| signs.contains(rank));
        let views = || suspects.iter().filter_map(|rank| self.ranks.get(*rank));
        if has(&self.stopped()) {
            return Some(CulpritClass::Stopped);
        }
        if has(&self.killed()) {
            return Some(CulpritClass::Killed);
        }
        if has(&self.cut_off()) || has(&self.slowed()) || has(&self.unreachable()) {
            return Some(CulpritClass::Network);
        }
        if has(diverged) || has(&self.went_another_way()) {
            return Some(CulpritClass::Divergence);
        }
        if suspects.iter().all(|rank| self.misses_data(*rank)) {
            return Some(CulpritClass::Network);
        }
        if suspects.iter().all(|rank| self.is_in_another(*rank)) {
            return Some(CulpritClass::Divergence);
        }
        if let Some(stack) = views().find_map(|view| view.stack) {
            return Some(class_of_stack(stack));
        }
        if has(&self.past_all())
            || has(&self.alone())
            || has(&self.elsewhere())
            || has(&self.earliest())
            || !self.ranks.which(|view| view.end.is_some_and(is_of_sizes)).is_empty()
        {
            return Some(CulpritClass::Divergence);
        }
        // Whoever waited as long as the others, in the same call, called it in time: another one of that line, or it is cut off.
        if views().all(has_timed_out) && suspects.iter().all(|rank| self.shares_its_call(*rank)) {
            return self.class_of_causes(suspects);
        }
        if views().all(has_timed_out) {
            return Some(CulpritClass::Divergence);
        }
        if has_outputs(self.case)
            && views().all(|view| view.dump.is_none())
            && self.without_dump().len() == suspects.len()
            && !self.all_obeyed()
        {
            return Some(CulpritClass::Stopped);
        }
        // Who writes its dump lives, and does something else than what the others wait in.
        let others_lost = !self.ranks.which(|view| view.end.is_some_and(has_lost)).is_empty();
        (has(&self.idle()) || others_lost && views().all(lives_elsewhere)).then_some(CulpritClass::Busy)
    }
}
