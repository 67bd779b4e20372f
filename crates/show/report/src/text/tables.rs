//! The tables: a few as bar charts, many as a line each.

use super::page::{Page, paint};
use crate::style::{left, right, widest};
use crate::words;
use busbw_model::{BenchRow, BenchTable, Diagnosis, ExpectedTable, GBps, Measure, Run};

/// More tables than this have one line each.
const MAX_CHARTS: usize = 4;
/// Lines of tables that are shown at most.
const MAX_LINES: usize = 24;
/// Rows of a chart at most.
const MAX_ROWS: usize = 30;
/// The widest bar; longer ones say nothing more.
const MAX_BAR: usize = 60;
/// Blocks of an eighth to a whole column.
const BLOCKS: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// Every table: up to four as charts, more as a line each.
pub(super) fn tables(page: &mut Page, run: &Run, diagnosis: &Diagnosis) {
    if run.tables.len() > MAX_CHARTS {
        return summaries(page, run);
    }
    for (index, table) in run.tables.iter().enumerate() {
        page.heading(&format!("{}  ({})", words::table_title(table), words::location(run, table.place)));
        chart(page, table, diagnosis.expected_table(index));
        let figures = words::table_figures(table);
        if !figures.is_empty() {
            page.indented(2, &figures.join(", "));
        }
    }
}

fn summaries(page: &mut Page, run: &Run) {
    page.heading(&format!("{} tables, busbw in GB/s", run.tables.len()));
    let rows: Vec<[String; 4]> = run.tables.iter().take(MAX_LINES).map(|table| summary(run, table)).collect();
    let width = |cell: usize| widest(rows.iter().map(|row| &row[cell]));
    let widths = [width(0), width(1), width(2)];
    for [title, sizes, figures, location] in &rows {
        let cells = [left(title, widths[0]), left(sizes, widths[1]), left(figures, widths[2])];
        page.clipped(2, &format!("{}  {location}", cells.join("  ")));
    }
    page.more(run.tables.len(), MAX_LINES);
}

/// Title, sizes, figures and place of a table.
fn summary(run: &Run, table: &BenchTable) -> [String; 4] {
    let sizes = match table.rows.as_slice() {
        [] => "no rows".into(),
        [only] => only.size.to_string(),
        [first, .., last] => format!("{} … {}", first.size, last.size),
    };
    let figures = words::table_figures(table).join(", ").replace(" GB/s", "");
    [words::table_title(table), sizes, figures, words::location(run, table.place)]
}

fn chart(page: &mut Page, table: &BenchTable, expected: Option<&ExpectedTable>) {
    let Some((peak_row, peak)) = table.peak() else {
        return page.indented(2, "no row was measured");
    };
    let rows = selected(&table.rows, peak_row);
    let sizes = widest(rows.iter().map(|row| row.size.to_string())).max(4);
    let halves = [|row: &BenchRow| row.out_of_place.is_some(), |row: &BenchRow| row.in_place.is_some()]
        .map(|has| rows.iter().any(|row| has(row)));
    page.text(&format!("  {}", right("size", sizes)));
    for (label, _) in ["out-of-place", "in-place"].iter().zip(halves).filter(|(_, shown)| *shown) {
        page.text(&format!("  {}", right(label, 12)));
    }
    if expected.is_some() {
        page.text(&format!("  {}", right("expected", 12)));
    }
    page.text("  busbw in GB/s");
    page.end_line();
    // Two columns before each cell, and room for the mark after the bar.
    let cells = halves.iter().filter(|shown| **shown).count() + usize::from(expected.is_some());
    let used = 2 + sizes + cells * 14 + 2 + " peak".len();
    let bar_width = page.width().saturating_sub(used).min(MAX_BAR);
    for row in &rows {
        page.text(&format!("  {}", right(&row.size.to_string(), sizes)));
        for (half, _) in [&row.out_of_place, &row.in_place].iter().zip(halves).filter(|(_, shown)| *shown) {
            page.text(&format!("  {}", right(&cell(half.as_ref()), 12)));
        }
        if let Some(expected) = expected {
            let busbw = expected.at(row.size).map(|row| format!("{:.2}", row.busbw.0)).unwrap_or_default();
            page.text(&format!("  {}", right(&busbw, 12)));
        }
        page.text("  ");
        page.styled(paint::BAR, &bar(row.best_busbw(), peak, bar_width));
        if std::ptr::eq(*row, peak_row) {
            page.styled(paint::GOOD, " peak");
        }
        let wrong: u64 = row.halves().filter_map(|half| half.check.wrong()).sum();
        if wrong > 0 {
            page.styled(paint::ERROR, &format!(" {wrong} wrong"));
        }
        page.end_line();
    }
    if rows.len() < table.rows.len() {
        page.indented(2, &format!("{} of {} rows", rows.len(), table.rows.len()));
    }
}

fn cell(half: Option<&Measure>) -> String {
    half.map(|half| format!("{:.2}", half.busbw.0)).unwrap_or_default()
}

/// At most [`MAX_ROWS`] rows, evenly spread, the first, the last and the peak among them.
fn selected<'a>(rows: &'a [BenchRow], peak: &BenchRow) -> Vec<&'a BenchRow> {
    if rows.len() <= MAX_ROWS {
        return rows.iter().collect();
    }
    let steps = MAX_ROWS - 2; // a row less than the most, for the peak
    let mut chosen: Vec<usize> = (0..=steps).map(|step| step * (rows.len() - 1) / steps).collect();
    chosen.extend(rows.iter().position(|row| std::ptr::eq(row, peak)));
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().filter_map(|index| rows.get(index)).collect()
}

/// A bar of blocks; the peak has the whole width.
pub(super) fn bar(busbw: Option<GBps>, peak: GBps, width: usize) -> String {
    let share = busbw.map_or(0.0, |busbw| busbw.0 / peak.0);
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * (width * 8) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), BLOCKS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_of_the_peak() {
        let cases = [(Some(48.0), "████"), (Some(24.0), "██"), (Some(3.0), "▎"), (Some(f64::NAN), ""), (None, "")];
        for (busbw, blocks) in cases {
            assert_eq!(bar(busbw.map(GBps), GBps(48.0), 4), blocks, "{busbw:?}");
        }
        assert_eq!(bar(Some(GBps(1.0)), GBps(0.0), 4), "");
    }

    #[test]
    fn a_long_table_keeps_its_ends_and_its_peak() {
        let row = |size| BenchRow {
            doubted: false,
            size: busbw_model::Bytes(size),
            count: None,
            datatype: None,
            redop: None,
            root: None,
            out_of_place: None,
            in_place: None,
            skew: None,
            source: Default::default(),
        };
        let rows: Vec<BenchRow> = (0..1000).map(row).collect();
        let kept: Vec<u64> = selected(&rows, &rows[777]).iter().map(|row| row.size.0).collect();
        assert!(kept.len() <= MAX_ROWS && kept.first() == Some(&0) && kept.last() == Some(&999) && kept.contains(&777));
    }
}
