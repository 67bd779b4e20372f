//! The tables: a curve each, and the rows.

use super::curve::{self, Curve, Line};
use super::markup::{escape, more, section};
use crate::words;
use busbw_model::{BenchRow, BenchTable, Check, Diagnosis, ExpectedRow, ExpectedTable, GBps, Measure, Run};

/// More tables than this are folded.
const MAX_OPEN: usize = 4;
/// Tables that are shown at most.
const MAX_TABLES: usize = 100;

/// Every table with its curve; the rows are folded.
pub(super) fn tables(run: &Run, diagnosis: &Diagnosis) -> String {
    let expected = diagnosis.expected.as_ref().filter(|_| run.tables.len() == 1).map(|expected| expected.busbw);
    let shown: String = run
        .tables
        .iter()
        .take(MAX_TABLES)
        .enumerate()
        .map(|(index, table)| {
            let by_size = diagnosis.expected_table(index);
            let title = words::table_title(table);
            let place = words::location(run, table.place);
            let figures = words::table_figures(table).join(", ");
            let curve = curve(table, by_size, expected);
            let count = table.rows.len();
            let rows = format!("<details><summary>{count} rows</summary>\n{}</details>\n", rows(table, by_size));
            if run.tables.len() <= MAX_OPEN {
                let caption = format!("<p class=\"muted\">{} · {}</p>\n", escape(&figures), escape(&place));
                return section(&title, &format!("{caption}{curve}{rows}"));
            }
            let summary = format!("{} · {} · {}", escape(&title), escape(&figures), escape(&place));
            format!("<details><summary>{summary}</summary>\n{curve}{rows}</details>\n")
        })
        .collect();
    let more = more(run.tables.len(), MAX_TABLES);
    if run.tables.len() > MAX_OPEN { section(&format!("{} tables", run.tables.len()), &(shown + &more)) } else { shown }
}

/// The curve with both halves, the peak and, where it is said, what to expect: size by size, else as a level.
fn curve(table: &BenchTable, by_size: Option<&ExpectedTable>, level: Option<GBps>) -> String {
    let half = |name: &'static str, half: fn(&BenchRow) -> Option<&Measure>| Line {
        name,
        points: table.rows.iter().filter_map(|row| Some((row.size, half(row)?.busbw))).collect(),
        dots: true,
    };
    let expected = |name: &'static str, value: fn(&ExpectedRow) -> GBps| Line {
        name,
        points: by_size.into_iter().flat_map(|table| &table.rows).map(|row| (row.size, value(row))).collect(),
        dots: false,
    };
    let label = format!("busbw by size: {}, {}", words::table_title(table), words::table_figures(table).join(", "));
    curve::draw(&Curve {
        label,
        lines: vec![
            expected("limit", |row| row.limit),
            expected("expected", |row| row.busbw),
            half("in-place", |row| row.in_place.as_ref()),
            half("out-of-place", |row| row.out_of_place.as_ref()),
        ],
        level: level.filter(|_| by_size.is_none()),
        peak: table.peak().map(|(row, busbw)| (row.size, busbw)),
        notes: by_size
            .into_iter()
            .flat_map(|table| &table.rows)
            .map(|row| (row.size, row.bottleneck.as_str()))
            .collect(),
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
