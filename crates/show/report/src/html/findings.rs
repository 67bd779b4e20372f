//! Findings as cards, and their evidence with the lines around it.

use super::Context;
use super::markup::{escape, more, prose, with_code};
use crate::remedy::{Part, parts};
use crate::words;
use busbw_model::{Alternative, Diagnosis, Evidence, Finding, Place, Run, Severity};
use std::collections::BTreeMap;

/// So many lines of evidence stand beside a short explanation; more are behind a fold.
const FEW_LINES: usize = 4;
/// Lines of evidence that a finding shows at most.
const MAX_LINES: usize = 40;

/// The findings to act on, or the first; and the others.
pub(super) fn findings(run: &Run, diagnosis: &Diagnosis, context: &Context) -> (String, String) {
    let (shown, alike) = words::without_alike(&diagnosis.findings);
    let leads = diagnosis.findings.first().map(|finding| finding.severity);
    let (first, others): (Vec<_>, Vec<_>) = shown.into_iter().enumerate().partition(|(at, finding)| {
        *at == 0 || finding.severity >= Severity::Warning && Some(finding.severity) == leads
    });
    let cards = |found: Vec<(usize, &Finding)>| -> String {
        found.into_iter().map(|(_, finding)| card(run, diagnosis, context, finding)).collect()
    };
    let more = alike.iter().map(|(severity, code, count)| {
        format!("<p class=\"muted\">… and {count} more <code>{}[{code}]</code> like these</p>\n", severity.as_str())
    });
    (cards(first), cards(others) + &more.collect::<String>())
}

fn card(run: &Run, diagnosis: &Diagnosis, context: &Context, finding: &Finding) -> String {
    let severity = finding.severity.as_str();
    // The page begins with the words of its first finding: they are not said twice.
    let is_headline = finding.title == diagnosis.summary;
    let title = if is_headline { "Why".to_owned() } else { with_code(&finding.title) };
    let head = format!(
        "<article class=\"finding {severity}\">\n\
         <p class=\"label\"><b>{severity}</b> <a href=\"{}\"><code>{}</code></a> <span>{}</span></p>\n<h2>{title}</h2>\n",
        escape(&words::code_page(finding.code)),
        finding.code,
        escape(&words::confidence(finding.confidence)),
    );
    if words::in_short(diagnosis, finding.severity) {
        return format!("{head}{}</article>\n", prose(words::first_sentence(&finding.explanation)));
    }
    let gain = finding
        .expected_gain
        .as_ref()
        .map(|gain| format!("<p class=\"gain\"><b>Expected gain</b> {}</p>\n", escape(&words::gain(gain))));
    let (short, rest) = finding.explanation.split_once("\n\n").unwrap_or((&finding.explanation, ""));
    let shown = evidence(run, context, &finding.evidence);
    let parts =
        [head, prose(short), alternatives(&finding.alternatives), remedy(&finding.remedy), gain.unwrap_or_default()]
            .concat();
    if rest.is_empty() && finding.evidence.len() <= FEW_LINES {
        return format!("{parts}{shown}</article>\n");
    }
    format!(
        "{parts}<details><summary>In full, with the lines that show it</summary>\n{}{shown}</details>\n</article>\n",
        prose(rest)
    )
}

/// The lines that show it, those of one file that follow each other in one block, each with the lines around it.
fn evidence(run: &Run, context: &Context, lines: &[Evidence]) -> String {
    let shown = &lines[..lines.len().min(MAX_LINES)];
    let groups = shown.chunk_by(|a, b| a.source.place.input == b.source.place.input);
    let blocks: String = groups
        .map(|group| {
            let path = group.first().map(|line| run.path(line.source.place)).unwrap_or_default();
            format!("<figure><figcaption>{}</figcaption><pre>{}</pre></figure>\n", escape(path), block(context, group))
        })
        .collect();
    blocks + &more(lines.len(), MAX_LINES)
}

/// Evidence of one file: in the order given where nothing is known around it, else in the order of the file.
fn block(context: &Context, group: &[Evidence]) -> String {
    let near = |evidence: &Evidence| nearby(context, evidence.source.place);
    if group.iter().all(|evidence| near(evidence).is_empty()) {
        return group.iter().map(line).collect();
    }
    let mut lines: BTreeMap<u64, String> = BTreeMap::new();
    for (number, text) in group.iter().flat_map(near) {
        lines.insert(number, format!("<s><span>{number}</span>{}</s>\n", escape(text)));
    }
    for evidence in group {
        let number = evidence.source.place.line;
        let said = lines.get(&number).filter(|said| said.starts_with("<b>")).cloned().unwrap_or_default();
        lines.insert(number, format!("{said}<b>{}</b>", line(evidence)));
    }
    let mut out = String::new();
    let mut before = None;
    for (number, line) in lines {
        if before.is_some_and(|before| before + 1 < number) {
            out.push_str("<s><span>⋮</span></s>\n");
        }
        before = Some(number);
        out.push_str(&line);
    }
    out
}

/// The lines around a place that are known.
fn nearby(context: &Context, place: Place) -> Vec<(u64, &str)> {
    let Place { input, line } = place;
    let from = Place { input, line: line.saturating_sub(Context::REACH).max(1) };
    let to = Place { input, line: line.saturating_add(Context::REACH) };
    if line == 0 {
        return Vec::new();
    }
    context.lines.range(from..=to).map(|(place, line)| (place.line, line.text.as_ref())).collect()
}

fn line(evidence: &Evidence) -> String {
    let number = match evidence.source.place.line {
        0 => String::new(),
        number => number.to_string(),
    };
    let note = evidence.note.as_deref().filter(|note| !note.is_empty());
    let note = note.map(|note| format!("<i><span></span>↑ {}</i>\n", escape(note))).unwrap_or_default();
    format!("<span>{number}</span>{}\n{note}", escape(&evidence.source.text))
}

/// What else may be the cause, in a list.
fn alternatives(alternatives: &[Alternative]) -> String {
    if alternatives.is_empty() {
        return String::new();
    }
    let item = |other: &Alternative| format!("<li>{}</li>\n", with_code(&words::alternative(other)));
    let items: String = alternatives.iter().map(item).collect();
    format!("<h3>Or</h3>\n<ul>\n{items}</ul>\n")
}

fn remedy(steps: &[String]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let part = |part| match part {
        Part::Sentence(text) => format!("<p>{}</p>\n", with_code(&text)),
        Part::Command(command) => format!("<pre title=\"a click selects it\">{}</pre>\n", escape(&command)),
    };
    let step = |step: &String| format!("<li>{}</li>\n", parts(step).into_iter().map(part).collect::<String>());
    let items: String = steps.iter().map(step).collect();
    format!("<h3>What to do</h3>\n<ol>\n{items}</ol>\n")
}
