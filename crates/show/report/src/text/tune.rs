//! What a sweep found as text: the verdict, a table of settings, a heatmap of two variables.

use super::Style;
use super::page::Page;
use crate::style::{clip, columns, left, right};
use crate::words::tuning as words;
use busbw_model::{TunedSetting, Tuning};

/// Settings that are listed at most.
const MAX_SETTINGS: usize = 60;
/// Of these, on a screen.
const BRIEF_SETTINGS: usize = 10;
/// A value or a name is cut to this.
const MAX_VALUE: usize = 24;
/// From the worst to the best.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];

/// The text of a sweep's result, ready to print.
pub fn tune(tuning: &Tuning, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.lead(&tuning.summary);
    page.heading(&words::measured(tuning));
    settings(&mut page, tuning, if style.brief { BRIEF_SETTINGS } else { MAX_SETTINGS });
    page.indented(2, &format!("Tied with the best, by {}. ±: half of the 95% interval of the mean.", tuning.method));
    if style.brief {
        page.more_by("-v for all settings, their map and the trials; --format html -o page.html for a page");
        return page.finish();
    }
    heatmap(&mut page, tuning);
    page.heading("Trials");
    page.indented(2, &words::trials(tuning));
    page.clipped(2, &tuning.command);
    page.finish_with(style.rows, |page| page.lead(&tuning.summary))
}

/// A line per setting, its values first.
fn settings(page: &mut Page, tuning: &Tuning, most: usize) {
    let shown = &tuning.settings[..tuning.settings.len().min(most)];
    let heads = tuning.variables.iter().map(|variable| clip(in_short(&variable.name), MAX_VALUE).to_string());
    let rows: Vec<Vec<String>> = shown.iter().map(|setting| row(tuning, setting)).collect();
    let heads: Vec<String> = [String::new()].into_iter().chain(heads).chain(words::COLUMNS.map(String::from)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0);
        cells.max(columns(&heads[column]))
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[String]| {
        let numbers = cells.iter().zip(&widths).skip(1).map(|(cell, width)| right(cell, *width));
        [left(&cells[0], widths[0])].into_iter().chain(numbers).collect::<Vec<_>>().join("  ")
    };
    page.clipped(2, &format!("{:>3}  {}", "#", line(&heads)));
    for (index, cells) in rows.iter().enumerate() {
        page.clipped(2, &format!("{:>3}  {}", index + 1, line(cells)));
    }
    page.more(tuning.settings.len(), most);
}

fn row(tuning: &Tuning, setting: &TunedSetting) -> Vec<String> {
    let values = words::values(tuning, setting).into_iter().map(|value| clip(&value, MAX_VALUE).to_string());
    [words::standing(setting)].into_iter().chain(values).chain(words::cells(setting)).collect()
}

/// A variable's name without what nearly all of them begin with.
fn in_short(name: &str) -> &str {
    name.strip_prefix("NCCL_").unwrap_or(name)
}

/// Means over two variables, the better the darker.
fn heatmap(page: &mut Page, tuning: &Tuning) {
    let Some(map) = words::heatmap(tuning) else { return };
    page.heading(&format!("{} down, {} across", map.rows.0, map.columns.0));
    let mean = |cell: Option<words::Cell>| cell.map_or("-".into(), |cell| words::number(cell.mean));
    let cells = map.cells.iter().flatten().map(|cell| columns(&mean(*cell)));
    let width = map.columns.1.iter().map(|value| columns(value)).chain(cells).max().unwrap_or(0);
    let label = map.rows.1.iter().map(|value| columns(value)).max().unwrap_or(0);
    let heads: String = map.columns.1.iter().map(|value| format!("  {}  ", right(value, width))).collect();
    page.clipped(2, &format!("{}{heads}", left("", label)));
    for (value, row) in map.rows.1.iter().zip(&map.cells) {
        let shade = |cell: Option<words::Cell>| {
            cell.map_or(" ", |cell| SHADES[((cell.goodness * SHADES.len() as f64) as usize).min(SHADES.len() - 1)])
        };
        let cells: String =
            row.iter().map(|cell| format!("  {} {}", right(&mean(*cell), width), shade(*cell))).collect();
        page.clipped(2, &format!("{}{cells}", right(value, label)));
    }
    page.indented(2, "The darker the better.");
}
