//! How far the clocks of ranks are apart: what the dumps themselves show.
//!
//! Either ranks come to some collective at the same time by their own clocks, as they do where it follows another without a pause: these clocks agree. Or
//! no rank leaves a collective before the last has come, so that each pair of ranks bounds the difference of their clocks from both sides, as
//! messages in both directions do.

use super::meetings::{FEWEST, Meetings};
use busbw_model::median;
use std::collections::HashMap;

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
    pub fn candidates(meetings: &Meetings) -> Vec<Clocks> {
        let bounded = Clocks::bounded(meetings);
        let contradicted = bounded.as_ref().is_some_and(|bounded| {
            bounded.ahead_ns.iter().any(|ahead| ahead.unsigned_abs() as f64 > 2.0 * bounded.error_ns)
        });
        let agreeing = (!contradicted).then(|| Clocks::agreeing(meetings)).flatten();
        agreeing.into_iter().chain(bounded).collect()
    }

    /// A time of a rank, by the clock of all.
    pub fn right(&self, rank: usize, at_ns: i64) -> i64 {
        at_ns + self.ahead_ns[rank]
    }

    /// Clocks as they are. They are as wrong as the rank that comes nowhere nearer to the others than that.
    fn agreeing(meetings: &Meetings) -> Option<Clocks> {
        let mut differences: Vec<HashMap<u32, Vec<f64>>> = vec![HashMap::new(); meetings.ranks.len()];
        for come in meetings.come.values() {
            let times = || come.iter().map(|one| meetings.at(one));
            let first = times().min()?;
            let usual = median(times().map(|at| (at - first) as f64))?;
            for one in come {
                let label = meetings.calls[one.rank][one.call].label;
                let difference = (meetings.at(one) - first) as f64 - usual;
                differences[one.rank].entry(label).or_default().push(difference);
            }
        }
        let nearest = differences.into_iter().map(|of_rank| {
            let often = of_rank.into_values().filter(|values| values.len() >= FEWEST);
            often.filter_map(|values| Some(median(values.into_iter())?.abs())).min_by(f64::total_cmp)
        });
        let nearest: Vec<f64> = nearest.collect::<Option<_>>()?;
        let error_ns = nearest.into_iter().fold(0.0, f64::max);
        Some(Clocks { ahead_ns: vec![0; meetings.ranks.len()], error_ns })
    }

    /// Clocks in the middle of their bounds; `None` where bounds contradict each other, as those of calls that do not wait.
    fn bounded(meetings: &Meetings) -> Option<Clocks> {
        let count = meetings.ranks.len();
        if count > MOST {
            return None;
        }
        // How much a rank's clock is ahead of another's, at most.
        let mut most = vec![vec![i64::MAX / 4; count]; count];
        for come in meetings.come.values() {
            for left in come {
                let Some(next) = meetings.calls[left.rank].get(left.call + 1) else { continue };
                for last in come {
                    let bound = next.at_ns - meetings.at(last);
                    let known = &mut most[left.rank][last.rank];
                    *known = (*known).min(bound);
                }
            }
        }
        for by in 0..count {
            for from in 0..count {
                for to in 0..count {
                    most[from][to] = most[from][to].min(most[from][by] + most[by][to]);
                }
            }
        }
        let unsure = |rank: usize| (most[0][rank] + most[rank][0]) as f64 / 2.0;
        let consistent = (0..count).all(|rank| most[rank][rank] >= 0 && unsure(rank) < 1e15);
        let error_ns = (0..count).map(unsure).fold(0.0, f64::max);
        let ahead = |rank: usize| (most[0][rank] - most[rank][0]) / 2;
        consistent.then(|| Clocks { ahead_ns: (0..count).map(ahead).collect(), error_ns })
    }
}
