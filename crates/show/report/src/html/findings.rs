//! Findings as cards, and their evidence with the lines around it.

use super::Context;
use super::markup::{escape, more, prose, with_code};
use crate::remedy::{Part, parts};
use crate::words;
use busbw_model::{Diagnosis, Evidence, Finding, Place, Run};
use std::collections::BTreeMap;

/// Lines of evidence that a finding shows at most.
const MAX_LINES: usize = 40;

/// Every finding, the one to act on first.
pub(super) fn findings(run: &Run, diagnosis: &Diagnosis, context: &Context) -> String {
    let (shown, alike) = words::without_alike(&diagnosis.findings);
    let cards: String = shown.into_iter().map(|finding| card(run, diagnosis, context, finding)).collect();
    let more = alike.iter().map(|(severity, code, count)| {
        format!("<p class=\"muted\">… and {count} more <code>{}[{code}]</code> like these</p>\n", severity.as_str())
    });
    cards + &more.collect::<String>()
}

fn card(run: &Run, diagnosis: &Diagnosis, context: &Context, finding: &Finding) -> String {
    let severity = finding.severity.as_str();
    let head = format!(
        "<article class=\"finding {severity}\">\n\
         <p class=\"label\"><b>{severity}</b> <a href=\"{}\"><code>{}</code></a> <span>{}</span></p>\n<h2>{}</h2>\n",
        escape(&words::code_page(finding.code)),
        finding.code,
        escape(&words::confidence(finding.confidence)),
        with_code(&finding.title),
    );
    if words::in_short(diagnosis, finding.severity) {
        return format!("{head}{}</article>\n", prose(words::first_sentence(&finding.explanation)));
    }
    let gain = finding
        .expected_gain
        .as_ref()
        .map(|gain| format!("<p class=\"gain\"><b>Expected gain</b> {}</p>\n", escape(&words::gain(gain))));
    let parts = [head, prose(&finding.explanation), evidence(run, context, &finding.evidence), remedy(&finding.remedy)];
    format!("{}{}</article>\n", parts.concat(), gain.unwrap_or_default())
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

fn remedy(steps: &[String]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let part = |part| match part {
        Part::Sentence(text) => format!("<p>{}</p>\n", with_code(&text)),
        Part::Command(command) => format!("<pre>{}</pre>\n", escape(&command)),
    };
    let step = |step: &String| format!("<li>{}</li>\n", parts(step).into_iter().map(part).collect::<String>());
    let items: String = steps.iter().map(step).collect();
    format!("<h3>What to do</h3>\n<ol>\n{items}</ol>\n")
}
