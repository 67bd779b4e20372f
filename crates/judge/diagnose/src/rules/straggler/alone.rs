//! How long ranks are by themselves: between collectives, in each step.

use super::clocks::Clocks;
use super::timeline::{Span, Steps, Timeline};
use busbw_model::median;
use std::collections::BTreeMap;

/// What ranks did by themselves, step by step.
pub(super) struct Own {
    pub steps: Vec<Step>,
    /// Behind which call they did most of it, and before which.
    pub place: (String, String),
}

pub(super) struct Step {
    /// How long each rank was busy by itself: from when a collective could end, as the last rank had come, until it called the next one.
    pub own_ns: Vec<f64>,
    /// How long the step lasted.
    pub lasted_ns: f64,
    /// When each rank began it.
    pub began_ns: Vec<u64>,
}

impl Timeline {
    /// What ranks did by themselves, by such clocks.
    pub fn own(&self, steps: &Steps, clocks: &Clocks) -> Option<Own> {
        let pauses = self.pauses(steps, clocks);
        let mut found = Vec::new();
        for spans in steps.0.values() {
            let of_rank = |(rank, span): (usize, &Span)| {
                let behind_pause = (span.first..span.end).filter(|at| pauses.contains_key(&self.pair(rank, *at)));
                behind_pause.map(|at| self.alone(rank, at, clocks)).sum::<Option<f64>>()
            };
            if let Some(own_ns) = spans.iter().enumerate().map(of_rank).collect() {
                let began =
                    spans.iter().enumerate().map(|(rank, span)| self.calls[rank][span.first].at_ns.unsigned_abs());
                found.push(Step { own_ns, lasted_ns: self.lasted(spans), began_ns: began.collect() });
            }
        }
        let ((before, behind), _) = pauses.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let place = (self.labels[before as usize].clone(), self.labels[behind as usize].clone());
        Some(Own { steps: found, place })
    }

    /// Kinds of calls, each with the one before it, between which ranks spend a good part of a step by themselves, and how much all together. Where a
    /// collective follows another at once, a rank may be late because the other reached it late: that tells of links, not of ranks.
    fn pauses(&self, steps: &Steps, clocks: &Clocks) -> BTreeMap<(u32, u32), f64> {
        const SHARE: f64 = 0.1;
        let mut own_ns: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut all_ns = 0.0;
        for spans in steps.0.values() {
            all_ns += self.lasted(spans) * spans.len() as f64;
            for (rank, span) in spans.iter().enumerate() {
                for at in span.first..span.end {
                    let own = self.alone(rank, at, clocks).unwrap_or_default();
                    *own_ns.entry(self.pair(rank, at)).or_default() += own;
                }
            }
        }
        own_ns.retain(|_, own| *own >= SHARE * all_ns);
        own_ns
    }

    /// The kind of the call before a call, and its own.
    fn pair(&self, rank: usize, at: usize) -> (u32, u32) {
        (self.calls[rank][at - 1].label, self.calls[rank][at].label)
    }

    /// How long a step lasted.
    fn lasted(&self, spans: &[Span]) -> f64 {
        let lasted = |(rank, span): (usize, &Span)| {
            (self.calls[rank][span.end].at_ns - self.calls[rank][span.first].at_ns) as f64
        };
        median(spans.iter().enumerate().map(lasted)).unwrap_or_default()
    }

    /// How long a rank was by itself before a call: since the last of its group came to the one before it. `None` where not all of that group are
    /// known to have come.
    fn alone(&self, rank: usize, at: usize, clocks: &Clocks) -> Option<f64> {
        let before = self.calls[rank][at - 1];
        let come = self.come.get(&(before.group, before.sequence))?;
        let last = come.iter().map(|one| clocks.right(one.rank, self.at(one))).max()?;
        Some(clocks.right(rank, self.calls[rank][at].at_ns).saturating_sub(last).max(0) as f64)
    }
}
