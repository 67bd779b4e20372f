//! What a sweep found as text: the verdict, a table of settings, a heatmap of two variables.

use super::Style;
use super::page::Page;
use crate::style::{clip, columns, left, right, widest};
use crate::words::tuning as words;
use busbw_model::{TunedSetting, Tuning};

/// Settings that are listed at most.
const MAX_SETTINGS: usize = 60;
/// Of these, on a screen.
const BRIEF_SETTINGS: usize = 10;
/// A value is cut to this.
const MAX_VALUE: usize = 24;
/// A name is cut to this.
const MAX_NAME: usize = 48;
/// Columns that a narrow terminal does without, the first of them first.
const LEFT_OUT: [&str; 3] = ["std dev", "rounds", "± 95%"];
/// Failures that a screen shows.
const BRIEF_FAILURES: usize = 3;
/// From the worst to the best.
const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];

/// The text of a sweep's result, ready to print.
pub fn tune(tuning: &Tuning, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.lead(&tuning.summary);
    page.heading(&words::measured(tuning));
    settings(&mut page, tuning, if style.brief { BRIEF_SETTINGS } else { MAX_SETTINGS });
    page.indented(2, &format!("Tied with the best, by {}. ±: half of the 95% interval of the mean.", tuning.method));
    let failed = words::failed(tuning);
    failed.iter().take(if style.brief { BRIEF_FAILURES } else { failed.len() }).for_each(|why| page.clipped(2, why));
    if style.brief {
        page.more_by("-v for all settings and trials; -o page.html for a page");
        return page.finish();
    }
    heatmap(&mut page, tuning);
    page.heading("Trials");
    page.indented(2, &words::trials(tuning));
    page.clipped(2, &tuning.command);
    page.finish_with(style.rows, |page| page.lead(&tuning.summary))
}

/// A line per setting: how it stands, its values, and what was measured.
fn settings(page: &mut Page, tuning: &Tuning, most: usize) {
    let shown = &tuning.settings[..tuning.settings.len().min(most)];
    let numbered = |(index, setting)| row(tuning, index, setting);
    let rows: Vec<Vec<String>> = shown.iter().enumerate().map(numbered).collect();
    let names = [vec!["#".to_string()], vec![String::new()]];
    let variables = tuning.variables.iter().enumerate().map(|(at, variable)| {
        let cells = widest(rows.iter().map(|row| &row[2 + at]));
        in_lines(&clip(in_short(&variable.name), MAX_NAME), cells)
    });
    let heads: Vec<Vec<String>> =
        names.into_iter().chain(variables).chain(words::COLUMNS.map(|name| vec![name.into()])).collect();
    let width = |column: usize| widest(rows.iter().map(|row| &row[column]).chain(&heads[column]));
    let mut widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for name in LEFT_OUT {
        let at = heads.iter().position(|head| head[0] == name);
        let wide = widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum::<usize>() > page.width();
        if let Some(at) = at.filter(|_| wide) {
            widths[at] = 0;
        }
    }
    let line = |cells: &[String]| {
        let shown = cells.iter().zip(&widths).enumerate().filter(|(at, (_, width))| *at == 1 || **width > 0);
        // How a setting stands is words; all else is like numbers.
        let aligned = |(at, (cell, width)): (usize, (&String, &usize))| match at {
            1 => left(cell, *width),
            _ => right(cell, *width),
        };
        shown.map(aligned).collect::<Vec<_>>().join("  ")
    };
    let high = heads.iter().map(Vec::len).max().unwrap_or(1);
    for at in 0..high {
        // Short names stand at the bottom.
        let cell =
            |head: &Vec<String>| (at + head.len()).checked_sub(high).map_or(String::new(), |at| head[at].clone());
        let cells: Vec<String> = heads.iter().map(cell).collect();
        page.clipped(2, &line(&cells));
    }
    for cells in &rows {
        page.clipped(2, &line(cells));
    }
    page.more(tuning.settings.len(), most);
}

fn row(tuning: &Tuning, index: usize, setting: &TunedSetting) -> Vec<String> {
    let values = words::values(tuning, setting).into_iter().map(|value| clip(&value, MAX_VALUE).to_string());
    let place = [(index + 1).to_string(), words::standing(setting)];
    place.into_iter().chain(values).chain(words::cells(setting)).collect()
}

/// A name in lines no wider than the cells below it, or than its longest word: `SOCKET_`, `NTHREADS`.
fn in_lines(name: &str, cells: usize) -> Vec<String> {
    let words: Vec<&str> = name.split_inclusive('_').collect();
    let width = widest(words.iter()).max(cells);
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut().filter(|line| columns(line) + columns(word) <= width) {
            Some(line) => line.push_str(word),
            None => lines.push(word.to_string()),
        }
    }
    lines
}

/// A variable's name without what nearly all of them begin with.
fn in_short(name: &str) -> &str {
    let (first, rest) = name.split_at_checked(5).unwrap_or(("", name));
    if first.eq_ignore_ascii_case("NCCL_") { rest } else { name }
}

/// Means over two variables, the better the darker.
fn heatmap(page: &mut Page, tuning: &Tuning) {
    let Some(map) = words::heatmap(tuning) else { return };
    page.heading(&format!("{} down, {} across", map.rows.0, map.columns.0));
    let mean = |cell: Option<words::Cell>| cell.map_or("-".into(), |cell| words::number(cell.mean));
    let cells = map.cells.iter().flatten().map(|cell| mean(*cell));
    let width = widest(map.columns.1.iter()).max(widest(cells));
    let label = widest(map.rows.1.iter());
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
