//! What the benchmark found: a table for people, a JSON file for the record.

use super::{Entry, YARDSTICK};
use crate::measure::Sample;
use crate::nccl_log::{Shape, Written};
use crate::results::Origin;
use crate::statistics::Spread;
use busbw_model::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The file that was read.
#[derive(Debug, Serialize)]
pub struct Subject {
    /// Its size.
    pub bytes: u64,
    /// Its lines, as `wc` counts them.
    pub lines: Option<u64>,
    /// Its lines with the word Channel, as `rg` counts them.
    pub channel_lines: Option<u64>,
    /// How it was generated; none for a file of the user's.
    pub shape: Option<Shape>,
    /// What the generator wrote.
    pub written: Option<Written>,
}

/// Everything that one run of the benchmark found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    /// `ingest`, `training` or `scale`.
    pub mode: &'static str,
    /// Name of a tool and the version it prints of itself.
    tools: BTreeMap<&'static str, Option<String>>,
    file: Subject,
    /// What the last run of busbw said of the file: a reader that reads nothing is fast.
    answer: Option<Answer>,
    runs: usize,
    /// The memory of the benchmark program itself, below which no `peak_rss_bytes` can be.
    own_peak_rss_bytes: Option<u64>,
    goal_s: Option<f64>,
    goal_met: Option<bool>,
    commands: Vec<CommandResult>,
}

/// What busbw said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    verdict: String,
    communicators: usize,
}

#[derive(Debug, Serialize)]
struct CommandResult {
    name: &'static str,
    command: String,
    wall_s: Option<Spread>,
    cpu_s: Option<Spread>,
    peak_rss_bytes: Option<Spread>,
    peak_private_bytes: Option<Spread>,
    /// Wall time over that of rg in the same round.
    wall_ratio_to_rg: Option<Spread>,
    samples: Vec<Sample>,
}

impl Answer {
    /// Reads the JSON of `busbw explain`; none when it is something else.
    pub fn read(path: &Path) -> Option<Answer> {
        let json: serde_json::Value =
            serde_json::from_reader(std::io::BufReader::new(fs::File::open(path).ok()?)).ok()?;
        Some(Answer {
            verdict: json.get("verdict")?.as_str()?.to_string(),
            communicators: json.get("communicators")?.as_array()?.len(),
        })
    }
}

impl Report {
    /// Draws the conclusions from the samples of `entries`.
    pub fn new(
        mode: &'static str,
        file: Subject,
        entries: &[Entry],
        answer: Option<Answer>,
        goal_s: Option<f64>,
    ) -> Self {
        let commands: Vec<CommandResult> = entries.iter().map(|entry| CommandResult::new(entry, entries)).collect();
        let slowest = commands.iter().filter_map(|command| command.wall_s).map(|wall| wall.median).reduce(f64::max);
        let version = |entry: &Entry| crate::machine::tool_version(&entry.tool.program);
        Report {
            origin: Origin::now("busbw.bench-ingest/1"),
            mode,
            tools: entries.iter().map(|entry| (entry.program_name(), version(entry))).collect(),
            file,
            answer,
            runs: entries.first().map_or(0, |entry| entry.samples.len()),
            own_peak_rss_bytes: crate::measure::own_peak_rss_bytes(),
            goal_s,
            goal_met: goal_s.zip(slowest).map(|(goal, slowest)| slowest < goal),
            commands,
        }
    }
}

impl Entry {
    fn program_name(&self) -> &'static str {
        self.name.split(',').next().unwrap_or(self.name)
    }
}

impl CommandResult {
    fn new(entry: &Entry, all: &[Entry]) -> Self {
        let spread = |of: fn(&Sample) -> f64| Spread::of(entry.samples.iter().map(of));
        let yardstick = all.iter().find(|other| other.name == YARDSTICK);
        let ratios = yardstick.map(|rg| {
            entry.samples.iter().zip(&rg.samples).map(|(own, rg)| own.wall_s / rg.wall_s).collect::<Vec<_>>()
        });
        CommandResult {
            name: entry.name,
            command: entry.shown.clone(),
            wall_s: spread(|sample| sample.wall_s),
            cpu_s: spread(|sample| sample.cpu_s),
            peak_rss_bytes: spread(|sample| sample.peak_rss_bytes as f64),
            peak_private_bytes: Spread::of(
                entry.samples.iter().filter_map(|sample| sample.peak_private_bytes).map(|bytes| bytes as f64),
            ),
            wall_ratio_to_rg: ratios.and_then(Spread::of),
            samples: entry.samples.clone(),
        }
    }

