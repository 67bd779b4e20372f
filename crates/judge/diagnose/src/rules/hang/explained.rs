//! Who explains what each rank waits for in a collective of Gloo's: a rank that takes no part, or a host that is cut off.

use super::gloo::{Algorithm, MOST_RANKS, Stuck, Wait};
use super::shown::{lost_in, waited_for, was_left};
use super::{Job, at};
use crate::ranks::{RankSet, RankView};
use busbw_model::{CollectiveCall, CulpritClass, FlightEntry, ProcessGroup, WorkState};
use std::collections::BTreeMap;

/// More elements than a ring has segments.
const MANY: usize = 1 << 20;
/// Where the number of elements is not known: each of these may be.
const ELEMENTS: [usize; 7] = [1, 2, 3, 4, 8, 12, MANY];

/// Of larger groups, who had come when a cable was cut is not tried.
const MOST_EARLY: usize = 8;

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
    /// A rank with which it had something to do closed the connection.
    Left,
    /// It is in another call: behind this one, or before it.
    Elsewhere,
}

/// What would explain it.
pub(super) struct Cause {
    pub ranks: RankSet,
    pub cut_off: bool,
    /// With how many numbers of elements it explains all, and whether with the largest.
    fits: (usize, bool),
}

impl Job<'_> {
    /// The ranks of the causes that explain best what each rank waits for.
    pub(super) fn explained(&self) -> RankSet {
        self.causes().iter().flat_map(|cause| cause.ranks.iter().copied()).collect()
    }

    /// The causes that explain best what each rank waits for: that a rank takes no part, or that a host is cut off.
    pub(super) fn causes(&self) -> &[Cause] {
        self.causes.get_or_init(|| {
            let standing = self.standing();
            if !standing.iter().any(Standing::is_told) {
                return Vec::new();
            }
            let after = self.causes_of(&standing, &|_| vec![0]);
            if after.is_empty() { self.causes_of(&standing, &early_sets) } else { after }
        })
    }

    /// What kind of trouble these causes tell of suspects; open where they may take no part, and be cut off as well.
    pub(super) fn class_of_causes(&self, suspects: &RankSet) -> Option<CulpritClass> {
        let tells = |cut_off: bool| {
            self.causes().iter().any(|cause| cause.cut_off == cut_off && suspects.is_subset(&cause.ranks))
        };
        match (tells(false), tells(true)) {
            (true, false) => Some(CulpritClass::Divergence),
            (false, true) => Some(CulpritClass::Network),
            _ => None,
        }
    }

    /// `early`: which ranks may have come before a cable was cut, as sets of bits, of a number of ranks.
    fn causes_of(&self, standing: &[Standing], early: &dyn Fn(usize) -> Vec<u32>) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        if let [one] = standing
            && one.absent
        {
            causes.extend(one.members.iter().enumerate().map(|(index, rank)| Cause {
                ranks: RankSet::from([*rank]),
                cut_off: false,
                fits: one.fits(Some(index), &|_, _| true, 0),
            }));
        }
        let hosts = if standing.iter().all(|one| one.whole) { self.hosts() } else { BTreeMap::new() };
        for (host, ranks) in hosts {
            let is_there = |rank: &u32| self.ranks.get(*rank).and_then(|view| view.host) == Some(host);
            let fits = standing.iter().map(|one| {
                let same_side = |a: usize, b: usize| is_there(&one.members[a]) == is_there(&one.members[b]);
                let sets = early(one.members.len()).into_iter();
                sets.map(|early| one.fits(None, &same_side, early)).max().unwrap_or_default()
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
        let (members, first) = self.together(group)?;
        (members.len() <= MOST_RANKS).then_some(())?;
        Some(Standing {
            algorithm: Algorithm::named(Some(&first.work.op))?,
            elements: first.work.numel_in.and_then(|count| usize::try_from(count).ok()),
            told: self.told(&members, |_| true),
            absent: false,
            whole: true,
            members,
        })
    }

    /// The ranks of a group, where by their dumps all have called one collective and none has ended it.
    pub(super) fn together(&self, group: &ProcessGroup) -> Option<(Vec<u32>, &FlightEntry)> {
        let members: Vec<u32> = self.ranks.members(group).into_iter().collect();
        let entries: Vec<&FlightEntry> = members.iter().map(|rank| at(self.ranks, *rank)).collect::<Option<_>>()?;
        let first = entries.first().filter(|_| members.len() > 1)?;
        let same = |entry: &&FlightEntry| {
            entry.state != WorkState::Completed
                && !entry.p2p
                && entry.work.sequence == first.work.sequence
                && self.group_of(entry).is_some_and(|of| std::ptr::eq(of, group))
        };
        let first = *first;
        entries.iter().all(same).then_some((members, first))
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
            Some(view) if here(view) => match view.end {
                Some(end) if was_left(end) => Told::Left,
                end => end.and_then(waited_for).map_or(Told::Nothing, Told::Waits),
            },
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
    fn fits(&self, absent: Option<usize>, open: &dyn Fn(usize, usize) -> bool, early: u32) -> (usize, bool) {
        let fits = |elements: &&usize| {
            let had_come = |rank: usize| early >> rank & 1 == 1;
            let stuck = self.algorithm.waits((self.members.len(), **elements), absent, open, &had_come);
            let agree = |(index, told): (usize, &Told)| match (told, &stuck[index]) {
                (Told::Nothing, _) => true,
                _ if absent == Some(index) => true,
                (Told::Elsewhere, stuck) => stuck.is_none(),
                (Told::Waits(wait), stuck) => stuck.as_ref().is_some_and(|stuck| stuck.wait == *wait),
                (Told::Left, Some(Stuck { peers, .. })) => peers.iter().any(|peer| open(*peer, index)),
                (Told::Left, None) => false,
            };
            stuck.iter().any(Option::is_some) && self.told.iter().enumerate().all(agree)
        };
        let tried = self.elements.as_ref().map_or(&ELEMENTS[..], std::slice::from_ref);
        (tried.iter().filter(fits).count(), tried.last().filter(fits).is_some())
    }
}

/// Some ranks of so many, but never all.
fn early_sets(ranks: usize) -> Vec<u32> {
    if ranks > MOST_EARLY { vec![0] } else { (0..(1 << ranks) - 1).collect() }
}
