//! The tables: a curve each, and the rows.

use super::curve;
use super::markup::{escape, more, section};
use crate::words;
use busbw_model::{BenchRow, BenchTable, Check, Diagnosis, Measure, Run};

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
        .map(|table| {
            let title = words::table_title(table);
            let place = words::location(run, table.place);
            let figures = words::table_figures(table).join(", ");
            let curve = curve::curve(table, expected);
            let rows = format!("<details><summary>{} rows</summary>\n{}</details>\n", table.rows.len(), rows(table));
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

fn rows(table: &BenchTable) -> String {
    let peak = table.peak().map(|(row, _)| row);
    let rows: String = table.rows.iter().map(|r| row(r, peak.is_some_and(|peak| std::ptr::eq(peak, r)))).collect();
    let half = "<th>time µs</th><th>algbw GB/s</th><th>busbw GB/s</th><th>wrong</th>";
    format!(
        "<div class=\"scroll\"><table class=\"bench\">\n<thead><tr><th colspan=\"4\"></th>\
         <th colspan=\"4\">out-of-place</th><th colspan=\"4\">in-place</th></tr>\n\
         <tr><th>size</th><th>count</th><th>type</th><th>redop</th>{half}{half}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn row(row: &BenchRow, is_peak: bool) -> String {
    let class = if is_peak { " class=\"peak\"" } else { "" };
    let count = row.count.map(|count| count.to_string()).unwrap_or_default();
    let names = [row.datatype.map_or("", |d| d.name()), row.redop.map_or("", |r| r.name())];
    let [datatype, redop] = names;
    let halves: String = [&row.out_of_place, &row.in_place].into_iter().map(|half| cells(half.as_ref())).collect();
    let size = format!("<td title=\"{} bytes\">{}</td>", row.size.0, row.size);
    format!("<tr{class}>{size}<td>{count}</td><td>{datatype}</td><td>{redop}</td>{halves}</tr>\n")
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
