//! How far the clocks of ranks are apart: what the dumps themselves show.
//!
//! Either ranks come to some collective at the same time by their own clocks, as they do where it follows another without a pause: these clocks agree. Or
//! no rank leaves a collective before the last has come, so that each pair of ranks bounds the difference of their clocks from both sides, as
//! messages in both directions do.

use super::timeline::{FEWEST, Timeline};
use busbw_model::median;
use std::collections::{BTreeMap, HashMap};

/// What is added to the times of each rank.
#[derive(Debug)]
pub(super) struct Clocks {
    ahead_ns: Vec<i64>,
    /// What times may be wrong by.
    pub error_ns: f64,
}

/// For more ranks, clocks must agree: every pair is looked at.
const MOST: usize = 64;

impl Clocks {
    /// As they are, then as bounds show them.
    pub fn candidates(timeline: &Timeline) -> Vec<Clocks> {
        let bounded = Clocks::bounded(timeline);
        let contradicted = bounded.as_ref().is_some_and(|bounded| {
            bounded.ahead_ns.iter().any(|ahead| ahead.unsigned_abs() as f64 > 2.0 * bounded.error_ns)
        });
        let agreeing = (!contradicted).then(|| Clocks::agreeing(timeline)).flatten();
        agreeing.into_iter().chain(bounded).collect()
    }

    /// A time of a rank, by the clock of all.
    pub fn right(&self, rank: usize, at_ns: i64) -> i64 {
        at_ns.saturating_add(self.ahead_ns[rank])
    }

    /// Clocks as they are. They may be wrong by as much as is needed to lead from each rank to every other, by collectives to which ranks of a
    /// group come at the same time: those of one host always do.
    fn agreeing(timeline: &Timeline) -> Option<Clocks> {
        let mut nearest = nearest(timeline);
        nearest.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let ranks = timeline.ranks.len();
        let mut leads_to: Vec<usize> = (0..ranks).collect();
        let mut of_group: HashMap<u32, usize> = HashMap::new();
        let mut apart = ranks - 1;
        for (difference, rank, group) in nearest {
            let (one, other) = (leads_to[rank], leads_to[*of_group.entry(group).or_insert(rank)]);
            if one != other {
                leads_to.iter_mut().filter(|set| **set == one).for_each(|set| *set = other);
                apart -= 1;
            }
            if apart == 0 {
                return Some(Clocks { ahead_ns: vec![0; ranks], error_ns: difference });
            }
        }
        None
    }

    /// Clocks in the middle of their bounds; `None` where bounds contradict each other.
    fn bounded(timeline: &Timeline) -> Option<Clocks> {
        let count = timeline.ranks.len();
        if count > MOST {
            return None;
        }
        let mut most = Bounds::none(count);
        for of_kind in bounds_by_kind(timeline).into_values() {
            // Ranks leave a call before all have come where the program waits for it later, as DistributedDataParallel does.
            if of_kind.are_consistent() {
                most.tighten(&of_kind);
            }
        }
        most.close();
        let unsure = |rank: usize| (most.0[0][rank] + most.0[rank][0]) as f64 / 2.0;
        let error_ns = (0..count).map(unsure).fold(0.0, f64::max);
        let ahead = |rank: usize| (most.0[0][rank] - most.0[rank][0]) / 2;
        let known = most.are_consistent() && error_ns < FAR as f64 / 4.0;
        known.then(|| Clocks { ahead_ns: (0..count).map(ahead).collect(), error_ns })
    }
}

/// How near each rank comes to the others of each of its groups, by its clock, in the kind of call in which it comes nearest.
fn nearest(timeline: &Timeline) -> Vec<(f64, usize, u32)> {
    let mut differences: BTreeMap<(usize, u32, u32), Vec<f64>> = BTreeMap::new();
    for ((group, _), come) in &timeline.come {
        let times = || come.iter().map(|one| timeline.at(one));
        let first = times().min().unwrap_or_default();
        let usual = median(times().map(|at| (at - first) as f64)).unwrap_or_default();
        for one in come {
            let label = timeline.calls[one.rank][one.call].label;
            let difference = (timeline.at(one) - first) as f64 - usual;
            differences.entry((one.rank, *group, label)).or_default().push(difference);
        }
    }
    let often = differences.into_iter().filter(|(_, values)| values.len() >= FEWEST);
    let nearest = often.filter_map(|((rank, group, _), values)| Some((median(values.into_iter())?.abs(), rank, group)));
    nearest.collect()
}

/// How much is added to a rank's times, less what is added to another's, at most.
struct Bounds(Vec<Vec<i64>>);

/// No bound.
const FAR: i64 = i64::MAX / 4;

impl Bounds {
    fn none(count: usize) -> Self {
        let none = |rank: usize| (0..count).map(|other| if other == rank { 0 } else { FAR }).collect();
        Bounds((0..count).map(none).collect())
    }

    fn are_consistent(&self) -> bool {
        let ranks = 0..self.0.len();
        ranks.clone().all(|one| ranks.clone().all(|other| self.0[one][other] + self.0[other][one] >= 0))
    }

    fn tighten(&mut self, by: &Bounds) {
        for (own, by) in self.0.iter_mut().flatten().zip(by.0.iter().flatten()) {
            *own = (*own).min(*by);
        }
    }

    /// Adds what follows from bounds of others (Floyd and Warshall).
    fn close(&mut self) {
        let ranks = 0..self.0.len();
        for by in ranks.clone() {
            for from in ranks.clone() {
                for to in ranks.clone() {
                    self.0[from][to] = self.0[from][to].min(self.0[from][by].saturating_add(self.0[by][to]));
                }
            }
        }
    }
}

/// The bounds that each kind of call gives, together with the one behind it.
fn bounds_by_kind(timeline: &Timeline) -> BTreeMap<(u32, u32), Bounds> {
    const MOST_KINDS: usize = 256;
    let mut found: BTreeMap<(u32, u32), Bounds> = BTreeMap::new();
    for come in timeline.come.values() {
        for left in come {
            let calls = &timeline.calls[left.rank];
            let Some(next) = calls.get(left.call + 1).filter(|_| calls[left.call].waits_for_all) else { continue };
            let kind = (calls[left.call].label, next.label);
            if found.len() >= MOST_KINDS && !found.contains_key(&kind) {
                continue;
            }
            let bounds = found.entry(kind).or_insert_with(|| Bounds::none(timeline.ranks.len()));
            for last in come.iter().filter(|last| last.rank != left.rank) {
                let known = &mut bounds.0[left.rank][last.rank];
                *known = (*known).min(next.at_ns - timeline.at(last));
            }
        }
    }
    found
}
