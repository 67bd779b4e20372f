//! The report as tables in markdown, for a README, and as a summary for the terminal.

use super::{BUSBW, CaseResult, Entry, Report, Row};
use crate::peers::scenario::Goal;
use crate::statistics::Spread;
use busbw_model::Bytes;
use std::fmt::Write as _;

/// Every case as a table in markdown.
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    let machine = &report.origin.machine;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{}, {} cores, Linux {}; {}; {} repetitions in turn.",
        machine.cpu,
        machine.cores,
        machine.kernel,
        report.origin.day(),
        report.repetitions
    );
    let versions = report.programs.values().flatten().cloned().collect::<Vec<_>>();
    let _ = writeln!(text, "{}.", versions.join("; "));
    let _ = writeln!(
        text,
        "\nTimes are medians in µs. Behind a peer's time: how many times slower than busbw it is, median (min to max) of \
         the pairs of one repetition."
    );
    for case in &report.cases {
        table(&mut text, case);
    }
    text
}

/// How many goals are met in each case, and which are not.
pub fn summary(report: &Report) -> String {
    let mut text = String::new();
    for case in &report.cases {
        let judged: Vec<(&Row, bool)> = case.rows.iter().filter_map(|row| row.met.map(|met| (row, met))).collect();
        if judged.is_empty() {
            continue;
        }
        let met = judged.iter().filter(|(_, met)| *met).count();
        let _ = write!(text, "{} {}: {met} of {} goals met", case.scenario, case.collective, judged.len());
        let missed = judged.iter().filter(|(_, met)| !met).map(|(row, _)| {
            let reached = row.goal.zip(row.reached).map(|(goal, reached)| format!(" ({})", said(goal, reached.median)));
            format!("{}{}", Bytes(row.size_bytes), reached.unwrap_or_default())
        });
        let missed: Vec<String> = missed.collect();
        let _ = writeln!(text, "{}{}", if missed.is_empty() { "" } else { "; missed: " }, missed.join(", "));
    }
    text
}

fn table(text: &mut String, case: &CaseResult) {
    let _ = writeln!(text, "\n### {}, {}, {} ranks\n", case.scenario, case.collective, case.ranks);
    let judged = case.rows.iter().any(|row| row.goal.is_some());
    let timed = case.contestants.contains(&BUSBW);
    let mut header = vec!["size".to_string()];
    header.extend(case.contestants.iter().map(|name| name.to_string()));
    if timed {
        header.insert(2, "busbw, GB/s".to_string());
    }
    if judged {
        header.push("goal".to_string());
    }
    let _ = writeln!(text, "| {} |\n|{}", header.join(" | "), " ---: |".repeat(header.len()));
    for row in &case.rows {
        let mut cells = vec![Bytes(row.size_bytes).to_string()];
        for entry in &row.entries {
            cells.push(cell(entry, row.best_peer));
            if entry.name == BUSBW {
                cells.push(entry.busbw_gbs.map_or(String::new(), |gbs| number(gbs, 2)));
            }
        }
        if judged {
            cells.push(verdict(row));
        }
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if case.rows.iter().flat_map(|row| &row.entries).any(|entry| entry.cut) {
        let _ = writeln!(text, "\n\\* fewer iterations than the others, because these would have taken too long.");
    }
}

fn cell(entry: &Entry, best: Option<&str>) -> String {
    let Some(time) = entry.time_us else {
        return String::new();
    };
    let time = format!("{}{}", significant(time.median), if entry.cut { "\\*" } else { "" });
    let time = if best == Some(entry.name) { format!("**{time}**") } else { time };
    match entry.ratio_to_busbw {
        Some(ratio) => format!("{time} {}", spread(ratio)),
        None => time,
    }
}

fn verdict(row: &Row) -> String {
    let (Some(goal), Some(met)) = (row.goal, row.met) else {
        return String::new();
    };
    let wanted = said(goal, goal.least());
    let reached = row.reached.map_or(String::new(), |reached| said(goal, reached.median));
    if met { format!("{wanted} met: {reached}") } else { format!("{wanted} **missed**: {reached}") }
}

/// A number that a goal speaks of, in the goal's unit.
fn said(goal: Goal, value: f64) -> String {
    match goal {
        Goal::TimesBestPeer(_) => format!("{}×", number(value, 2)),
        Goal::Rate(_) => format!("{value:.3} GB/s"),
        Goal::OfOwnSpeed(_) => format!("{:.0}%", value * 100.0),
    }
}

fn spread(ratio: Spread) -> String {
    format!("{}× ({} to {})", number(ratio.median, 2), number(ratio.min, 2), number(ratio.max, 2))
}

fn number(value: f64, decimals: usize) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.decimals$}") }
}

/// Three significant digits, more for large numbers.
fn significant(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 2 - value.max(0.01).log10().floor() as i32 };
    format!("{value:.*}", usize::try_from(decimals).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_say_something() {
        for (value, text) in
            [(0.1642, "0.164"), (1.0, "1.00"), (12.345, "12.3"), (118.4973, "118"), (35370.07, "35370")]
        {
            assert_eq!(significant(value), text);
        }
    }
}
