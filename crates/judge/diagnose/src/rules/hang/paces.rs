//! Between which ranks collectives took long that all of their group had called, and between which they did not at that time.

use super::Job;
use crate::ranks::RankSet;
use busbw_model::{FlightCalls, FlightKind, WorkState};
use std::collections::BTreeMap;

/// A collective takes long that takes so many nanoseconds …
const LONG_NS: i64 = 50_000_000;
/// … and so many times as long as the quickest quarter of those like it.
const TIMES: i64 = 20;
/// Clocks that show a rank to leave a collective so much before the last has come are not those of one time.
const APART_NS: i64 = 5_000_000;

/// Groups of ranks, by how long it took them.
#[derive(Default)]
pub(super) struct Paces {
    /// Those of which a collective took long.
    pub long: Vec<RankSet>,
    /// Those of which none did since the first that did, though they called the same.
    pub soon: Vec<RankSet>,
}

/// What makes collectives comparable: the operation and its elements.
type Like<'a> = (&'a str, (Option<u64>, Option<u64>));

/// A collective of all ranks of its group.
struct Took<'a> {
    like: Like<'a>,
    waits_for_all: bool,
    ranks: RankSet,
    /// When the last rank had come, and when the first and the last went on; those that are in it still have not by the last time that is known.
    come_ns: i64,
    first_ns: i64,
    last_ns: i64,
}

impl Took<'_> {
    /// How long it took at most. From a broadcast its root leaves at once.
    fn ns(&self) -> i64 {
        if self.waits_for_all { self.first_ns - self.come_ns } else { self.last_ns - self.come_ns }
    }
}

impl Job<'_> {
    /// Of groups on several of these hosts; nothing where clocks contradict each other.
    pub(super) fn paces(&self, hosts: &[RankSet]) -> Paces {
        let mut took = self.collectives();
        took.retain(|one| hosts.iter().any(|host| leaves(&one.ranks, host)));
        if took.iter().any(|one| one.waits_for_all && one.first_ns + APART_NS < one.come_ns) {
            return Paces::default();
        }
        let mut usual: BTreeMap<Like, Vec<i64>> = BTreeMap::new();
        took.iter().for_each(|one| usual.entry(one.like).or_default().push(one.ns()));
        usual.values_mut().for_each(|all| all.sort_unstable());
        let is_long = |one: &&Took| {
            let all = &usual[&one.like];
            one.ns() >= LONG_NS && one.ns() >= TIMES * all[(all.len() - 1) / 4]
        };
        let long: Vec<&Took> = took.iter().filter(is_long).collect();
        let began_ns = long.iter().map(|one| one.come_ns).min().unwrap_or(i64::MAX);
        let is_like_one = |one: &&Took| one.come_ns >= began_ns && long.iter().any(|other| other.like == one.like);
        let like: Vec<&Took> = took.iter().filter(is_like_one).collect();
        let is_soon = |ranks: &RankSet| like.iter().filter(|one| one.ranks == *ranks).all(|one| one.ns() < LONG_NS);
        let soon = like.iter().filter(|one| is_soon(&one.ranks)).map(|one| one.ranks.clone());
        Paces { soon: soon.collect(), long: long.into_iter().map(|one| one.ranks.clone()).collect() }
    }

    /// Which group each kind of call is of.
    pub(super) fn indices_of(&self, kinds: &[FlightKind]) -> Vec<Option<usize>> {
        kinds.iter().map(|kind| self.index_of(&kind.group)).collect()
    }

    fn collectives(&self) -> Vec<Took<'_>> {
        let dumps = || self.case.run.flight_dumps.iter();
        let now_ns = dumps().filter_map(|dump| Some(time(dump.calls.calls.last()?.created_ns))).max().unwrap_or(0);
        let mut took: BTreeMap<(usize, u64), Took> = BTreeMap::new();
        for (rank, dump) in dumps().filter_map(|dump| Some((dump.rank?, dump))) {
            let FlightCalls { kinds, calls } = &dump.calls;
            let stands = dump.at.as_ref().is_some_and(|at| at.state != WorkState::Completed);
            let groups = self.indices_of(kinds);
            let nexts = calls.iter().skip(1).map(|call| Some(time(call.created_ns))).chain([stands.then_some(now_ns)]);
            for (call, next_ns) in calls.iter().zip(nexts) {
                let (kind, come_ns) = (&kinds[call.kind as usize], time(call.created_ns));
                let Some((group, next_ns)) = groups[call.kind as usize].zip(next_ns) else { continue };
                let one = took.entry((group, call.sequence)).or_insert_with(|| Took::of(kind));
                one.ranks.insert(rank);
                one.come_ns = one.come_ns.max(come_ns);
                one.first_ns = one.first_ns.min(next_ns);
                one.last_ns = one.last_ns.max(next_ns);
            }
        }
        took.retain(|(group, _), one| self.ranks.members(&self.groups()[*group]) == one.ranks);
        took.into_values().collect()
    }
}

impl<'a> Took<'a> {
    fn of(kind: &'a FlightKind) -> Self {
        Took {
            like: (&kind.op, kind.elements),
            waits_for_all: kind.waits_for_all(),
            ranks: RankSet::new(),
            come_ns: i64::MIN,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
        }
    }
}

fn time(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Whether what goes between ranks of a group goes through the cable of a host.
pub(super) fn leaves(group: &RankSet, host: &RankSet) -> bool {
    !host.is_disjoint(group) && !group.is_subset(host)
}
