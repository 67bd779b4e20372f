//! For whom ranks wait by their dumps. Who stands in one collective waits for the same ranks: these are looked for once.

use super::shown::{has_lost, waits_unseen};
use super::{Job, at};
use crate::ranks::{RankSet, RankView};
use busbw_model::{FlightDump, FlightEntry, GroupName, WorkState};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A group, and the number of a collective of it.
type Collective = (usize, u64);

/// Sets of ranks that were looked for.
type Sets<Key> = RefCell<BTreeMap<Key, Rc<RankSet>>>;

/// What was looked for.
#[derive(Default)]
pub(super) struct Known {
    wanted: Sets<Collective>,
    /// Of a group and the number that a process gives it.
    open: Sets<(usize, Option<u32>)>,
}

impl Job<'_> {
    /// Those for whom a rank waits by its dump: members of the group that have not called what it called; where all have, those
    /// that never called it there before, and so mean another call of theirs.
    pub(super) fn waits_for(&self, rank: u32) -> Rc<RankSet> {
        let collective = at(self.ranks, rank).and_then(|at| self.collective(at));
        let look = |collective| looked_for(&self.known.wanted, collective, || self.wanted_in(collective));
        collective.map(look).filter(|wanted| !wanted.contains(&rank)).unwrap_or_default()
    }

    fn wanted_in(&self, collective: Collective) -> RankSet {
        let missing = self.have_not_called(collective);
        let is_unusual =
            |dump: &FlightDump| dump.unusual && dump.at.as_ref().is_some_and(|at| at.state != WorkState::Completed);
        let unusual = |view: &RankView| view.dump.is_some_and(is_unusual) && self.stands_in(view, collective);
        if missing.is_empty() { self.ranks.which(unusual) } else { missing }
    }

    fn stands_in(&self, view: &RankView, collective: Collective) -> bool {
        view.dump.and_then(|dump| dump.at.as_ref()).and_then(|at| self.collective(at)) == Some(collective)
    }

    /// Those for whom a rank may wait, where all that are known to be of its group called what it called: ranks without a dump, and where
    /// the members are not told, ranks in a group of that number of which their dump kept no call.
    pub(super) fn may_wait_for(&self, rank: u32) -> Rc<RankSet> {
        let open = at(self.ranks, rank).filter(|at| at.state != WorkState::Completed);
        let of_group = |open: &FlightEntry| {
            let (index, _) = self.collective(open)?;
            Some(looked_for(&self.known.open, (index, open.group.id), || self.may_be_of(open, index)))
        };
        open.and_then(of_group).unwrap_or_default()
    }

    fn collective(&self, entry: &FlightEntry) -> Option<Collective> {
        Some((self.index_of(&entry.group).filter(|_| !entry.p2p)?, entry.work.sequence))
    }

    fn have_not_called(&self, (index, sequence): Collective) -> RankSet {
        let group = &self.groups()[index];
        let stands_there = |rank: u32| self.ranks.get(rank).is_some_and(|view| self.stands_in(view, (index, sequence)));
        let is_behind = |member: &u32| match group.ranks.get(member) {
            Some(standing) => standing.standing.enqueued.is_some_and(|enqueued| enqueued < sequence),
            None => self.ranks.get(*member).and_then(|view| view.dump).is_some_and(|dump| !dump.cut),
        };
        let members = self.ranks.members(group).into_iter();
        members.filter(|member| is_behind(member) && !stands_there(*member)).collect()
    }

    fn may_be_of(&self, open: &FlightEntry, index: usize) -> RankSet {
        let members: RankSet = self.groups()[index].members.iter().copied().collect();
        let unnamed = |name: &GroupName| name.name.is_none() && name.id.is_some() && name.id == open.group.id;
        let may = |view: &RankView| match view.dump.filter(|dump| !dump.cut) {
            Some(dump) => members.is_empty() && dump.standing.iter().any(|(name, _)| unnamed(name)),
            None => members.is_empty() || view.rank.is_some_and(|rank| members.contains(&rank)),
        };
        self.ranks.which(may)
    }

    /// Ranks that stand in a collective, and for whom they wait there.
    fn edges(&self, wanted: impl Fn(u32) -> Rc<RankSet>) -> Vec<(RankSet, Rc<RankSet>)> {
        let mut edges: BTreeMap<Collective, (RankSet, Rc<RankSet>)> = BTreeMap::new();
        for rank in self.ranks.all() {
            let collective = at(self.ranks, rank).and_then(|at| self.collective(at));
            let wanted = wanted(rank);
            if let Some(collective) = collective.filter(|_| !wanted.is_empty()) {
                edges.entry(collective).or_insert_with(|| (RankSet::new(), wanted)).0.insert(rank);
            }
        }
        edges.into_values().collect()
    }

    /// Ranks for whom nobody needs to look: they wait in a call of their usual way, for others of which nothing shows that they wait, or for some that
    /// wait for these. Ranks that wait for each other are none of these.
    pub(super) fn others_than_who_waits(&self) -> RankSet {
        let all = self.ranks.all();
        let odd = &self.diverged() | &self.went_another_way();
        let mut edges = self.edges(|rank| self.waits_for(rank));
        edges.extend(self.edges(|rank| self.may_wait_for(rank)));
        let mut waiting: RankSet = edges.iter().flat_map(|(waiting, _)| waiting).copied().collect();
        // Who has no dump, and says that it waited in vain, waited as well.
        waiting.extend(self.ranks.which(|view| view.end.is_some_and(has_lost)));
        let ends = &(&all - &waiting) | &odd;
        &all - &(&led_to(edges, &ends) - &odd)
    }

    /// Ranks for whom others wait and that wait for none; where these wait for each other, those that never went so before, else for whom most of all
    /// that wait do.
    pub(super) fn waited_for(&self) -> RankSet {
        let edges = self.edges(|rank| self.waits_for(rank));
        let mut waiting_for: BTreeMap<u32, usize> = BTreeMap::new();
        for (waiting, wanted) in &edges {
            wanted.iter().for_each(|rank| *waiting_for.entry(*rank).or_default() += waiting.len());
        }
        if waiting_for.is_empty() {
            return self.behind();
        }
        let wanted: RankSet = waiting_for.keys().copied().collect();
        let waits = |rank: &u32| !self.waits_for(*rank).is_empty();
        let unseen = self.ranks.which(waits_unseen);
        let waits_for_none = |rank: &u32| !waits(rank) && !unseen.contains(rank) && self.may_wait_for(*rank).is_empty();
        let free: RankSet = wanted.iter().copied().filter(waits_for_none).collect();
        if !free.is_empty() {
            return free;
        }
        let waiting: RankSet = edges.iter().flat_map(|(waiting, _)| waiting).copied().collect();
        let in_circle = |rank: &u32| !unseen.contains(rank) && self.may_wait_for(*rank).is_subset(&waiting);
        let freeing = self.freeing(wanted.iter().copied().filter(in_circle));
        if freeing.is_empty() && !wanted.iter().all(waits) {
            return RankSet::new();
        }
        let unusual = &wanted & &self.went_another_way();
        if !unusual.is_empty() {
            return unusual;
        }
        let wanted = if freeing.is_empty() { wanted } else { freeing };
        let by_most: RankSet = wanted.iter().copied().filter(|rank| waiting_for[rank] * 2 > waiting.len()).collect();
        if by_most.is_empty() { wanted } else { by_most }
    }

    /// Those of some ranks of which each would let all go on that wait, if it came to where it is waited for: others only wait in the circle in which one of
    /// these stands.
    pub(super) fn freeing(&self, ranks: impl IntoIterator<Item = u32>) -> RankSet {
        let edges = self.edges(|rank| self.waits_for(rank));
        ranks.into_iter().filter(|rank| frees_all(&edges, *rank)).collect()
    }

    /// Ranks for whom any rank is known to wait.
    pub(super) fn waited_for_by_any(&self) -> RankSet {
        self.edges(|rank| self.waits_for(rank)).iter().flat_map(|(_, wanted)| wanted.iter()).copied().collect()
    }

    /// Ranks for whom others may wait that wait for none of those that are known; where these are many, dumps lack and nothing else is known of them.
    pub(super) fn supposed(&self) -> RankSet {
        let all = self.ranks.all();
        let mut supposed = RankSet::new();
        let mut seen: Vec<Rc<RankSet>> = Vec::new();
        for rank in all.iter().filter(|rank| self.waits_for(**rank).is_empty()) {
            let may = self.may_wait_for(*rank);
            if !may.is_empty() && !seen.iter().any(|known| Rc::ptr_eq(known, &may)) {
                supposed.extend(may.iter().copied());
                seen.push(may);
            }
        }
        if supposed.len() > 1 && supposed.len() * 2 >= all.len() { RankSet::new() } else { supposed }
    }

    /// Ranks that wait for some of these by their dumps, or for others that do.
    pub(super) fn led_to(&self, ranks: &[u32]) -> RankSet {
        led_to(self.edges(|rank| self.waits_for(rank)), &ranks.iter().copied().collect())
    }

    /// Whether a rank waits in an operation of its own: in a group of some ranks, while others wait for it in another.
    pub(super) fn is_in_another(&self, rank: u32) -> bool {
        let own = at(self.ranks, rank).filter(|at| at.state != WorkState::Completed);
        let waits_for_it = |(waiting, wanted): &(RankSet, Rc<RankSet>)| {
            let theirs = waiting.first().and_then(|one| at(self.ranks, *one));
            wanted.contains(&rank) && own.zip(theirs).is_some_and(|(own, theirs)| theirs.group != own.group)
        };
        self.edges(|rank| self.waits_for(rank)).iter().any(waits_for_it)
    }
}

