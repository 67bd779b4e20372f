//! Who explains what each rank waits for in a collective of Gloo's: a rank that takes no part, or a host that is cut off.

use super::gloo::{Algorithm, MOST_RANKS, Wait};
use super::shown::{lost_in, waited_for};
use super::{Job, at};
use crate::ranks::{RankSet, RankView};
use busbw_model::{CollectiveCall, FlightEntry, ProcessGroup, WorkState};
use std::collections::BTreeMap;

/// More elements than a ring has segments.
const MANY: usize = 1 << 20;
/// Where the number of elements is not known: each of these may be.
const ELEMENTS: [usize; 7] = [1, 2, 3, 4, 8, 12, MANY];

/// A collective in which ranks stand.
struct Standing {
    algorithm: Algorithm,
    elements: Option<usize>,
    members: Vec<u32>,
    told: Vec<Told>,
    /// Whether one may not have called it, and whether all may have.
    absent: bool,
    whole: bool,
}

/// What a member says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Waits(Wait),
    /// It is in another call: behind this one, or before it.
    Elsewhere,
}

/// What would explain it.
struct Cause {
    ranks: RankSet,
    cut_off: bool,
    /// With how many numbers of elements it explains all, and whether with the largest.
    fits: (usize, bool),
}

impl Job<'_> {
    /// The ranks of the causes that explain best what each rank waits for.
    pub(super) fn explained(&self) -> RankSet {
        self.causes().into_iter().flat_map(|cause| cause.ranks).collect()
    }

    /// Whether nothing that is known speaks against it that the host of a rank is cut off.
    pub(super) fn may_be_cut_off(&self, rank: u32) -> bool {
        let causes = self.causes();
        causes.is_empty() || causes.iter().any(|cause| cause.cut_off && cause.ranks.contains(&rank))
    }

    fn causes(&self) -> Vec<Cause> {
        let standing = self.standing();
        if !standing.iter().any(Standing::is_told) {
            return Vec::new();
        }
        let mut causes: Vec<Cause> = Vec::new();
        if let [one] = standing.as_slice()
            && one.absent
        {
            causes.extend(one.members.iter().enumerate().map(|(index, rank)| Cause {
                ranks: RankSet::from([*rank]),
                cut_off: false,
                fits: one.fits(Some(index), |_, _| true),
            }));
        }
        let hosts = if standing.iter().all(|one| one.whole) { self.hosts() } else { BTreeMap::new() };
        for (host, ranks) in hosts {
            let is_there = |rank: &u32| self.ranks.get(*rank).and_then(|view| view.host) == Some(host);
            let fits = standing.iter().map(|one| {
                let same_side = |a: usize, b: usize| is_there(&one.members[a]) == is_there(&one.members[b]);
                one.fits(None, same_side)
            });
            causes.push(Cause { fits: fits.min().unwrap_or_default(), ranks, cut_off: true });
        }
        let most = causes.iter().map(|cause| cause.fits).max().unwrap_or_default();
        causes.retain(|cause| cause.fits == most && most.0 > 0);
        causes
    }

    /// The ranks of each host, where the hosts of all ranks are known.
    fn hosts(&self) -> BTreeMap<&str, RankSet> {
        let mut hosts: BTreeMap<&str, RankSet> = BTreeMap::new();
        for rank in self.ranks.all() {
            let Some(host) = self.ranks.get(rank).and_then(|view| view.host) else { return BTreeMap::new() };
            hosts.entry(host).or_default().insert(rank);
        }
        hosts
    }

    /// The collectives that all of their group have called and none has ended, by their dumps; else the one in which all but one stand.
    fn standing(&self) -> Vec<Standing> {
        let whole: Vec<Standing> = self.groups().iter().filter_map(|group| self.of_group(group)).collect();
        if whole.is_empty() { self.of_call().into_iter().collect() } else { whole }
    }

    fn of_group(&self, group: &ProcessGroup) -> Option<Standing> {
        let members: Vec<u32> = self.ranks.members(group).into_iter().collect();
        let entries: Option<Vec<_>> = members.iter().map(|rank| at(self.ranks, *rank)).collect();
        let entries = entries?;
        let first = entries.first()?;
        let same = |entry: &&FlightEntry| {
            entry.state != WorkState::Completed
                && !entry.p2p
                && entry.work.sequence == first.work.sequence
                && self.group_of(entry).is_some_and(|of| std::ptr::eq(of, group))
        };
        if !(2..=MOST_RANKS).contains(&members.len()) || !entries.iter().all(same) {
            return None;
        }
        Some(Standing {
            algorithm: Algorithm::named(Some(&first.work.op))?,
            elements: first.work.numel_in.and_then(|count| usize::try_from(count).ok()),
            told: self.told(&members, |_| true),
            absent: false,
            whole: true,
            members,
        })
    }

    /// Of output alone: the call in which all stand that say where, but for one at most, since a group of some ranks has calls of its own; else a
    /// broadcast in which one waits to send.
    fn of_call(&self) -> Option<Standing> {
        let members: Vec<u32> = self.ranks.all().into_iter().collect();
        let mut by_call: BTreeMap<&CollectiveCall, Vec<&RankView>> = BTreeMap::new();
        for view in members.iter().filter_map(|rank| self.ranks.get(*rank)) {
            if let Some(call) = lost_in(view) {
                by_call.entry(call).or_default().push(view);
            }
        }
        let said: usize = by_call.values().map(Vec::len).sum();
        let is_of_all = |here: &[&RankView]| here.len() + 1 >= said && here.len() * 2 > members.len();
        let algorithm = |call: &CollectiveCall| Algorithm::named(call.operation.as_deref());
        let sends = |view: &&RankView| view.end.and_then(waited_for) == Some(Wait::Send);
        let of_all = by_call.iter().find(|(_, here)| is_of_all(here));
        let broadcast = || {
            let mut broadcasts = by_call.iter().filter(|(call, _)| algorithm(call) == Some(Algorithm::Broadcast));
            broadcasts.find(|(_, here)| here.iter().any(sends))
        };
        let (call, _) = of_all.or_else(broadcast).filter(|_| members.len() <= MOST_RANKS)?;
        Some(Standing {
            algorithm: algorithm(call)?,
            elements: call.operation.is_none().then_some(MANY),
            told: self.told(&members, |view| lost_in(view) == Some(call)),
            absent: true,
            whole: of_all.is_some() && by_call.len() == 1,
            members,
        })
    }

    fn told(&self, members: &[u32], here: impl Fn(&RankView) -> bool) -> Vec<Told> {
        let told = |rank: &u32| match self.ranks.get(*rank) {
            Some(view) if here(view) => view.end.and_then(waited_for).map_or(Told::Nothing, Told::Waits),
            Some(view) if lost_in(view).is_some() => Told::Elsewhere,
            _ => Told::Nothing,
        };
        members.iter().map(told).collect()
    }
}

impl Standing {
    fn is_told(&self) -> bool {
        self.told.iter().any(|told| matches!(told, Told::Waits(_)))
    }

    /// With how many numbers of elements the ranks would wait as they say, but for one that takes no part; and whether with the largest.
    fn fits(&self, absent: Option<usize>, open: impl Fn(usize, usize) -> bool) -> (usize, bool) {
        let fits = |elements: &&usize| {
            let waits = self.algorithm.waits((self.members.len(), **elements), absent, &open);
            let agree = |(index, told): (usize, &Told)| {
                let expected = waits[index].map_or(Told::Elsewhere, Told::Waits);
                absent == Some(index) || *told == Told::Nothing || *told == expected
            };
            waits.iter().any(Option::is_some) && self.told.iter().enumerate().all(agree)
        };
        let tried = self.elements.as_ref().map_or(&ELEMENTS[..], std::slice::from_ref);
        (tried.iter().filter(fits).count(), tried.last().filter(fits).is_some())
    }
}
