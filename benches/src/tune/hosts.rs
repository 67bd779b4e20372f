//! Racing on two hosts of the lab whose TCP flows are limited, beside the whole grid: how near to the best, in how many runs.

use crate::lab::Lab;
use crate::machine::load;
use crate::program::{FileError, Outcome};
use crate::results::Origin;
use busbw_model::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// What a TCP flow carries at most, MB/s.
const FLOW_RATE: &str = "250";
/// Apart from the labs of `bench-peers`, which may be up too.
const LAB: usize = 9;
/// The share of the best's busbw that a winner has to reach, and of the grid's runs that the race may take.
const GOAL: (f64, f64) = (0.95, 1.0);

/// What is measured.
#[derive(Debug, Clone, Serialize)]
pub struct Test {
    /// The busbw to measure, a whole path.
    #[serde(skip)]
    pub busbw: PathBuf,
    /// The size of the all-reduce.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// Its iterations in a trial.
    pub iterations: u32,
    /// Rounds of the whole grid.
    pub rounds: u32,
    /// Races, with a seed each.
    pub races: u32,
}

/// What came out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    flow_rate_mb_s: &'static str,
    test: Test,
    grid: Swept,
    races: Vec<Raced>,
}

/// A sweep of `busbw tune`.
#[derive(Debug, Serialize)]
struct Swept {
    runs: usize,
    seconds: f64,
    /// What the machine was busy with before and after: processes that run or wait, over the last minute.
    load_before: Option<f64>,
    load_after: Option<f64>,
    /// The result as `busbw tune --json` gives it.
    result: Value,
}

#[derive(Debug, Serialize)]
struct Raced {
    seed: u32,
    /// The winner.
    settings: BTreeMap<String, String>,
    /// The winner's busbw in the whole grid, over that of the grid's best.
    of_best: Option<f64>,
    /// Runs over those of the grid.
    share_of_runs: f64,
    goal_met: bool,
    #[serde(flatten)]
    swept: Swept,
}

/// What of `busbw tune --json` is judged here.
#[derive(Deserialize)]
struct Answer {
    best: Option<Setting>,
    settings: Vec<Setting>,
    trials: Trials,
}

#[derive(Deserialize)]
struct Setting {
    settings: BTreeMap<String, String>,
    mean: Option<f64>,
    stddev: Option<f64>,
}

#[derive(Deserialize)]
struct Trials {
    ran: usize,
}

impl Answer {
    fn read(result: &Value) -> Outcome<Self> {
        serde_json::from_value(result.clone()).map_err(|error| format!("busbw tune printed no result: {error}").into())
    }

    fn mean(&self, settings: &BTreeMap<String, String>) -> Option<f64> {
        self.settings.iter().find(|setting| setting.settings == *settings)?.mean
    }
}

/// Sweeps the whole grid, then races as often as the test says.
pub fn measure(test: Test, scratch: &Path, mut progress: impl FnMut(&str)) -> Outcome<Report> {
    let root = std::path::absolute(".").map_err(FileError::at(Path::new(".")))?;
    let lab = Lab::up(&root, LAB, 2, &["--flow-rate", FLOW_RATE])?;
    progress("the whole grid");
    let rounds = test.rounds.to_string();
    let grid = sweep(&lab, &test, &["--exhaustive", "--rounds", &rounds], &scratch.join("grid"))?;
    let mut races = Vec::new();
    let tolerance = percent(1.0 - GOAL.0);
    for seed in 1..=test.races {
        progress(&format!("race {seed} of {}", test.races));
        let flags = ["--seed", &seed.to_string(), "--tolerance", &tolerance, "--rounds", &rounds];
        let swept = sweep(&lab, &test, &flags, &scratch.join(format!("race-{seed}")))?;
        races.push(Raced::of(seed, swept, &grid)?);
    }
    Ok(Report { origin: Origin::now("busbw.bench-tune-lab/1"), flow_rate_mb_s: FLOW_RATE, test, grid, races })
}

fn percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