/// A set that is looked for when it is asked for first.
fn looked_for<Key: Ord>(known: &Sets<Key>, key: Key, look: impl FnOnce() -> RankSet) -> Rc<RankSet> {
    let found = known.borrow().get(&key).cloned();
    found.unwrap_or_else(|| {
        let ranks = Rc::new(look());
        known.borrow_mut().insert(key, Rc::clone(&ranks));
        ranks
    })
}

/// Whether all go on that wait where one rank does: who waits for several needs all of them.
fn frees_all(edges: &[(RankSet, Rc<RankSet>)], rank: u32) -> bool {
    let mut going = RankSet::from([rank]);
    let freed = |going: &RankSet| -> RankSet {
        edges.iter().filter(|(_, wanted)| wanted.is_subset(going)).flat_map(|(waiting, _)| waiting).copied().collect()
    };
    loop {
        let more: RankSet = &going | &freed(&going);
        if more.len() == going.len() {
            return edges.iter().all(|(waiting, _)| waiting.is_subset(&going));
        }
        going = more;
    }
}

/// Ranks that wait for some of these, or for others that do.
fn led_to(mut edges: Vec<(RankSet, Rc<RankSet>)>, of: &RankSet) -> RankSet {
    let mut known = of.clone();
    loop {
        let before = edges.len();
        edges.retain(|(waiting, wanted)| {
            let leads = !wanted.is_disjoint(&known);
            if leads {
                known.extend(waiting);
            }
            !leads
        });
        if edges.len() == before {
            return &known - of;
        }
    }
}
