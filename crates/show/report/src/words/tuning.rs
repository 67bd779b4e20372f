//! Phrases of what a sweep of settings found.

use super::decimals;
use busbw_model::{TunedSetting, TunedStanding, Tuning};
use std::collections::BTreeSet;

/// Columns behind those of the variables; ± is half of the 95% interval.
pub(crate) const COLUMNS: [&str; 5] = ["mean", "behind", "± 95%", "std dev", "rounds"];

/// Digits of a mean that count.
const DIGITS: i32 = 5;

/// `wall time, s`.
pub(crate) fn measured(tuning: &Tuning) -> String {
    let direction = if tuning.objective.higher_is_better { "greater is better" } else { "smaller is better" };
    let unit = if tuning.objective.unit.is_empty() { String::new() } else { format!(" in {}", tuning.objective.unit) };
    format!("{}{unit}, {direction}", tuning.objective.name)
}

/// The values of a setting, one per variable: `-` where it is left alone, and `default` where all are.
pub(crate) fn values(tuning: &Tuning, setting: &TunedSetting) -> Vec<String> {
    let none = if setting.setting.is_default() { "default" } else { "-" };
    let value = |name: &str| setting.setting.value(name).unwrap_or(none).to_string();
    tuning.variables.iter().map(|variable| value(&variable.name)).collect()
}

/// The cells behind the values: see [`COLUMNS`].
pub(crate) fn cells(setting: &TunedSetting) -> [String; 5] {
    // What is said of a mean has its decimals.
    let decimals = setting.mean.map_or(0, |mean| decimals(mean, DIGITS));
    let shown = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.decimals$}"));
    [
        shown(setting.mean),
        setting.behind.map_or(String::new(), percent),
        shown(setting.interval),
        shown(setting.stddev),
        setting.rounds.to_string(),
    ]
}

/// `+1.2%`; no sign of what is nothing by the digits that are shown.
fn percent(share: f64) -> String {
    let shown = format!("{:+.1}%", share * 100.0);
    if shown == "-0.0%" { "+0.0%".into() } else { shown }
}

/// How a setting stands: what makes it remarkable.
pub(crate) fn standing(setting: &TunedSetting) -> String {
    let standing = match setting.standing {
        TunedStanding::Best => "best",
        TunedStanding::Tied => "tied",
        // Its failures are counted behind.
        TunedStanding::Worse | TunedStanding::Failed => "",
        TunedStanding::Unknown => "no result",
    };
    let failures = match setting.failures {
        0 => String::new(),
        count => format!("failed ×{count}"),
    };
    [standing, &failures].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Settings with trials that failed, and why: `NCCL_ALGO=Ring failed ×2: exit status 3`.
pub(crate) fn failed(tuning: &Tuning) -> Vec<String> {
    let why = |tuned: &TunedSetting| {
        let reason = tuned.reason.as_ref()?;
        Some(format!("{} failed ×{}: {reason}", tuned.setting.name(), tuned.failures))
    };
    tuning.settings.iter().filter_map(why).collect()
}

/// Five digits, or as many as a whole number has.
pub(crate) fn number(value: f64) -> String {
    format!("{value:.*}", decimals(value, DIGITS))
}

/// `12 trials (1 failed); four full rounds of 11 settings would take 44`.
pub(crate) fn trials(tuning: &Tuning) -> String {
    let count = tuning.trials;
    let failed = if count.failed > 0 { format!(" ({} failed)", count.failed) } else { String::new() };
    format!(
        "{}{failed}; four full rounds of {} would take {}",
        super::counted(count.ran, "trial"),
        super::counted(tuning.settings.len(), "setting"),
        count.four_full_rounds
    )
}

/// Means over the values of two variables.
pub(crate) struct Heatmap<'a> {
    /// The variable of the rows, and its values.
    pub rows: (&'a str, Vec<String>),
    /// The variable of the columns, and its values.
    pub columns: (&'a str, Vec<String>),
    /// A cell per row and column; `None` where there is no result.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// A mean, and how good it is: 1 the best, 0 the worst.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    pub mean: f64,
    pub goodness: f64,
}

/// The picture of two variables; `None` where another number of variables has several values.
pub(crate) fn heatmap(tuning: &Tuning) -> Option<Heatmap<'_>> {
    let varied = tuning.variables.iter().filter(|variable| variable.values.len() > 1);
    let [rows, columns] = varied.collect::<Vec<_>>()[..] else { return None };
    let both = |setting: &&TunedSetting| {
        setting.setting.value(&rows.name).is_some() && setting.setting.value(&columns.name).is_some()
    };
    let settings: Vec<&TunedSetting> = tuning.settings.iter().filter(both).collect();
    let means = || settings.iter().filter_map(|setting| setting.mean);
    let (low, high) = (means().reduce(f64::min)?, means().reduce(f64::max)?);
    let used = |name: &str, values: &[String]| -> Vec<String> {
        let used: BTreeSet<&str> = settings.iter().filter_map(|setting| setting.setting.value(name)).collect();
        values.iter().filter(|value| used.contains(value.as_str())).cloned().collect()
    };
    let goodness = |mean: f64| {
        let share = if high > low { (mean - low) / (high - low) } else { 0.0 };
        if tuning.objective.higher_is_better && high > low { share } else { 1.0 - share }
    };
    let (row_values, column_values) = (used(&rows.name, &rows.values), used(&columns.name, &columns.values));
    let cell = |row: &String, column: &String| {
        let at = |setting: &&&TunedSetting| {
            setting.setting.value(&rows.name) == Some(row) && setting.setting.value(&columns.name) == Some(column)
        };
        let mean = settings.iter().find(at)?.mean?;
        Some(Cell { mean, goodness: goodness(mean) })
    };
    let cells = row_values.iter().map(|row| column_values.iter().map(|column| cell(row, column)).collect()).collect();
    Some(Heatmap { rows: (&rows.name, row_values), columns: (&columns.name, column_values), cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_minus() {
        for (share, text) in [(0.0, "+0.0%"), (-0.0, "+0.0%"), (-0.0004, "+0.0%"), (-0.001, "-0.1%"), (0.25, "+25.0%")]
        {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn numbers_have_five_digits() {
        for (value, text) in [(307.914, "307.91"), (3.2134, "3.2134"), (0.0123456, "0.012346"), (123456.7, "123457")] {
            assert_eq!(number(value), text);
        }
    }
}
