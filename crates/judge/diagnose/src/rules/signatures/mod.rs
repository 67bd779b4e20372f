//! Texts that show their cause: `rules/signatures` says which program prints what, and what it means.
//!
//! A cause is raised by a line of its speaker that nothing later refutes ([`crate::refute`]). The first such line of the rank
//! that failed first shows it; what others say after it follows from it.

pub(crate) mod book;
mod gpu_memory;
mod missing;

use crate::case::Case;
use crate::data::{Cause, Until};
use crate::lines::{Line, is_any_event};
use crate::refute::pods::{is_over, is_row_of_another};
use crate::rules::ends::in_short;
use book::Role;
use busbw_model::node::Bound;
use busbw_model::{Code, Evidence, Finding, NodeFacts, Severity, Speaker};
use std::collections::BTreeMap;

/// A finding per code whose causes are printed, with the first lines that show it.
pub fn rule(case: &Case) -> Vec<Finding> {
    let book = case.book;
    let mut causes: BTreeMap<usize, MatchedLines> = BTreeMap::new();
    for line in &case.lines {
        for (cause, role) in book.read(line.speaker, &line.text) {
            causes.entry(cause).or_default().add(role, line);
        }
    }
    let mut findings: Vec<Finding> = Vec::new();
    for (index, found) in &causes {
        let cause = book.cause(*index);
        if let Some(finding) = found.finding(case, cause).filter(|_| !is_disproved(case, cause)) {
            add(&mut findings, finding);
        }
    }
    findings
}

/// Whether the machines themselves tell that it cannot be the cause: no limit of locked memory is too low where there is none, and
/// where machines that are not built for GPUDirect were measured, the speed shows whether they lack it.
fn is_disproved(case: &Case, cause: &Cause) -> bool {
    if cause.code == Code::GdrDisabled && cause.severity == Severity::Warning && !case.tests.is_empty() {
        return case.largest().is_some_and(|comm| !super::gdr::built_for_it(case, comm));
    }
    let told = |machine: &&NodeFacts| machine.saved.is_some() || machine.lines_of("memlock", None).next().is_some();
    let limits = case.run.machines.iter().filter(told).filter_map(|machine| machine.limits.get());
    let mut bounds = limits.map(|limits| limits.locked_memory.soft).peekable();
    cause.code == Code::LimitsMemlock && bounds.peek().is_some() && bounds.all(|bound| bound == Bound::Unlimited)
}

/// The lines that hold a cause's texts.
#[derive(Default)]
struct MatchedLines<'a> {
    printed: Vec<&'a Line<'a>>,
    with: bool,
    without: Vec<&'a Line<'a>>,
}

impl<'a> MatchedLines<'a> {
    fn add(&mut self, role: Role, line: &'a Line<'a>) {
        match role {
            Role::Printed(_) if self.printed.last().is_some_and(|last| last.source.place == line.source.place) => {}
            Role::Printed(_) => self.printed.push(line),
            Role::With(_) => self.with = true,
            Role::Without(_) => self.without.push(line),
        }
    }

