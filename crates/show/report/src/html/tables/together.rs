//! The curves of all tables on one axis. Boxes hide and show them, by style alone.

use crate::html::curve::{self, Curve, Line};
use crate::html::markup::escape;
use crate::words;
use busbw_model::{BenchTable, Bytes, Diagnosis, GBps, Run};
use std::collections::BTreeMap;

/// More lines cannot be distinguished.
const MAX_LINES: usize = 24;

/// The picture and the boxes; nothing where no table has two sizes.
pub(super) fn curves(run: &Run, diagnosis: &Diagnosis) -> String {
    let drawn: Vec<(usize, &BenchTable)> =
        run.tables.iter().enumerate().filter(|(_, table)| table.rows.len() > 1).take(MAX_LINES).collect();
    let picture = curve::draw(&Curve {
        label: format!("busbw by size of {}", words::counted(drawn.len(), "table")),
        // The first table on top.
        lines: drawn.iter().rev().flat_map(|(index, table)| lines(*index, table, diagnosis)).collect(),
        level: diagnosis
            .expected
            .as_ref()
            .filter(|_| diagnosis.expected_tables.is_empty())
            .map(|expected| expected.busbw),
        peak: None,
        notes: BTreeMap::new(),
        legend: false,
    });
    if picture.is_empty() {
        return picture;
    }
    let rules: String = drawn
        .iter()
        .map(|(index, _)| {
            format!(".curves:has(#table-{n}:not(:checked)) .table-{n} {{ display: none }}\n", n = index + 1)
        })
        .collect();
    let boxes: String = drawn.iter().map(|(index, table)| self::choice(*index, table)).collect();
    let more = match run.tables.len().saturating_sub(drawn.len()) {
        0 => String::new(),
        count => format!("<p class=\"muted\">{count} more are drawn below, each by itself.</p>\n"),
    };
    format!(
        "<div class=\"curves\">\n<style>\n{rules}</style>\n{picture}<form class=\"tables\">\n{boxes}</form>\n\
         <p class=\"muted\">Dashed: expected. The better of in-place and out-of-place.</p>\n{more}</div>\n"
    )
}

/// What a table shows and, dashed, what it should show.
fn lines(index: usize, table: &BenchTable, diagnosis: &Diagnosis) -> Vec<Line> {
    let number = index + 1;
    let class = format!("table-{number} {}", curve::color(index));
    let measured: Vec<(Bytes, GBps)> =
        table.rows.iter().filter_map(|row| Some((row.size, row.best_busbw()?))).collect();
    let expected = diagnosis.expected_table(index).map(|expected| Line {
        name: format!("{number} expected"),
        class: format!("{class} dashed"),
        points: expected.rows.iter().map(|row| (row.size, row.busbw)).collect(),
        dots: false,
        // Areas of many tables would hide each other.
        band: Vec::new(),
    });
    let measured = Line { name: number.to_string(), class, points: measured, dots: true, band: Vec::new() };
    expected.into_iter().chain([measured]).collect()
}

fn choice(index: usize, table: &BenchTable) -> String {
    let number = index + 1;
    let title = [words::table_title(table), words::table_figures(table).join(", ")].join(" · ");
    format!(
        "<label class=\"{}\"><input type=\"checkbox\" id=\"table-{number}\" checked> \
         <span class=\"swatch\"></span> {number} {}</label>\n",
        curve::color(index),
        escape(&title)
    )
}
