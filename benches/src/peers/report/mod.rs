//! What the comparison found: ratios pair by pair, goals, and the record for the results folder.

mod text;

pub use text::{markdown, summary};

use super::Measured;
use super::program::{Kit, Program};
use super::scenario::{Case, Goal};
use crate::results::Origin;
use crate::statistics::Spread;
use serde::Serialize;
use std::collections::BTreeMap;

const BUSBW: &str = "busbw";
const UNLIMITED: &str = "busbw without limit";

/// Everything that one run of the benchmark found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    /// Name of a program and the version it prints of itself.
    programs: BTreeMap<&'static str, Option<String>>,
    repetitions: usize,
    cases: Vec<CaseResult>,
}

/// One table.
#[derive(Debug, Serialize)]
struct CaseResult {
    scenario: &'static str,
    collective: &'static str,
    ranks: u32,
    contestants: Vec<&'static str>,
    rows: Vec<Row>,
}

/// One size.
#[derive(Debug, Serialize)]
struct Row {
    size_bytes: u64,
    entries: Vec<Entry>,
    /// The peer whose median is smallest.
    best_peer: Option<&'static str>,
    goal: Option<Goal>,
    /// What the goal speaks of, repetition by repetition: a ratio of times, or GB/s.
    reached: Option<Spread>,
    /// Whether the median reaches the goal.
    met: Option<bool>,
}

/// What one contestant took at one size.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    iterations: u64,
    /// Whether it ran fewer iterations than the others, because it would have taken too long.
    cut: bool,
    time_us: Option<Spread>,
    busbw_gbs: Option<f64>,
    /// Its time over that of busbw in the same repetition: above 1, busbw is faster.
    ratio_to_busbw: Option<Spread>,
    samples_us: Vec<f64>,
}

impl Report {
    /// Draws the conclusions from what was measured.
    pub fn new(measured: &[Measured], kit: &Kit, programs: &[Program], repetitions: usize) -> Self {
        Report {
            origin: Origin::now("busbw.bench-peers/1"),
            programs: kit.versions(programs),
            repetitions,
            cases: measured.iter().map(CaseResult::new).collect(),
        }
    }
}

impl CaseResult {
    fn new(measured: &Measured) -> Self {
        let case = &measured.case;
        CaseResult {
            scenario: case.scenario,
            collective: case.collective.name(),
            ranks: case.ranks,
            contestants: case.contestants.iter().map(|contestant| contestant.name).collect(),
            rows: case.sizes.iter().map(|&size| Row::new(measured, size)).collect(),
        }
    }
}

impl Row {
    fn new(measured: &Measured, size: u64) -> Self {
        let case = &measured.case;
        let names = case.contestants.iter().map(|contestant| contestant.name);
        let samples = |index: usize| measured.times_us[index].get(&size).cloned().unwrap_or_default();
        let busbw = names.clone().position(|name| name == BUSBW).map(samples);
        let entry = |(index, name)| {
            let step = measured.plan.of(index).iter().find(|step| step.size == size);
            let cut = measured.plan.is_cut(index, size);
            Entry::new(name, case, size, step.map_or(0, |step| step.iterations), cut, samples(index), busbw.as_deref())
        };
        let entries: Vec<Entry> = names.enumerate().map(entry).collect();
        let best = best_peer(&entries);
        let goal = case.goal(size).filter(|_| busbw.is_some());
        let reached = goal.and_then(|goal| reached(goal, &entries, best, case, size));
        Row {
            size_bytes: size,
            best_peer: best.map(|entry| entry.name),
            met: goal.zip(reached).map(|(goal, reached)| reached.median >= goal.least()),
            goal,
            reached,
            entries,
        }
    }
}

impl Entry {
    fn new(
        name: &'static str,
        case: &Case,
        size: u64,
        iterations: u64,
        cut: bool,
        samples_us: Vec<f64>,
        busbw: Option<&[f64]>,
    ) -> Self {
        let time_us = Spread::of(samples_us.iter().copied());
        Entry {
            name,
            iterations,
            cut,
            time_us,
            busbw_gbs: time_us.map(|time| busbw_gbs(case, size, time.median)),
            ratio_to_busbw: busbw.filter(|_| name != BUSBW).and_then(|busbw| ratios(&samples_us, busbw)),
            samples_us,
        }
    }

    fn is_peer(&self) -> bool {
        self.name != BUSBW && self.name != UNLIMITED
    }
}

