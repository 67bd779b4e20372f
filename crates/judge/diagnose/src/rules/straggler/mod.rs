//! A rank that is late for the collectives of each step, while the job goes on.
//!
//! Whoever is on time waits inside a collective for the one that is late, and that one waits for nobody. So the time that ranks wait is compared,
//! step by step: less than the others' is longer for the rank's own part. A rank that waits for a late one in one group, and is late itself in
//! the next group because of that, has waited: no victim is accused.

mod clocks;
mod compare;
mod meetings;

use super::found;
use crate::case::Case;
use crate::culprit;
use busbw_model::{Evidence, Finding, Slower, Suspects};
use clocks::Clocks;
use compare::{Late, compare};
use meetings::Meetings;
use std::fmt::Display;

/// At most one finding: the ranks that the others wait for.
pub fn rule(case: &Case) -> Vec<Finding> {
    slow(case).map(|(meetings, late)| finding(case, &meetings, &late)).into_iter().collect()
}

/// Who is late, by clocks that are surely less wrong than the lateness that they show.
fn slow(case: &Case) -> Option<(Meetings, Late)> {
    let meetings = Meetings::of(case)?;
    let steps = meetings.steps()?;
    let clocks = Clocks::candidates(&meetings);
    let late = clocks.iter().find_map(|clocks| {
        let late = compare(&meetings.waits(&steps, clocks))?;
        (clocks.error_ns * CLOCK_MARGIN <= late.excess_ns).then_some(late)
    })?;
    Some((meetings, late))
}

/// Lateness must be so many times what clocks may be wrong by.
const CLOCK_MARGIN: f64 = 4.0;

fn finding(case: &Case, meetings: &Meetings, late: &Late) -> Finding {
    let rank_of = |index: &usize| meetings.ranks[*index];
    let percent = |ns: f64| (1000.0 * ns / late.step_ns).round() / 10.0;
    let slower = Slower {
        percent: percent(late.excess_ns),
        from_percent: percent(late.interval_ns.0),
        to_percent: percent(late.interval_ns.1),
        step_ms: (late.step_ns / 1e5).round() / 10.0,
        steps: late.steps,
        since_us: late.since_ns.map(|ns| ns / 1000),
    };
    let suspects = Suspects { slower: Some(slower), ..Suspects::of(late.ranks.iter().map(rank_of).collect(), None) };
    let said = culprit::fill(case, &suspects).to_string();
    let lines = late.ranks.iter().map(rank_of).filter_map(|rank| {
        let dump = case.ranks.get(rank)?.dump?;
        let note =
            format!("rank {rank} waits {} ms per step, the others {} ms", ms(late.waits_ns.0), ms(late.waits_ns.1));
        Some(Evidence::noted(dump.source.clone(), note))
    });
    let words: [(&str, &dyn Display); 2] =
        [("said", &said), ("place", &late.place.as_deref().unwrap_or("their next collective"))];
    let found = found("straggler.rank", &words, lines.collect());
    Finding { suspects: Some(suspects), ..found }
}

fn ms(ns: f64) -> f64 {
    (ns / 1e5).round() / 10.0
}
