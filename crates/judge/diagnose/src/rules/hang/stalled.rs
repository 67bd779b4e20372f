//! Whose cable it is where a collective stands that all of its group have called: nobody is late there, and data does not get through.

use super::paces::{Paces, leaves};
use super::{Job, at};
use crate::ranks::RankSet;
use busbw_model::{CulpritClass, FlightCalls, FlightEntry, RankStanding, Suspects};
use std::collections::BTreeMap;

impl Job<'_> {
    /// The ranks of the one host that explains it; none where several do.
    pub(super) fn stalled(&self) -> Option<Suspects> {
        let differ = self.groups().iter().any(|group| !group.mismatches.is_empty());
        let gone = [self.stopped(), self.killed()].iter().any(|ranks| !ranks.is_empty());
        if !self.case.ends.are_over() || differ || gone || self.case.ends.cause().is_some() {
            return None;
        }
        let hosts = self.places();
        let mut groups = self.starved_groups();
        groups.retain(|group| hosts.iter().any(|host| leaves(group, host)));
        if groups.is_empty() {
            return None;
        }
        let shown = [self.cut_off(), self.slowed(), self.unreachable()];
        let shown = shown.into_iter().find(|ranks| !ranks.is_empty() && self.hosts_of(ranks).len() < 2);
        let ranks = shown.or_else(|| self.common_host(hosts, &groups)).unwrap_or_default();
        Some(Suspects::of(ranks.into_iter().collect(), Some(CulpritClass::Network)))
    }

    /// The groups in which a rank stands in a collective that all others have called, and stand in or have ended. Who is of a group is known where
    /// dumps tell it, else of those that called it, where no dump lacks.
    fn starved_groups(&self) -> Vec<RankSet> {
        let whole = self.ranks.which(|view| view.dump.is_none_or(|dump| dump.cut)).is_empty();
        let mut stands: BTreeMap<(usize, u64), &FlightEntry> = BTreeMap::new();
        for rank in self.ranks.all().into_iter().filter(|rank| self.misses_data(*rank)) {
            let known = at(self.ranks, rank).and_then(|open| Some((self.index_of(&open.group)?, open)));
            stands.extend(known.map(|(index, open)| ((index, open.work.sequence), open)));
        }
        let starved = stands.into_values().filter_map(|open| {
            let group = self.group_of(open).filter(|group| whole || !group.members.is_empty())?;
            let members = self.ranks.members(group);
            let is_through = |member: &u32| {
                let own = at(self.ranks, *member);
                let stands = own.is_some_and(|own| {
                    own.work.sequence == open.work.sequence
                        && self.group_of(own).is_some_and(|of| std::ptr::eq(of, group))
                });
                let ended = group.ranks.get(member).and_then(|standing| standing.standing.completed);
                stands || ended.is_some_and(|ended| ended >= open.work.sequence)
            };
            members.iter().all(is_through).then_some(members)
        });
        starved.collect()
    }

    /// Whether ranks came to a collective from where they came to an earlier one of the group, or one of two has ended it. Which rank a broadcast is from is
    /// not recorded, and ranks that all mean to receive wait for each other.
    pub(super) fn called_alike(&self, open: &FlightEntry) -> bool {
        let Some(index) = self.index_of(&open.group) else { return false };
        let key = (index, open.work.sequence);
        let known = self.alike.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let alike = self.compare_calls(index, open.work.sequence);
            self.alike.borrow_mut().insert(key, alike);
            alike
        })
    }

    fn compare_calls(&self, index: usize, now: u64) -> bool {
        let group = &self.groups()[index];
        let mut places: BTreeMap<u64, Vec<(u32, &Option<String>)>> = BTreeMap::new();
        let mut waits_for_all = true;
        for (rank, FlightCalls { kinds, calls }) in
            self.case.run.flight_dumps.iter().filter_map(|dump| Some((dump.rank?, &dump.calls)))
        {
            let groups = self.indices_of(kinds);
            for call in calls.iter().filter(|call| groups[call.kind as usize] == Some(index)) {
                let kind = &kinds[call.kind as usize];
                places.entry(call.sequence).or_default().push((rank, &kind.called_at));
                waits_for_all &= call.sequence != now || kind.waits_for_all();
            }
        }
        let called = places.remove(&now).unwrap_or_default();
        let told = called.iter().all(|(_, place)| place.is_some());
        let ended = |standing: &RankStanding| standing.standing.completed >= Some(now);
        let ended = group.ranks.len() == 2 && group.ranks.values().any(ended);
        waits_for_all || ended || told && places.values().any(|before| *before == called)
    }

    /// The ranks of each host; a rank whose host is not known stands for one.
    fn places(&self) -> Vec<RankSet> {
        let mut places: BTreeMap<Result<&str, u32>, RankSet> = BTreeMap::new();
        for rank in self.ranks.all() {
            let host = self.ranks.get(rank).and_then(|view| view.host).ok_or(rank);
            places.entry(host).or_default().insert(rank);
        }
        places.into_values().collect()
    }

    /// The one host through whose cable all went that stands or took long, and nothing that did not, and that explains what ranks wait for.
    fn common_host(&self, mut hosts: Vec<RankSet>, starved: &[RankSet]) -> Option<RankSet> {
        let Paces { long, soon } = self.paces(&hosts);
        let mut keep = |holds: &dyn Fn(&RankSet) -> bool| {
            if hosts.iter().any(holds) {
                hosts.retain(|host| holds(host));
            }
        };
        keep(&|host| starved.iter().all(|group| leaves(group, host)));
        keep(&|host| long.iter().all(|group| leaves(group, host)));
        keep(&|host| soon.iter().all(|group| !leaves(group, host)));
        keep(&|host| self.causes().iter().any(|cause| cause.cut_off && cause.ranks == *host));
        hosts.pop().filter(|_| hosts.is_empty())
    }
}