impl Goal {
    /// The number that is to be reached.
    fn least(self) -> f64 {
        match self {
            Goal::TimesBestPeer(least) | Goal::Rate(least) | Goal::OfOwnSpeed(least) => least,
        }
    }
}

fn busbw_gbs(case: &Case, size: u64, time_us: f64) -> f64 {
    size as f64 / time_us / 1e3 * case.collective.busbw_factor(case.ranks)
}

/// `above` over `below`, repetition by repetition.
fn ratios(above: &[f64], below: &[f64]) -> Option<Spread> {
    Spread::of(above.iter().zip(below).map(|(above, below)| above / below))
}

fn best_peer(entries: &[Entry]) -> Option<&Entry> {
    let timed = entries.iter().filter(|entry| entry.is_peer());
    let timed = timed.filter_map(|entry| entry.time_us.map(|time| (entry, time.median)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(entry, _)| entry)
}

fn reached(goal: Goal, entries: &[Entry], best: Option<&Entry>, case: &Case, size: u64) -> Option<Spread> {
    let named = |name: &str| entries.iter().find(|entry| entry.name == name);
    match goal {
        Goal::TimesBestPeer(_) => best?.ratio_to_busbw,
        Goal::Rate(_) => Spread::of(named(BUSBW)?.samples_us.iter().map(|&time_us| busbw_gbs(case, size, time_us))),
        Goal::OfOwnSpeed(_) => named(UNLIMITED)?.ratio_to_busbw,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::scenario::cases;
    use super::super::turn::Times;
    use super::*;

    const ALL: [Program; 4] = [Program::Busbw, Program::OpenMpi, Program::Mpich, Program::Gloo];

    /// A case of which every contestant took, at every size, the times given for it.
    fn measured(scenario: &str, times: &[&[f64]]) -> Measured {
        let case = cases(scenario, &ALL).remove(0);
        let of = |times: &[f64]| case.sizes.iter().map(|&size| (size, times.to_vec())).collect();
        let pilot: Vec<Times> = times.iter().map(|own| case.sizes.iter().map(|&s| (s, own[0])).collect()).collect();
        Measured { plan: Plan::new(&case, &pilot), times_us: times.iter().map(|own| of(own)).collect(), case }
    }

    #[test]
    fn ratios_are_those_of_pairs_and_the_best_peer_is_that_of_medians() {
        let result = CaseResult::new(&measured(
            "shm-2",
            &[&[1.0, 2.0, 2.0], &[3.0, 4.0, 4.0], &[9.0, 3.0, 9.0], &[90.0, 90.0, 90.0]],
        ));
        let row = &result.rows[5];
        assert_eq!((row.size_bytes, row.best_peer, row.met), (64 << 10, Some("Open MPI"), Some(true)));
        assert_eq!(row.reached, Some(Spread { min: 2.0, median: 2.0, max: 3.0 }));
        assert_eq!(row.entries[2].ratio_to_busbw, Some(Spread { min: 1.5, median: 4.5, max: 9.0 }));
        assert_eq!(row.entries[0].ratio_to_busbw, None);
        assert_eq!(row.entries[0].busbw_gbs, Some(65.536 / 2.0));
    }

    #[test]
    fn rates_and_limits_are_judged_by_their_own_goals() {
        // 16 MiB in 35 ms are 0.479 GB/s, 64 MiB in the same time four times as much.
        let rate = CaseResult::new(&measured("net-2-rate", &[&[35e3], &[40e3], &[40e3], &[40e3]]));
        assert_eq!(rate.rows[0].met, Some(true));
        let slow = CaseResult::new(&measured("net-2-rate", &[&[36e3], &[40e3], &[40e3], &[40e3]]));
        assert_eq!(slow.rows[0].met, Some(false));
        let flow = CaseResult::new(&measured("net-2-flow", &[&[10.0], &[8.9], &[1.0], &[1.0], &[1.0]]));
        assert_eq!((flow.rows[0].met, flow.rows[0].best_peer), (Some(false), Some("Open MPI")));
    }

    #[test]
    fn text_names_every_size_and_counts_the_goals() {
        let times: [&[f64]; 4] = [&[1.0], &[1.5], &[9.0], &[9.0]];
        let report = Report {
            origin: Origin::now(""),
            programs: BTreeMap::new(),
            repetitions: 1,
            cases: vec![CaseResult::new(&measured("shm-2", &times))],
        };
        let text = markdown(&report);
        for wanted in ["8 B", "64 KiB", "256 MiB", "missed", "met", "Open MPI"] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert!(summary(&report).contains("5 of 12 goals met"), "{}", summary(&report));
    }
}
