//! A comparison of runs as text: the runs, their busbw by size, where one is faster, and other differences.

use super::Style;
use super::page::{Page, paint};
use crate::letters::{letter, times};
use crate::style::{clip, left, right, widest};
use crate::words::comparison as words;
use busbw_model::{ComparedCell, ComparedFinding, ComparedRow, Contest, Faster, RunComparison, SizeRange, short_names};

/// A name of a run, a variable or a value is cut to this.
const MAX_NAME: usize = 40;
/// What a screen tells of a run: collective, ranks and peak.
const BRIEF_PARTS: usize = 3;

/// The text of a comparison, ready to print.
pub fn compare(comparison: &RunComparison, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.lead(&comparison.summary);
    if style.brief {
        brief_runs(&mut page, comparison);
    } else {
        runs(&mut page, comparison);
        rows(&mut page, comparison);
    }
    contests(&mut page, comparison);
    if !style.brief {
        page.indented(2, &comparison.method);
    }
    differences(&mut page, comparison);
    causes(&mut page, comparison, if style.brief { 1 } else { usize::MAX });
    if style.brief {
        page.more_by("-v for every size; -o page.html for curves");
    }
    page.finish_with(style.rows, |page| page.lead(&comparison.summary))
}

fn runs(page: &mut Page, comparison: &RunComparison) {
    page.heading("Runs");
    for (index, run) in comparison.runs.iter().enumerate() {
        page.clipped(2, &format!("{}  {}", letter(index), run.name));
        page.indented(5, &words::run(run).join(", "));
    }
}

/// A line per run, by the name that the first line calls it.
fn brief_runs(page: &mut Page, comparison: &RunComparison) {
    page.heading("Runs");
    for (index, (name, run)) in short_names(&comparison.runs).iter().zip(&comparison.runs).enumerate() {
        page.clipped(
            2,
            &format!(
                "{}  {name}: {}",
                letter(index),
                words::run(run).into_iter().take(BRIEF_PARTS).collect::<Vec<_>>().join(", ")
            ),
        );
    }
}

/// A column per run, and one per ratio.
fn rows(page: &mut Page, comparison: &RunComparison) {
    page.heading("busbw by size, GB/s");
    let repeated = comparison.runs.iter().any(|run| run.repetitions > 1);
    let width = if repeated { 19 } else { 10 };
    let heads = (0..comparison.runs.len()).map(|index| right(&letter(index), width));
    let ratios = (1..comparison.runs.len()).map(|other| right(&format!("A/{}", letter(other)), 9));
    page.clipped(2, &format!("{}{}{}", right("size", 10), heads.collect::<String>(), ratios.collect::<String>()));
    for ComparedRow { size, cells, ratios } in &comparison.rows {
        let cells: String = cells.iter().map(|cell| right(&shown(cell.as_ref()), width)).collect();
        let ratios: String = ratios.iter().map(|ratio| right(&ratio.map_or("-".into(), times), 9)).collect();
        page.clipped(2, &format!("{}{cells}{ratios}", right(&size.to_string(), 10)));
    }
    page.indented(2, &words::columns_in_words(repeated));
}

fn shown(cell: Option<&ComparedCell>) -> String {
    match cell {
        None => "-".into(),
        Some(ComparedCell { busbw, interval: None, .. }) => format!("{:.2}", busbw.0),
        Some(ComparedCell { busbw, interval: Some(half), .. }) => format!("{:.2} ± {:.2}", busbw.0, half.0),
    }
}

fn contests(page: &mut Page, comparison: &RunComparison) {
    for contest in &comparison.contests {
        page.heading(&format!("A against {}", letter(contest.other)));
        ranges(page, contest);
        if let Some(small) = words::small(contest) {
            page.indented(2, &small);
        }
    }
}

fn ranges(page: &mut Page, contest: &Contest) {
    let labels: Vec<String> = contest.ranges.iter().map(words::sizes).collect();
    let width = widest(labels.iter());
    for (range, label) in contest.ranges.iter().zip(&labels) {
        page.text(&format!("  {}  ", left(label, width)));
        page.styled_line(paint_of(range), &words::outcome(range, contest.other));
    }
}

fn paint_of(range: &SizeRange) -> anstyle::Style {
    match range.faster {
        Faster::First => paint::GOOD,
        Faster::Other => paint::WARNING,
        Faster::Neither => paint::PLAIN,
    }
}

fn differences(page: &mut Page, comparison: &RunComparison) {
    let differences = &comparison.differences;
    page.heading(&format!("Other differences ({})", differences.len()));
    if differences.is_empty() {
        page.indented(2, "None found: variables, versions and setup are the same, if the inputs state them.");
    }
    let width = widest(differences.iter().map(|d| &d.name)).min(MAX_NAME);
    for difference in differences {
        let values = difference.values.iter().enumerate().map(|(index, value)| {
            format!("{} {}", letter(index), clip(value.as_deref().unwrap_or(words::NOT_SAID), MAX_NAME))
        });
        let values: Vec<String> = values.collect();
        page.clipped(2, &format!("{}  {}", left(&clip(&difference.name, width), width), values.join("   ")));
    }
}

fn causes(page: &mut Page, comparison: &RunComparison, most: usize) {
    page.heading("What explain says about each run");
    for (index, run) in comparison.runs.iter().enumerate() {
        for ComparedFinding { code, title } in words::telling(run).take(most) {
            page.indented(2, &format!("{}  {title} [{}]", letter(index), code.as_str()));
        }
    }
}