fn sweep(lab: &Lab, test: &Test, flags: &[&str], store: &Path) -> Outcome<Swept> {
    let (size, iterations) = (test.size.0.to_string(), test.iterations.to_string());
    let hosts = [1, 2].map(|host| format!("{}:1", Lab::address(host))).join(",");
    let mut command = lab.leading(&test.busbw);
    command.args(["tune", "sockets", "--json", "--timeout", "5m", "--busbw", &size]);
    command.args(flags).arg("--store").arg(store).arg("--").arg(&test.busbw);
    command.args(["bench", "all_reduce", "--hosts", &hosts, "-b", &size, "-e", &size, "-n", &iterations, "-c", "0"]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let (began, load_before) = (Instant::now(), load());
    let ran = command.output().map_err(FileError::at(&test.busbw))?;
    let (seconds, load_after) = (began.elapsed().as_secs_f64(), load());
    let mut result: Value = serde_json::from_slice(&ran.stdout)
        .map_err(|_| format!("busbw tune gave no result: {}; its words are above", ran.status))?;
    if let Some(Value::String(command)) = result.get_mut("command") {
        // Where this machine keeps busbw is nobody's business.
        *command = command.replace(&*test.busbw.to_string_lossy(), "busbw");
    }
    Ok(Swept { runs: Answer::read(&result)?.trials.ran, seconds, load_before, load_after, result })
}

impl Raced {
    fn of(seed: u32, swept: Swept, grid: &Swept) -> Outcome<Self> {
        let (race, all) = (Answer::read(&swept.result)?, Answer::read(&grid.result)?);
        let settings = race.best.map(|best| best.settings).unwrap_or_default();
        let best = all.settings.iter().filter_map(|setting| setting.mean).reduce(f64::max);
        let of_best = all.mean(&settings).zip(best).map(|(mean, best)| mean / best);
        let share_of_runs = swept.runs as f64 / grid.runs.max(1) as f64;
        let goal_met = of_best.is_some_and(|of| of >= GOAL.0) && share_of_runs <= GOAL.1;
        Ok(Raced { seed, settings, of_best, share_of_runs, goal_met, swept })
    }
}

/// The report as markdown.
pub fn table(report: &Report) -> String {
    let Report { test, grid, races, .. } = report;
    let known = |load: Option<f64>| load.map_or("unknown".to_string(), |load| format!("{load:.1}"));
    let mut text = format!(
        "`busbw tune sockets` on all_reduce of {} between two hosts whose TCP flows carry at most {FLOW_RATE} MB/s, {}. The \
         whole grid: {} rounds, {} runs, {:.0} s, load {} before and {} after.\n\n",
        test.size,
        report.origin.day(),
        test.rounds,
        grid.runs,
        grid.seconds,
        known(grid.load_before),
        known(grid.load_after)
    );
    text.push_str("| threads × sockets | busbw GB/s | std dev |\n| --- | --: | --: |\n");
    let settings = Answer::read(&grid.result).map(|answer| answer.settings).unwrap_or_default();
    for setting in &settings {
        let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.3}"));
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "| {} | {} | {} |", name(&setting.settings), number(setting.mean), number(setting.stddev));
    }
    text.push_str("\n| race | winner | of the best | runs | of the grid's | seconds | load | goal |\n");
    text.push_str("| --: | --- | --: | --: | --: | --: | --: | --- |\n");
    for race in races {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.0}% | {:.0} | {} | 95%, in no more runs: {} |",
            race.seed,
            name(&race.settings),
            race.of_best.map_or("-".to_string(), |of| format!("{:.1}%", of * 100.0)),
            race.swept.runs,
            race.share_of_runs * 100.0,
            race.swept.seconds,
            known(race.swept.load_before),
            if race.goal_met { "met" } else { "missed" }
        );
    }
    text
}

/// `8 × 2`, or what NCCL takes by itself.
fn name(settings: &BTreeMap<String, String>) -> String {
    match (settings.get("NCCL_SOCKET_NTHREADS"), settings.get("NCCL_NSOCKS_PERTHREAD")) {
        (Some(threads), Some(sockets)) => format!("{threads} × {sockets}"),
        _ => "the default".to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;
    use serde_json::json;

    fn setting(threads: u32, mean: f64) -> Value {
        let settings = json!({"NCCL_SOCKET_NTHREADS": threads.to_string(), "NCCL_NSOCKS_PERTHREAD": "1"});
        json!({"settings": settings, "mean": mean, "stddev": 0.01})
    }

    fn swept(settings: &[Value], runs: usize) -> Swept {
        let result = json!({"best": settings.first(), "settings": settings, "trials": {"ran": runs}});
        Swept { runs, seconds: 1.0, load_before: None, load_after: Some(1.0), result }
    }

    #[test]
    fn a_winner_is_judged_by_what_it_reaches_in_the_grid() {
        let grid = swept(&[setting(8, 2.0), setting(4, 1.92), setting(1, 0.25)], 80);
        let judge = |winner: u32, runs| {
            let race = Raced::of(1, swept(&[setting(winner, 9.0)], runs), &grid).unwrap();
            (race.of_best.unwrap(), race.goal_met)
        };
        assert_eq!(judge(4, 80), (0.96, true));
        assert_eq!(judge(4, 81), (0.96, false));
        assert_eq!(judge(1, 10), (0.125, false));
        let unknown = Raced::of(1, swept(&[setting(16, 2.0)], 10), &grid).unwrap();
        assert_eq!((unknown.of_best, unknown.goal_met), (None, false));
    }
}