    fn finding(&self, case: &Case, cause: &Cause) -> Option<Finding> {
        if !self.with && !cause.with.is_empty() {
            return None;
        }
        let taken_back = |line: &Line| {
            let mut by = self.without.iter().filter(|by| may_take_back(by, line));
            by.any(|by| !is_any_event(line.text.trim()) || is_over(&case.lines, line, by))
                || is_row_of_another(&case.lines, line)
        };
        let printed = || self.printed.iter().copied().filter(|line| !taken_back(line));
        let answers = |line: &Line| {
            let stays = matches!(cause.code, Code::HangMismatch | Code::PeerDied) || cause.severity != Severity::Error;
            let may_be_asked_again = !stays && line.speaker != Speaker::Kernel;
            cause.until != Until::Never && may_be_asked_again && case.refuters.answers_after(line.source.place)
        };
        let goes_on = |line: &Line| case.refuters.refute(cause.until, line) || answers(line);
        let mut standing: Vec<&Line> = printed().filter(|line| !goes_on(line)).collect();
        let is_open = standing.is_empty();
        if is_open {
            standing.extend(
                printed().filter(|line| line.speaker == Speaker::Python && case.ends.are_open(line.source.place)),
            );
        }
        let elsewhere = |line: &Line| case.elsewhere.why(cause.severity, line);
        let of_run: Vec<&Line> = standing.iter().copied().filter(|line| elsewhere(line).is_none()).collect();
        if !of_run.is_empty() {
            standing = of_run;
        }
        let first = standing.first().filter(|_| cause.repeats < 2 || most_alike(cause, &standing) >= cause.repeats)?;
        let evidence = standing.iter().take(4).map(|line| Evidence::new(line.source.clone())).collect();
        let host = first.host.map_or(String::new(), |host| format!(" (first on {host})"));
        let more = missing::named(cause, &standing).or_else(|| said(cause, first)).unwrap_or_default();
        let title = format!("{}{host}{more}", cause.title);
        let others = gpu_memory::of_others(&first.text).unwrap_or_default();
        let elsewhere = elsewhere(first);
        let why = elsewhere.map(|why| format!(" {why}")).unwrap_or_default();
        let explanation = format!("{}{others}{why}{}", cause.explanation, repeated(&standing));
        let mut found = cause.finding(evidence);
        let values: Vec<_> = cause.printed.iter().flat_map(|printed| printed.text.values(&first.text)).collect();
        found.remedy.iter_mut().for_each(|remedy| *remedy = filled(remedy, &values));
        // The question is whether it was of the run; what it would be is a note.
        let is_note = is_open || elsewhere.is_some();
        let severity = if is_note { found.severity.min(Severity::Info) } else { found.severity };
        Some(Finding { title, explanation, severity, ..found })
    }
}

/// What a program says of itself, where the gap `SAID` tells it.
fn said(cause: &Cause, line: &Line) -> Option<String> {
    let told = cause.printed.iter().flat_map(|printed| printed.text.told(&line.text));
    told.filter(|(name, _)| *name == "SAID").map(|(_, said)| format!(": {}", in_short(said))).next()
}

/// Whether a line may take another back: what the kernel of one host says is nothing to another's, and no news to what it said long before.
fn may_take_back(by: &Line, line: &Line) -> bool {
    /// The lines of one event stand together.
    const AN_EVENT: u64 = 6;
    let (said, told) = (by.source.place, line.source.place);
    let is_of_host = by.host.is_none() || line.host.is_none() || by.host == line.host;
    let is_before = said.input == told.input && told.line > said.line + AN_EVENT;
    line.speaker != Speaker::Kernel || is_of_host && !is_before
}

/// A remedy whose commands name what the line tells: `nc -zv 10.0.0.7 41234` of `nc -zv ADDRESS PORT`.
fn filled(remedy: &str, values: &[(&str, &str)]) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let word = |word: &str| {
        let name = word.trim_end_matches(|c| !is_part(c));
        let value = values.iter().find(|(known, _)| *known == name.trim_start_matches('$'));
        value.map_or(word.to_string(), |(_, value)| word.replacen(name, value, 1))
    };
    let command = |text: &str| text.split_inclusive(|c| !is_part(c)).map(word).collect::<String>();
    let parts = remedy.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { command(part) } else { part.to_string() }).collect::<Vec<_>>().join("`")
}

/// Adds a finding; of several with one code the surest stays, with the lines of the others as further evidence.
fn add(findings: &mut Vec<Finding>, mut new: Finding) {
    let Some(old) = findings.iter_mut().find(|finding| finding.code == new.code) else { return findings.push(new) };
    let weight = |finding: &Finding| (finding.severity, finding.confidence);
    if weight(&new) > weight(old) {
        std::mem::swap(old, &mut new);
    }
    for evidence in new.evidence {
        if old.evidence.len() < 6 && !old.evidence.iter().any(|known| known.source.place == evidence.source.place) {
            old.evidence.push(evidence);
        }
    }
}

/// How many lines are alike from a text of the cause on: a time may stand in front.
fn most_alike(cause: &Cause, lines: &[&Line]) -> usize {
    let mut alike: BTreeMap<(Option<&str>, &str), usize> = BTreeMap::new();
    for line in lines {
        let begins = cause.printed.iter().filter_map(|printed| line.text.find(printed.text.pieces().first()?.as_str()));
        let from = begins.min().unwrap_or(0);
        *alike.entry((line.host, &line.text[from..])).or_default() += 1;
    }
    alike.into_values().max().unwrap_or(0)
}

fn repeated(matching: &[&Line]) -> String {
    let total: u64 = matching.iter().map(|line| line.count).sum();
    if total > 1 { format!(" The input has {total} such lines.") } else { String::new() }
}
