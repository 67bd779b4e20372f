//! The answer on a screen of 24 rows: verdict, measured beside expected, the cause, what shows it, the first remedy, the gain.

use super::page::{Page, paint};
use super::{Style, source, tables, verdict};
use crate::remedy::{Part, parts};
use crate::style::{clean_line, clip, columns, wrap};
use crate::words;
use busbw_model::{Diagnosis, Finding, Judgement, Reached, Run, Severity};

/// Rows of an answer: the smallest usual terminal has 24, of which the command line and the next prompt take two.
const ROWS: usize = 22;
/// Sentences of an explanation, as far as there is room for them.
const SENTENCES: usize = 3;
/// Lines that show the cause.
const EVIDENCE: usize = 2;
/// Further findings that are named.
const OTHERS: usize = 2;
/// Columns before what is said: `Gain  `.
const LABEL: usize = 6;
/// Rows that a sentence of a remedy takes at most, and a command.
const REMEDY_ROWS: usize = 2;

/// The short answer, ready to print. `more` says how to see the rest.
pub fn brief(run: &Run, diagnosis: &Diagnosis, style: &Style, more: &str) -> String {
    let part = |write: &dyn Fn(&mut Page)| {
        let mut page = Page::new(*style);
        write(&mut page);
        page.finish()
    };
    let first = diagnosis.findings.first();
    let head = part(&|page| head(page, diagnosis));
    let shown = part(&|page| source::evidence(page, run, evidence(first)));
    let cure = part(&|page| cure(page, diagnosis));
    let tail = part(&|page| tail(page, diagnosis, more));
    let rows = [&head, &shown, &cure, &tail].map(|text| text.lines().count()).iter().sum::<usize>();
    // Empty rows before the cause and the cure.
    let left = ROWS.saturating_sub(rows + 2);
    let cause = part(&|page| cause(page, first, left));
    let gaps = [if cause.is_empty() { "" } else { "\n" }, if cause.len() + shown.len() == 0 { "" } else { "\n" }];
    [&head, gaps[0], &cause, &shown, gaps[1], &cure, &tail].concat()
}

fn head(page: &mut Page, diagnosis: &Diagnosis) {
    verdict(page, diagnosis);
    if let Some(speed) = words::judged_speed(diagnosis) {
        bar(page, speed);
    }
}

/// `8.60 of 485.80 GB/s expected  █▏░░░░░░░░  2%`.
fn bar(page: &mut Page, speed: Reached) {
    let label = format!("  {:.2} of {} expected  ", speed.measured.0, speed.expected);
    let percent = format!("  {:.0}%", 100.0 * speed.share());
    let width = page.width().saturating_sub(columns(&label) + columns(&percent)).min(40);
    let filled = tables::bar(Some(speed.measured), speed.expected, width);
    let rest = "░".repeat(width.saturating_sub(columns(&filled)));
    page.text(&label);
    page.styled(paint::BAR, &filled);
    page.styled(paint::DIM, &rest);
    page.styled_line(paint::BOLD, &percent);
}

/// The first sentences of the explanation, as many as fit.
fn cause(page: &mut Page, finding: Option<&Finding>, rows: usize) {
    let Some(finding) = finding else { return };
    let mut told = String::new();
    for sentence in words::sentences(&finding.explanation).take(SENTENCES) {
        let longer = format!("{told} {}", clean_line(sentence));
        if !told.is_empty() && wrap(&longer, page.prose_width(2)).len() > rows {
            break;
        }
        told = longer;
    }
    page.indented(2, told.trim());
}

fn evidence(finding: Option<&Finding>) -> &[busbw_model::Evidence] {
    finding.map_or(&[], |finding| &finding.evidence[..finding.evidence.len().min(EVIDENCE)])
}

/// What to do first, and what it gains; where nothing is wrong, what would answer the open question.
fn cure(page: &mut Page, diagnosis: &Diagnosis) {
    let finding = diagnosis.findings.first().filter(|finding| finding.severity >= Severity::Warning);
    let remedies = finding.map_or(&[][..], |finding| &finding.remedy);
    let [first, others @ ..] = remedies else { return next(page, diagnosis) };
    let first = Step::of(first);
    first.show(page, "Do");
    // The first remedy may need hands; there may be one for the keyboard.
    if first.command.is_none()
        && let Some(other) = others.iter().map(|other| Step::of(other)).find(|other| other.command.is_some())
    {
        other.show(page, "Or");
    }
    if let Some(gain) = finding.and_then(|finding| finding.expected_gain.as_ref()) {
        label(page, "Gain");
        page.text(&words::gain_figures(gain));
        page.end_line();
    }
}

fn next(page: &mut Page, diagnosis: &Diagnosis) {
    let open = diagnosis.judged.iter().any(|judged| judged.outcome == Judgement::Undecided);
    let Some(advice) = diagnosis.advice.first().filter(|_| open) else { return };
    said(page, "Next", &advice.question);
    pasted(page, &advice.command);
}

/// The first sentence of a remedy, and its first command.
#[derive(Default)]
struct Step {
    sentence: Option<String>,
    command: Option<String>,
}

impl Step {
    fn of(remedy: &str) -> Self {
        let mut step = Step::default();
        for part in parts(remedy) {
            match part {
                Part::Sentence(text) => step.sentence.get_or_insert(text),
                Part::Command(text) => step.command.get_or_insert(text),
            };
        }
        step
    }

    fn show(&self, page: &mut Page, name: &str) {
        said(page, name, words::first_sentence(self.sentence.as_deref().unwrap_or_default()));
        if let Some(command) = &self.command {
            pasted(page, command);
        }
    }
}

/// A command stands whole, however long it is: it is to be pasted.
fn pasted(page: &mut Page, command: &str) {
    page.text(&" ".repeat(LABEL + 4));
    page.styled_line(paint::CODE, &clean_line(command));
}

fn said(page: &mut Page, name: &str, text: &str) {
    label(page, name);
    let mut rows = wrap(&clean_line(text), page.prose_width(LABEL));
    if rows.len() > REMEDY_ROWS {
        let rest = rows.split_off(REMEDY_ROWS - 1).join(" ");
        rows.push(clip(&rest, page.prose_width(LABEL)).into_owned());
    }
    for (at, row) in rows.iter().enumerate() {
        page.text(&" ".repeat(if at == 0 { 0 } else { LABEL }));
        page.with_code(row);
        page.end_line();
    }
}

fn label(page: &mut Page, name: &str) {
    page.styled(paint::GOOD, name);
    page.text(&" ".repeat(LABEL - name.len()));
}

/// The other findings to act on, and where there is more.
fn tail(page: &mut Page, diagnosis: &Diagnosis, more: &str) {
    let others = diagnosis.findings.iter().skip(1).filter(|finding| finding.severity >= Severity::Warning);
    for finding in others.clone().take(OTHERS) {
        page.styled(paint::WARNING, "Also  ");
        page.text(&clip(&clean_line(&finding.title), page.width() - LABEL));
        page.end_line();
    }
    if let Some(left) = super::more(others.count(), OTHERS) {
        page.text(&" ".repeat(LABEL));
        page.styled_line(paint::DIM, &left);
    }
    page.more_by(more);
}
