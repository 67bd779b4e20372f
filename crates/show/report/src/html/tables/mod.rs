//! The tables: a curve each, and the rows.

mod together;

use super::curve::{self, Curve, Line};
use super::markup::{escape, more, section};
use crate::words;
use busbw_model::{BenchRow, BenchTable, Check, Diagnosis, ExpectedRow, ExpectedTable, GBps, Measure, Run};

/// Tables that are shown at most.
const MAX_TABLES: usize = 100;

/// One table with its curve and rows; several with all their curves on one axis first, and each behind a fold.
pub(super) fn tables(run: &Run, diagnosis: &Diagnosis) -> String {
    match run.tables.as_slice() {
        [] => String::new(),
        [table] => {
            let caption = format!("<p class=\"muted\">{}</p>\n", escape(&about(run, table)));
            section(&words::table_title(table), &(caption + &one(table, diagnosis.expected_table(0), diagnosis)))
        }
        several => {
            let fold = |(index, table): (usize, &BenchTable)| {
                let title = format!("{} {} · {}", index + 1, words::table_title(table), about(run, table));
                let body = one(table, diagnosis.expected_table(index), diagnosis);
                format!("<details><summary>{}</summary>\n{body}</details>\n", escape(&title))
            };
            let folds: String = several.iter().take(MAX_TABLES).enumerate().map(fold).collect();
            let more = more(several.len(), MAX_TABLES);
            let heading = format!("{} tables", several.len());
            section(&heading, &[together::curves(run, diagnosis), folds, more].concat())
        }
    }
}

fn about(run: &Run, table: &BenchTable) -> String {
    [words::table_figures(table).join(", "), words::location(run, table.place)].join(" · ")
}

/// A table's curve, and its rows behind a fold.
fn one(table: &BenchTable, by_size: Option<&ExpectedTable>, diagnosis: &Diagnosis) -> String {
    let level = diagnosis.expected.as_ref().filter(|_| by_size.is_none()).map(|expected| expected.busbw);
    let count = words::counted(table.rows.len(), "row");
    let rows = format!("<details><summary>{count}</summary>\n{}</details>\n", rows(table, by_size));
    curve(table, by_size, level) + &rows
}

/// The curve with both halves, the peak and, where it is said, what to expect: size by size, else as a level.
fn curve(table: &BenchTable, by_size: Option<&ExpectedTable>, level: Option<GBps>) -> String {
    let half = |name, half: fn(&BenchRow) -> Option<&Measure>| {
        let points = table.rows.iter().filter_map(|row| Some((row.size, half(row)?.busbw)));
        Line::named(name, points.collect()).dotted()
    };
    let expected = |name, value: fn(&ExpectedRow) -> GBps| {
        let rows = by_size.into_iter().flat_map(|table| &table.rows);
        Line::named(name, rows.map(|row| (row.size, value(row))).collect())
    };
    let band = by_size.into_iter().flat_map(|table| &table.rows).map(|row| (row.size, row.band)).collect();
    let label = format!("busbw by size: {}, {}", words::table_title(table), words::table_figures(table).join(", "));
    curve::draw(&Curve {
        label,
        lines: vec![
            expected("limit", |row| row.limit),
            expected("expected", |row| row.busbw).within(band),
            half("in-place", |row| row.in_place.as_ref()),
            half("out-of-place", |row| row.out_of_place.as_ref()),
        ],
        level,
        peak: table.peak().map(|(row, busbw)| (row.size, busbw)),
        notes: by_size
            .into_iter()
            .flat_map(|table| &table.rows)
            .map(|row| (row.size, row.bottleneck.as_str()))
            .collect(),
        legend: true,
    })
}

fn rows(table: &BenchTable, by_size: Option<&ExpectedTable>) -> String {
    let peak = table.peak().map(|(row, _)| row);
    let rows = table.rows.iter().map(|measured| {
        let is_peak = peak.is_some_and(|peak| std::ptr::eq(peak, measured));
        row(measured, is_peak, &by_size.map(|table| expected_cells(table.at(measured.size))).unwrap_or_default())
    });
    let rows: String = rows.collect();
    let half = "<th>time µs</th><th>algbw GB/s</th><th>busbw GB/s</th><th>wrong</th>";
    let (above, expected) = match by_size {
        None => ("", ""),
        Some(_) => (
            "<th colspan=\"3\">expected</th>",
            "<th>busbw GB/s</th><th>limit GB/s</th><th class=\"word\">limited by</th>",
        ),
    };
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"bench\">\n<thead><tr><th colspan=\"4\"></th>\
         <th colspan=\"4\">out-of-place</th><th colspan=\"4\">in-place</th>{above}</tr>\n\
         <tr><th>size</th><th>count</th><th>type</th><th>redop</th>{half}{half}{expected}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// What is expected at a size: busbw, limit, bottleneck.
fn expected_cells(expected: Option<&ExpectedRow>) -> String {
    let Some(ExpectedRow { busbw, limit, bottleneck, .. }) = expected else { return "<td></td>".repeat(3) };
    format!("<td>{:.2}</td><td>{:.2}</td><td class=\"word\">{}</td>", busbw.0, limit.0, escape(bottleneck))
}

/// A row; `expected` are its last cells.
fn row(row: &BenchRow, is_peak: bool, expected: &str) -> String {
    let class = if is_peak { " class=\"peak\"" } else { "" };
    let count = row.count.map(|count| count.to_string()).unwrap_or_default();
    let names = [row.datatype.map_or("", |d| d.name()), row.redop.map_or("", |r| r.name())];
    let [datatype, redop] = names;
    let halves: String = [&row.out_of_place, &row.in_place].into_iter().map(|half| cells(half.as_ref())).collect();
    let size = format!("<td title=\"{} bytes\">{}</td>", row.size.0, row.size);
    format!("<tr{class}>{size}<td>{count}</td><td>{datatype}</td><td>{redop}</td>{halves}{expected}</tr>\n")
}

fn cells(half: Option<&Measure>) -> String {
    let Some(half) = half else { return "<td></td>".repeat(4) };
    let wrong = match half.check {
        Check::NotDone => "<td></td>".into(),
        Check::Wrong(0) => "<td>0</td>".into(),
        Check::Wrong(count) => format!("<td class=\"bad\">{count}</td>"),
        Check::MaxError(error) => format!("<td>{error:e}</td>"),
    };
    format!("<td>{:.2}</td><td>{:.2}</td><td><b>{:.2}</b></td>{wrong}", half.time.0, half.algbw.0, half.busbw.0)
}
