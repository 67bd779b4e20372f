//! The order of findings, and what a run that ended well says of them.

use crate::case::Case;
use crate::data::Until;
use crate::expectation::{costs_speed, shows_in_speed};
use crate::findings::is_consequence;
use crate::rules::signatures::book::Role;
use crate::rules::{Basis, ends};
use busbw_model::{Code, Finding, Severity, Speaker};

/// Puts findings in the order in which to act on them, and lowers what a good end disproves.
pub fn settle(case: &Case, mut found: Vec<(Basis, Finding)>) -> Vec<Finding> {
    ends::settle(case, &mut found);
    found.sort_by(|(_, a), (_, b)| {
        let key = |f: &Finding| (f.severity, answers(f), !is_consequence(f.code));
        key(b).cmp(&key(a)).then(b.confidence.total_cmp(&a.confidence))
    });
    if !case.ends.failed() {
        let stands = stands(case);
        let broken = found.iter().any(|(_, finding)| finding.severity == Severity::Error);
        found.iter_mut().for_each(|(basis, finding)| lower(case, *basis, finding, Standing { stands, broken }));
        let answer = |basis: Basis, finding: &Finding| basis == Basis::Answer && finding.severity == Severity::Info;
        found.sort_by_key(|(basis, finding)| std::cmp::Reverse((finding.severity, answer(*basis, finding))));
    }
    let mut findings = repeats_last(each_line_once(found));
    without_what_stands(&mut findings);
    findings
}

/// Leaves out other causes that are findings of their own, and all where nothing is wrong.
fn without_what_stands(findings: &mut [Finding]) {
    let wrong = findings.iter().filter(|finding| finding.severity > Severity::Info);
    let found: std::collections::HashSet<Code> = wrong.map(|finding| finding.code).collect();
    for finding in findings {
        let is_note = finding.severity == Severity::Info;
        finding.alternatives.retain(|other| !is_note && other.code != finding.code && !found.contains(&other.code));
    }
}

/// Without findings of one code that rest on the same line as one before them: two rules read it, the surer is reported.
/// Findings about machines stand: saved facts are one line, and several things of a machine may be wrong.
fn each_line_once(mut found: Vec<(Basis, Finding)>) -> Vec<Finding> {
    let line = |finding: &Finding| Some((finding.code, finding.evidence.first()?.source.place));
    let of_machines = found.iter().filter(|(basis, _)| *basis == Basis::Machine);
    let mut told: std::collections::HashSet<_> = of_machines.filter_map(|(_, finding)| line(finding)).collect();
    found.retain(|(basis, finding)| *basis == Basis::Machine || line(finding).is_none_or(|line| told.insert(line)));
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// Among notes, the answer to "is this right?" stands before what is only good to know.
fn answers(finding: &Finding) -> bool {
    finding.severity == Severity::Info && finding.code == Code::OkAsExpected && finding.confidence >= 0.7
}

/// How a run stands: ranks came up together; something is an error, of which what costs speed may be the cause.
#[derive(Clone, Copy)]
struct Standing {
    stands: bool,
    broken: bool,
}

/// Whether ranks came up together: what costs only speed is then no trouble by itself.
fn stands(case: &Case) -> bool {
    case.run.communicators.iter().any(|comm| comm.nranks.is_some_and(|ranks| ranks > 1) && comm.came_up())
}

/// A run that ended well met no failure: processes that leave one after the other warn about each other, and programs
/// speak of errors that they survive. Settings and ways that cost speed are notes: what a run loses by them, only a table
/// shows, and [`crate::expectation::judge`] raises them beside a slow one. Wrong results and measured slowness stand.
fn lower(case: &Case, basis: Basis, finding: &mut Finding, Standing { stands, broken }: Standing) {
    if basis != Basis::Log || finding.code == Code::DataCorruption || is_of_machine(case, finding) {
        return;
    }
    let place = finding.evidence.first().map(|evidence| evidence.source.place);
    let finished = place.map_or(case.refuters.ended_well(), |place| case.refuters.ended_well_after(place));
    // What costs speed would show in a table, wherever the line stands: outputs are joined in any order.
    let measured = || case.run.tables.iter().any(|table| table.finished && !table.rows.is_empty());
    let is_tail = || place.is_some_and(|place| case.refuters.is_behind_all(place));
    // A stack shows where a process stands whatever was printed behind it.
    let is_printed = |place| {
        let mut lines = case.lines.iter().filter(|line| line.source.place == place);
        lines.any(|line| line.speaker != Speaker::Program)
    };
    let went_on = |place| fails(finding.code) && is_printed(place) && case.refuters.progressed_after(place);
    let went_on = || place.is_some_and(went_on);
    let nccl_warns = || case.run.nccl.warnings.iter().any(|warning| Some(warning.source.place) == place);
    finding.severity = match finding.severity {
        Severity::Error if !finished => Severity::Error,
        Severity::Error if !is_consequence(finding.code) && nccl_warns() => Severity::Warning,
        Severity::Warning if shows_in_speed(finding.code) && !broken => lowered(finding),
        Severity::Warning if !finished && !stands && !measured() && !went_on() => Severity::Warning,
        // Behind the last sign that the run went on, and of something that fails: nothing shows that it was survived.
        Severity::Warning if !finished && !measured() && fails(finding.code) && is_tail() => Severity::Warning,
        _ => lowered(finding),
    };
}

/// The severity of a finding that becomes a note; what costs speed explains a table that is slow.
fn lowered(finding: &mut Finding) -> Severity {
    finding.if_slow |= finding.severity == Severity::Warning && costs_speed(finding.code);
    Severity::Info
}

/// Whether an error, or a warning of the kernel of what fails, rests on what a machine says of itself, which no run disproves; or on the end of a
/// communicator, of which its ranks leave in order.
fn is_of_machine(case: &Case, finding: &Finding) -> bool {
    let Some(place) = finding.evidence.first().map(|evidence| evidence.source.place) else { return false };
    let says = |(index, role): (usize, Role)| {
        let cause = case.book.cause(index);
        let Role::Printed(at) = role else { return false };
        let counts = match finding.severity {
            Severity::Error => true,
            Severity::Warning => cause.printed[at].by == Speaker::Kernel && fails(finding.code),
            Severity::Info => false,
        };
        counts && matches!(cause.until, Until::Never | Until::Rerun) && cause.code == finding.code
    };
    let mut lines = case.lines.iter().filter(|line| line.source.place == place);
    lines.any(|line| case.book.read(line.speaker, &line.text).into_iter().any(says))
}

/// Whether a code is of what fails, not of what costs speed.
fn fails(code: Code) -> bool {
    is_consequence(code) || matches!(code, Code::IbTransportError | Code::NetUnreachable | Code::GpuError)
}

/// Within a severity, the first finding of each code before further ones of the same code.
fn repeats_last(findings: Vec<Finding>) -> Vec<Finding> {
    let mut seen = std::collections::HashMap::<Code, usize>::new();
    let mut numbered: Vec<(usize, Finding)> = findings
        .into_iter()
        .map(|finding| {
            let count = seen.entry(finding.code).or_default();
            *count += 1;
            (*count, finding)
        })
        .collect();
    numbered.sort_by_key(|(count, finding)| (std::cmp::Reverse(finding.severity), (*count).min(2)));
    numbered.into_iter().map(|(_, finding)| finding).collect()
}
