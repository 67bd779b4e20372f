//! What the benchmark of the simulation found: a table for people, JSON for the record.

use super::{Case, Measured};
use crate::measure::Sample;
use crate::results::Origin;
use crate::statistics::Spread;
use busbw_model::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// Everything that one run of the benchmark found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    /// Threads of each simulation.
    threads: u32,
    runs: usize,
    rows: Vec<Row>,
    growth: Vec<Growth>,
}

/// A case at a size.
#[derive(Debug, Serialize)]
struct Row {
    case: Case,
    gpus: u32,
    wall_s: Option<Spread>,
    cpu_s: Option<Spread>,
    peak_rss_bytes: Option<Spread>,
    goal_s: Option<f64>,
    goal_bytes: Option<u64>,
    /// Whether the medians are below the goals.
    goal_met: Option<bool>,
    samples: Vec<Sample>,
}

/// How the CPU time of a case grows over its largest eightfold step.
#[derive(Debug, Serialize)]
struct Growth {
    case: Case,
    from_gpus: u32,
    to_gpus: u32,
    /// CPU time at the larger size over that at the smaller.
    times: f64,
    /// What n log n would grow by.
    n_log_n_times: f64,
}

impl Report {
    /// Draws the conclusions from what was measured.
    pub fn new(measured: &[Measured]) -> Self {
        let rows: Vec<Row> = measured.iter().map(Row::new).collect();
        Report {
            origin: Origin::now("busbw.bench-simulate/1"),
            threads: 1,
            runs: measured.first().map_or(0, |of_case| of_case.samples.len()),
            growth: Case::ALL.into_iter().filter_map(|case| Growth::of(case, &rows)).collect(),
            rows,
        }
    }
}

impl Row {
    fn new(measured: &Measured) -> Self {
        let spread = |of: fn(&Sample) -> f64| Spread::of(measured.samples.iter().map(of));
        let (wall_s, peak_rss_bytes) = (spread(|s| s.wall_s), spread(|s| s.peak_rss_bytes as f64));
        let goal = measured.case.goal(measured.gpus);
        let met = |(seconds, bytes): (f64, Option<u64>)| {
            let in_memory = bytes.is_none_or(|bytes| peak_rss_bytes.is_some_and(|rss| rss.median < bytes as f64));
            wall_s.is_some_and(|wall| wall.median < seconds) && in_memory
        };
        Row {
            case: measured.case,
            gpus: measured.gpus,
            wall_s,
            cpu_s: spread(|s| s.cpu_s),
            peak_rss_bytes,
            goal_s: goal.map(|(seconds, _)| seconds),
            goal_bytes: goal.and_then(|(_, bytes)| bytes),
            goal_met: goal.map(met),
            samples: measured.samples.clone(),
        }
    }
}

impl Growth {
    fn of(case: Case, rows: &[Row]) -> Option<Growth> {
        let own = || rows.iter().filter(|row| row.case == case);
        let to = own().max_by_key(|row| row.gpus)?;
        let from = own().find(|row| row.gpus == to.gpus / 8)?;
        let steps = |gpus: u32| f64::from(gpus) * f64::from(gpus).log2();
        Some(Growth {
            case,
            from_gpus: from.gpus,
            to_gpus: to.gpus,
            times: to.cpu_s?.median / from.cpu_s?.median,
            n_log_n_times: steps(to.gpus) / steps(from.gpus),
        })
    }
}

/// The report as markdown: times are medians in seconds on one core.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let machine = &report.origin.machine;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}, {} cores, Linux {}; {}; {} runs in turn, one thread each.\n",
        machine.cpu,
        machine.cores,
        machine.kernel,
        report.origin.day(),
        report.runs
    );
    let _ = writeln!(
        text,
        "| case | GPUs | seconds | µs per GPU | peak memory | goal |\n| --- | --: | --: | --: | --: | --- |"
    );
    for case in Case::ALL {
        for row in report.rows.iter().filter(|row| row.case == case) {
            let seconds = row.wall_s.map_or(f64::NAN, |wall| wall.median);
            let _ = writeln!(
                text,
                "| {} | {} | {seconds:.3} | {:.1} | {} | {} |",
                case.title(),
                row.gpus,
                seconds * 1e6 / f64::from(row.gpus),
                row.peak_rss_bytes.map_or("-".to_string(), |rss| Bytes(rss.median as u64).to_string()),
                goal(row)
            );
        }
    }
    text.push('\n');
    for growth in &report.growth {
        let _ = writeln!(
            text,
            "{}: {} to {} GPUs takes {:.1} times the CPU time; n log n would be {:.1}.",
            growth.case.title(),
            growth.from_gpus,
            growth.to_gpus,
            growth.times,
            growth.n_log_n_times
        );
    }
    text
}

fn goal(row: &Row) -> String {
    let (Some(seconds), Some(met)) = (row.goal_s, row.goal_met) else { return String::new() };
    let memory = row.goal_bytes.map_or(String::new(), |bytes| format!(", {}", Bytes(bytes)));
    format!("below {seconds} s{memory}: {}", if met { "met" } else { "missed" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(case: Case, gpus: u32, seconds: f64, bytes: u64) -> Measured {
        let sample =
            Sample { wall_s: seconds, cpu_s: seconds, peak_rss_bytes: bytes, peak_private_bytes: None, status: 0 };
        Measured { case, gpus, samples: vec![sample; 3] }
    }

    #[test]
    fn goals_are_of_time_and_memory() {
        let met = |case, gpus, seconds, bytes| Row::new(&measured(case, gpus, seconds, bytes)).goal_met;
        assert_eq!(met(Case::RingAndTree, 65_536, 59.0, 3 << 30), Some(true));
        assert_eq!(met(Case::RingAndTree, 65_536, 61.0, 3 << 30), Some(false));
        assert_eq!(met(Case::RingAndTree, 65_536, 59.0, 5 << 30), Some(false));
        assert_eq!(met(Case::ManySeeds, 2048, 11.0, 0), Some(false));
        assert_eq!(met(Case::ManySeeds, 4096, 11.0, 0), None);
    }

    #[test]
    fn growth_is_over_the_largest_eightfold_step() {
        let sizes = [(512, 1.0), (1024, 2.0), (4096, 10.0)];
        let rows: Vec<Row> = sizes.iter().map(|&(n, s)| Row::new(&measured(Case::ManySeeds, n, s, 0))).collect();
        let growth = Growth::of(Case::ManySeeds, &rows);
        let numbers = growth.map(|growth| (growth.from_gpus, growth.to_gpus, growth.times, growth.n_log_n_times));
        assert_eq!(numbers, Some((512, 4096, 10.0, 8.0 * 12.0 / 9.0)));
        assert!(Growth::of(Case::ManySeeds, &rows[1..]).is_none());
    }

    #[test]
    fn the_table_has_a_line_per_case_and_size() {
        let report =
            Report::new(&[measured(Case::RingAndTree, 65_536, 0.5, 1 << 30), measured(Case::ManySeeds, 512, 1.0, 0)]);
        let text = table(&report);
        assert!(
            text.contains("| ring and tree, 1 seed | 65536 | 0.500 | 7.6 | 1 GiB | below 60 s, 4 GiB: met |"),
            "{text}"
        );
        assert!(text.contains("| ring, 1,000 seeds | 512 | 1.000 |"), "{text}");
    }
}
