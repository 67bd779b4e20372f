//! The page of a comparison: the curves of all runs on one axis, their ratios, where one is faster, in what else they differ.

use super::curve::{self, Curve, Line};
use super::markup::{escape, section, table};
use super::{Page, tiles};
use crate::letters::{letter, times};
use crate::words::{comparison as words, counted};
use busbw_model::{ComparedRow, Contest, LargestCompared, RunComparison, short_names};
use std::collections::BTreeMap;

/// A name of a run in the legend is no longer.
const MAX_NAME: usize = 32;

/// The page of runs side by side. All text is escaped.
pub fn compare(comparison: &RunComparison) -> Page {
    let body = [
        figures(comparison),
        section("busbw by size", &(curves(comparison) + &rows(comparison))),
        section("Runs", &runs(comparison)),
        comparison.contests.iter().map(contest).collect(),
        section("Other differences", &differences(comparison)),
        section("What explain says about each run", &findings(comparison)),
    ]
    .concat();
    Page { class: "compared", badge: "compared", title: comparison.summary.clone(), command: "compare", body }
}

fn figures(comparison: &RunComparison) -> String {
    let figures = comparison.contests.iter().filter_map(|contest| {
        let LargestCompared { size_bytes: size, ratio } = contest.largest?;
        Some((times(ratio), format!("busbw of A over {} at {size}", letter(contest.other))))
    });
    tiles(&figures.collect::<Vec<_>>())
}

fn runs(comparison: &RunComparison) -> String {
    let rows = comparison.runs.iter().enumerate();
    let rows = rows.map(|(index, run)| vec![letter(index), run.name.clone(), words::run(run).join(", ")]);
    table(&["", "run", "what it measured"], rows)
}

fn curves(comparison: &RunComparison) -> String {
    let names = short_names(&comparison.runs);
    let line = |index: usize| {
        let points = comparison.rows.iter().filter_map(|row| Some((row.size, row.cells.get(index)?.as_ref()?.busbw)));
        let class = format!("table-{} {}", index + 1, curve::color(index));
        // A letter, where the legend has no room for a name.
        let name = Some(names[index].clone()).filter(|name| name.len() <= MAX_NAME).unwrap_or_else(|| letter(index));
        Line { name, class, points: points.collect(), dots: true, band: Vec::new() }
    };
    curve::draw(&Curve {
        label: format!("busbw by size of {} runs", comparison.runs.len()),
        // The legend begins with what is drawn last.
        lines: (0..comparison.runs.len()).rev().map(line).collect(),
        level: None,
        peak: None,
        notes: BTreeMap::new(),
        legend: true,
    })
}

fn rows(comparison: &RunComparison) -> String {
    let runs = comparison.runs.len();
    let repeated = comparison.runs.iter().any(|run| run.repetitions > 1);
    let mut head = vec!["size".to_string()];
    for index in 0..runs {
        head.push(format!("{} GB/s", letter(index)));
        if repeated {
            head.push("± 95%".into());
        }
    }
    head.extend((1..runs).map(|other| format!("A/{}", letter(other))));
    let row = |row: &ComparedRow| {
        let mut cells = vec![row.size.to_string()];
        for cell in &row.cells {
            cells.push(cell.map(|cell| format!("{:.2}", cell.busbw.0)).unwrap_or_default());
            if repeated {
                cells
                    .push(cell.and_then(|cell| cell.interval).map(|half| format!("{:.2}", half.0)).unwrap_or_default());
            }
        }
        cells.extend(row.ratios.iter().map(|ratio| ratio.map(times).unwrap_or_default()));
        cells
    };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let note = format!("<p class=\"muted\">{}</p>\n", escape(&words::columns_in_words(repeated)));
    let table = table(&head, comparison.rows.iter().map(row));
    format!("<details><summary>{}</summary>\n{table}{note}</details>\n", counted(comparison.rows.len(), "row"))
}

fn contest(contest: &Contest) -> String {
    let ranges = contest.ranges.iter().map(|range| vec![words::sizes(range), words::outcome(range, contest.other)]);
    let small = words::small(contest).map(|small| format!("<p>{}</p>\n", escape(&small))).unwrap_or_default();
    section(&format!("A against {}", letter(contest.other)), &(table(&["sizes", "outcome"], ranges) + &small))
}

fn differences(comparison: &RunComparison) -> String {
    if comparison.differences.is_empty() {
        return "<p>Nothing that the inputs tell.</p>\n".into();
    }
    let letters: Vec<String> = (0..comparison.runs.len()).map(letter).collect();
    let head: Vec<&str> = std::iter::once("").chain(letters.iter().map(String::as_str)).collect();
    let rows = comparison.differences.iter().map(|difference| {
        let values = difference.values.iter().map(|value| value.as_deref().unwrap_or(words::NOT_SAID).to_string());
        std::iter::once(difference.name.clone()).chain(values).collect()
    });
    table(&head, rows)
}

fn findings(comparison: &RunComparison) -> String {
    let rows = comparison.runs.iter().enumerate().flat_map(|(index, run)| {
        words::telling(run).map(move |one| vec![letter(index), one.title.clone(), one.code.as_str().to_string()])
    });
    let method = format!("<p class=\"muted\">{}</p>\n", escape(&comparison.method));
    table(&["run", "finding", "code"], rows) + &method
}
