//! A rank that is late for the collectives of each step, while the job goes on.
//!
//! A collective ends when its last rank has come. From then until it calls the next one, a rank is by itself; what it waits inside, for one that is
//! late, does not count. So the ranks that a late one holds up are not accused, in whatever group they are, and the late one is by itself
//! longer than the others, step by step.

mod alone;
mod clocks;
mod compare;
mod timeline;

use super::found;
use crate::case::Case;
use crate::culprit;
use busbw_model::{Evidence, Finding, Slower, Suspects};
use clocks::Clocks;
use compare::{Late, compare};
use std::fmt::Display;
use timeline::Timeline;

/// At most one finding: the ranks that the others wait for.
pub fn rule(case: &Case) -> Vec<Finding> {
    slow(case).map(|found| found.finding(case)).into_iter().collect()
}

/// Ranks that are late, and between which calls.
struct Found {
    ranks: Vec<u32>,
    late: Late,
    place: (String, String),
}

/// Who is late, by clocks that are surely less wrong than the lateness that they show.
fn slow(case: &Case) -> Option<Found> {
    let timeline = Timeline::of(case)?;
    let steps = timeline.steps()?;
    let clocks = Clocks::candidates(&timeline);
    let (place, late) = clocks.iter().find_map(|clocks| {
        let own = timeline.own(&steps, clocks)?;
        let late = compare(&own)?;
        (clocks.error_ns * CLOCK_MARGIN <= late.excess_ns).then_some((own.place, late))
    })?;
    if late.since_ns.is_none() && steps.made() < WARM_UP {
        return None;
    }
    let ranks: Vec<u32> = late.ranks.iter().map(|index| timeline.ranks[*index]).collect();
    let shared = ranks.len() > 1 && timeline.is_group(&late.ranks) && case.ranks.host_of(&ranks).is_none();
    (!shared).then_some(Found { ranks, late, place })
}

/// Lateness must be so many times what clocks may be wrong by.
const CLOCK_MARGIN: f64 = 4.0;

/// A rank that is late as far back as the recorders reach is told when a job has made so many steps: first steps fill caches, and differ by rank.
const WARM_UP: f64 = 20.0;

impl Found {
    fn finding(self, case: &Case) -> Finding {
        let late = &self.late;
        let percent = |ns: f64| (1000.0 * ns / late.step_ns).round() / 10.0;
        let slower = Slower {
            percent: percent(late.excess_ns),
            from_percent: percent(late.interval_ns.0),
            to_percent: percent(late.interval_ns.1),
            step_ms: ms(late.step_ns),
            steps: late.steps,
            since_us: late.since_ns.map(|ns| ns / 1000),
        };
        let suspects = Suspects { slower: Some(slower), ..Suspects::of(self.ranks.clone(), None) };
        let said = culprit::fill(case, &suspects).to_string();
        let (own, others) = (ms(late.own_ns.0), ms(late.own_ns.1));
        let lines = self.ranks.iter().filter_map(|rank| {
            let dump = case.ranks.get(*rank)?.dump?;
            let note = format!("rank {rank} is by itself for {own} ms per step, the others for {others} ms");
            Some(Evidence::noted(dump.source.clone(), note))
        });
        let (before, behind) = &self.place;
        let words: [(&str, &dyn Display); 3] = [("said", &said), ("before", before), ("behind", behind)];
        let found = found("straggler.rank", &words, lines.collect());
        Finding { suspects: Some(suspects), ..found }
    }
}

fn ms(ns: f64) -> f64 {
    (ns / 1e5).round() / 10.0
}