    fn row(&self, bytes: u64) -> String {
        let three = |spread: Option<Spread>, decimals: usize| match spread {
            Some(s) => format!("{:.decimals$} / {:.decimals$} / {:.decimals$}", s.min, s.median, s.max),
            None => "-".to_string(),
        };
        let memory = |spread: Option<Spread>| spread.map_or("-".to_string(), |s| Bytes(s.max as u64).to_string());
        let rate = self.wall_s.map_or("-".to_string(), |wall| format!("{:.2}", bytes as f64 / wall.median / 1e9));
        format!(
            "{:<16}  {:>23}  {:>23}  {:>6}  {:>10}  {:>10}  {:>20}",
            self.name,
            three(self.wall_s, 3),
            three(self.cpu_s, 3),
            rate,
            memory(self.peak_rss_bytes),
            memory(self.peak_private_bytes),
            three(self.wall_ratio_to_rg, 2)
        )
    }
}

pub fn print_table(report: &Report) -> String {
    let mut text = String::new();
    let file = &report.file;
    let lines = file.lines.map_or(String::new(), |lines| format!(", {lines} lines"));
    let machine = &report.origin.machine;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}{lines}; {} runs each, in turn", Bytes(file.bytes), report.runs);
    let _ = writeln!(text, "{}, {} cores, {}", machine.cpu, machine.cores, Bytes(machine.memory_bytes));
    let _ = writeln!(
        text,
        "{:<16}  {:>23}  {:>23}  {:>6}  {:>10}  {:>10}  {:>20}",
        "min/median/max", "wall s", "user+sys s", "GB/s", "peak RSS", "private", "wall / rg"
    );
    for command in &report.commands {
        let _ = writeln!(text, "{}", command.row(file.bytes));
    }
    if let (Some(goal), Some(met)) = (report.goal_s, report.goal_met) {
        let _ = writeln!(text, "goal: a median below {goal} s: {}", if met { "met" } else { "missed" });
    }
    if report.mode != "scale" {
        let _ = match &report.answer {
            Some(answer) => {
                writeln!(text, "busbw says: {}, {} communicator(s)", answer.verdict, answer.communicators)
            }
            None => {
                writeln!(text, "warning: the last output is not busbw's JSON, so its times say nothing about busbw")
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tool;

    fn entry(name: &'static str, walls: &[f64]) -> Entry {
        let sample = |&wall_s: &f64| Sample {
            wall_s,
            cpu_s: wall_s,
            peak_rss_bytes: 1 << 20,
            peak_private_bytes: None,
            status: 0,
        };
        Entry {
            name,
            shown: format!("{name} FILE"),
            tool: Tool { program: "true".into(), arguments: Vec::new(), answers: &[0] },
            samples: walls.iter().map(sample).collect(),
        }
    }

    fn subject() -> Subject {
        Subject { bytes: 1 << 30, lines: Some(10), channel_lines: None, shape: None, written: None }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let entries = [entry("rg", &[1.0, 2.0, 4.0]), entry("busbw", &[2.0, 2.0, 2.0])];
        let report = Report::new("ingest", subject(), &entries, None, None);
        assert_eq!(report.commands[0].wall_ratio_to_rg, Some(Spread { min: 1.0, median: 1.0, max: 1.0 }));
        assert_eq!(report.commands[1].wall_ratio_to_rg, Some(Spread { min: 0.5, median: 1.0, max: 2.0 }));
        assert!(print_table(&report).contains("0.50 / 1.00 / 2.00"));
    }

    #[test]
    fn a_goal_is_met_by_the_median() {
        let judge =
            |walls: &[f64]| Report::new("scale", subject(), &[entry("busbw", walls)], None, Some(10.0)).goal_met;
        assert_eq!(judge(&[3.0, 9.0, 30.0]), Some(true));
        assert_eq!(judge(&[10.0]), Some(false));
    }
}
