//! A finding: title, evidence, explanation, remedy, gain.

use super::page::{Page, paint};
use super::source;
use crate::remedy::{Part, parts};
use crate::style::{clean_line, columns, wrap};
use crate::words;
use busbw_model::{Alternative, Code, Diagnosis, Finding, Run, Severity};

/// Columns before a remedy's text: ` 1. `.
const REMEDY_INDENT: usize = 5;
/// Columns before a command that stands on its own line.
const COMMAND_INDENT: usize = 9;

/// Shows a finding; an info beside errors and warnings in short.
pub(super) fn finding(page: &mut Page, run: &Run, diagnosis: &Diagnosis, finding: &Finding) {
    page.end_line();
    title(page, finding);
    if words::in_short(diagnosis, finding.severity) {
        page.clipped(2, words::first_sentence(&finding.explanation));
        return;
    }
    source::evidence(page, run, &finding.evidence);
    if !finding.explanation.is_empty() {
        page.end_line();
        page.indented(2, &finding.explanation);
    }
    alternatives(page, &finding.alternatives);
    if !finding.remedy.is_empty() {
        page.end_line();
        page.text("  ");
        page.styled_line(paint::GOOD, "What to do");
        for (index, text) in finding.remedy.iter().enumerate() {
            remedy(page, index + 1, text);
        }
    }
    if let Some(gain) = &finding.expected_gain {
        page.end_line();
        page.text("  ");
        page.styled(paint::GOOD, "Gain");
        page.hanging(8, paint::PLAIN, &words::gain(gain));
    }
}

/// What else may be the cause, a paragraph each: `Or: (25%) …`.
fn alternatives(page: &mut Page, alternatives: &[Alternative]) {
    if !alternatives.is_empty() {
        page.end_line();
    }
    for other in alternatives {
        page.text("  ");
        page.styled(paint::BOLD, "Or:");
        page.hanging(7, paint::PLAIN, &words::alternative(other));
    }
}

/// How many findings more there are like those shown.
pub(super) fn alike(page: &mut Page, alike: &[(Severity, Code, usize)]) {
    for (severity, code, count) in alike {
        page.end_line();
        page.styled_line(paint::DIM, &format!("… and {count} more {}[{code}] like these", severity.as_str()));
    }
}

/// Where there is more about the finding to act on.
pub(super) fn pages(page: &mut Page, diagnosis: &Diagnosis) {
    if let Some(first) = diagnosis.findings.first().filter(|_| diagnosis.has_problems()) {
        page.end_line();
        page.styled_line(paint::DIM, &format!("More: busbw explain --code {}", first.code));
    }
}

fn title(page: &mut Page, finding: &Finding) {
    let style = match finding.severity {
        Severity::Error => paint::ERROR,
        Severity::Warning => paint::WARNING,
        Severity::Info => paint::NOTE,
    };
    let label = format!("{}[{}]", finding.severity.as_str(), finding.code);
    let confidence = format!("({})", words::confidence(finding.confidence));
    page.styled(style, &label);
    let lines = wrap(&format!("{label} {}", clean_line(&finding.title)), page.width());
    for (number, line) in lines.iter().enumerate() {
        let text = if number == 0 { &line[label.len()..] } else { line };
        page.styled(paint::BOLD, text);
        let last = number + 1 == lines.len();
        if last && columns(line) + 2 + columns(&confidence) <= page.width() {
            page.text("  ");
            page.styled(paint::DIM, &confidence);
        } else if last {
            page.end_line();
            page.styled(paint::DIM, &confidence);
        }
        page.end_line();
    }
}

/// A numbered remedy. A command in backquotes stands unbroken on its own line, without them, ready to paste; a single
/// word in backquotes stays in the sentence.
fn remedy(page: &mut Page, number: usize, text: &str) {
    let mut label = format!("{number:>3}. ");
    for part in parts(&clean_line(text)) {
        match part {
            Part::Sentence(text) => {
                for line in wrap(&text, page.prose_width(REMEDY_INDENT)) {
                    page.text(&label);
                    page.with_code(&line);
                    page.end_line();
                    label = " ".repeat(REMEDY_INDENT);
                }
            }
            Part::Command(command) => {
                if label.trim_start().is_empty() {
                    page.text(&" ".repeat(COMMAND_INDENT));
                } else {
                    page.text(&label);
                    label = " ".repeat(REMEDY_INDENT);
                }
                page.styled_line(paint::CODE, &command);
            }
        }
    }
}
