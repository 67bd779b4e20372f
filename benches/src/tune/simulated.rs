//! Racing a simulated workload with the means and deviations of the third field report, over many seeds.
//!
//! Where the report made one run and gives no deviation, the mean of those that it gives is taken.

use crate::program::{FileError, Outcome};
use crate::random::Random;
use crate::results::Origin;
use busbw_tune::race::{Race, Rules};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Rounds of the full grid with which racing is compared.
const FULL_ROUNDS: usize = 4;
/// How near to the best a winner has to be.
const WITHIN: f64 = 0.02;
/// The share of seeds in which it has to be, and of the full grid's runs that it may take.
const GOAL: (f64, f64) = (0.95, 0.5);

/// A setting whose time is known.
#[derive(Debug, Clone, Serialize)]
pub struct Arm {
    /// `8x2`.
    pub name: String,
    /// Mean time in seconds.
    pub mean_s: f64,
    /// Standard deviation in seconds.
    pub stddev_s: f64,
}

/// What came out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    arms: Vec<Arm>,
    seeds: u64,
    full_runs: usize,
    races: Vec<Raced>,
}

/// Races under one budget.
#[derive(Debug, Serialize)]
struct Raced {
    /// Trials at most; none: until decided.
    most_runs: Option<usize>,
    /// Share of seeds whose winner is within 2% of the best.
    within_2pct: f64,
    /// The same of those that took at most half of the full grid's runs: what the goal is about.
    within_2pct_in_half_the_runs: f64,
    /// Share of seeds in which the race was decided.
    decided: f64,
    runs_mean: f64,
    runs_median: usize,
    runs_max: usize,
    goal_met: bool,
}

/// Reads the sweep of the third field report.
pub fn arms(path: &Path) -> Outcome<Vec<Arm>> {
    let text = fs::read_to_string(path)
        .map_err(FileError::at(path))
        .map_err(|error| format!("{error}; run it from the repository's root"))?;
    let failed =
        |line: &str| format!("{}: a line is no setting with mean and deviation: {line}", path.display()).into();
    let mut rows = Vec::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [threads, sockets, _, mean, stddev] = cells[..] else { return Err(failed(line)) };
        let mean_s: f64 = mean.parse().map_err(|_| failed(line))?;
        rows.push((format!("{threads}x{sockets}"), mean_s, stddev.parse::<f64>().ok()));
    }
    let known: Vec<f64> = rows.iter().filter_map(|(.., stddev)| *stddev).collect();
    if known.is_empty() {
        return Err(failed("no deviation"));
    }
    let usual = known.iter().sum::<f64>() / known.len() as f64;
    let arm =
        |(name, mean_s, stddev): (String, f64, Option<f64>)| Arm { name, mean_s, stddev_s: stddev.unwrap_or(usual) };
    Ok(rows.into_iter().map(arm).collect())
}

/// Races over seeds, until decided and with half of the full grid's runs.
pub fn measure(arms: Vec<Arm>, seeds: u64) -> Report {
    let full_runs = FULL_ROUNDS * arms.len();
    let races = [None, Some(full_runs / 2)].map(|most| Raced::of(&arms, seeds, most, full_runs)).into();
    Report { origin: Origin::now("busbw.bench-tune/1"), seeds, full_runs, races, arms }
}

impl Raced {
    fn of(arms: &[Arm], seeds: u64, most_runs: Option<usize>, full_runs: usize) -> Self {
        let best = arms.iter().map(|arm| arm.mean_s).fold(f64::INFINITY, f64::min);
        let near = |winner: Option<usize>| winner.is_some_and(|w| arms[w].mean_s <= best * (1.0 + WITHIN));
        let races: Vec<(Race, usize)> = (0..seeds).map(|seed| race(arms, seed, most_runs)).collect();
        let share = |holds: &dyn Fn(&(Race, usize)) -> bool| {
            races.iter().filter(|race| holds(race)).count() as f64 / races.len().max(1) as f64
        };
        let mut runs: Vec<usize> = races.iter().map(|(_, runs)| *runs).collect();
        runs.sort_unstable();
        let in_half = |runs: usize| runs as f64 <= GOAL.1 * full_runs as f64;
        let within_half = share(&|(race, runs)| near(race.leader()) && in_half(*runs));
        Raced {
            most_runs,
            within_2pct: share(&|(race, _)| near(race.leader())),
            within_2pct_in_half_the_runs: within_half,
            decided: share(&|(race, _)| race.is_decided()),
            runs_mean: runs.iter().sum::<usize>() as f64 / runs.len().max(1) as f64,
            runs_median: runs.get(runs.len() / 2).copied().unwrap_or(0),
            runs_max: runs.last().copied().unwrap_or(0),
            goal_met: within_half >= GOAL.0,
        }
    }
}

/// A race to its end, and how many runs it took.
fn race(arms: &[Arm], seed: u64, most_runs: Option<usize>) -> (Race, usize) {
    let mut random = Random::new(seed);
    let mut race = Race::new(arms.len(), Rules { seed, trials: most_runs, ..Rules::default() });
    let mut runs = 0;
    loop {
        let round = race.next_round();
        if round.is_empty() {
            return (race, runs);
        }
        for setting in round {
            let arm = &arms[setting];
            race.record(setting, Some(arm.mean_s + arm.stddev_s * normal(&mut random)));
            runs += 1;
        }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let (u, v) = (1.0 - random.fraction(), random.fraction());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The report as markdown.
pub fn table(report: &Report) -> String {
    let mut text = format!(
        "Racing on the eleven settings of the third field report, {} seeds, {}; four full rounds take {} runs.\n\n\
         | budget | within 2% of the best | and in half the runs | decided | runs: mean | median | most | goal |\n\
         | --- | --: | --: | --: | --: | --: | --: | --- |\n",
        report.seeds,
        report.origin.day(),
        report.full_runs
    );
    for raced in &report.races {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {:.1}% | {:.1}% | {:.1}% | {:.1} | {} | {} | at least 95%: {} |",
            raced.most_runs.map_or("until decided".into(), |most| format!("{most} runs")),
            raced.within_2pct * 100.0,
            raced.within_2pct_in_half_the_runs * 100.0,
            raced.decided * 100.0,
            raced.runs_mean,
            raced.runs_median,
            raced.runs_max,
            if raced.goal_met { "met" } else { "missed" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal of the benchmark, on fewer seeds.
    #[test]
    fn racing_finds_a_good_setting_in_half_the_runs() {
        let sweep = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tune/lanta-socket-sweep.csv");
        let report = measure(arms(&sweep).unwrap(), 200);
        assert_eq!((report.arms.len(), report.full_runs), (11, 44));
        let half = report.races.iter().find(|raced| raced.most_runs == Some(22)).unwrap();
        assert!(half.goal_met && half.runs_max <= 22, "{half:?}");
    }
}
