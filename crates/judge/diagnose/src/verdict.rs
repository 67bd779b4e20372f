//! The first line: it depends only on the findings and on what was judged.

use crate::expectation::shows_in_speed;
use crate::last_word::END_OF_RUN;
use busbw_model::{Finding, Input, InputKind, Judged, Judgement, Run, Severity, Speaker, Statement, Subject, Verdict};
use std::collections::HashSet;

/// The verdict. A finding above info decides first, then a question that is open, then what passed. `of_machines`: the input tells of machines alone.
pub(crate) fn verdict(findings: &[Finding], judged: &[Judged], of_machines: bool) -> Verdict {
    let passed = |subjects: &[Subject]| {
        judged.iter().any(|one| one.outcome == Judgement::Passed && subjects.contains(&one.subject))
    };
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Error) => Verdict::Failed,
        Some(Severity::Warning) => Verdict::Degraded,
        _ if question(judged).is_some() => Verdict::Inconclusive,
        _ if passed(&[Subject::Speed]) => Verdict::Healthy,
        _ if passed(&[Subject::Course, Subject::Results]) => Verdict::NoErrors,
        // A healthy machine does not show that a run came up.
        _ if of_machines && passed(&[Subject::Host]) && judged.iter().all(|one| one.subject == Subject::Host) => {
            Verdict::Healthy
        }
        _ => Verdict::Inconclusive,
    }
}

/// Whether nothing in the input is of a run: no process that ended, no line of a framework, a launcher or a crash handler, and no message of a program's
/// logger.
pub(crate) fn is_of_machines(run: &Run) -> bool {
    let of_run = |speaker| matches!(speaker, Speaker::Torch | Speaker::Python | Speaker::Crash | Speaker::Launcher);
    let is_of_run = |one: &Statement| of_run(one.speaker) || one.speaker == Speaker::Program && is_logged(one.text());
    run.ends.is_empty() && run.torch_statements.is_empty() && !run.statements.iter().any(is_of_run)
}

/// Whether a line names its place in a program of Python's, `[distributed.py:46:init_distributed]`, or several values, `step:10/50 loss:2.1`, `loss=2.1,
/// lr=0.001`: what machines are asked with names one in a line, or has a frame around its tables.
fn is_logged(text: &str) -> bool {
    let has_place = text.split(".py:").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let is_name = |text: &str| text.ends_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_value = |text: &str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let separators = text.match_indices([':', '=']);
    let values = separators.filter(|(at, _)| is_name(text[..*at].trim_end()) && is_value(&text[at + 1..]));
    has_place || !text.starts_with('|') && values.count() >= 2
}

/// One sentence: the finding to act on, the question that decides, or what passed. `ended`: something shows a good end.
pub(crate) fn summary(
    verdict: Verdict,
    findings: &[Finding],
    judged: &[Judged],
    inputs: &[Input],
    ended: bool,
) -> String {
    match verdict {
        Verdict::Failed | Verdict::Degraded => findings.first().map_or(String::new(), |first| first.title.clone()),
        Verdict::Inconclusive => {
            let asked = question(judged).map(str::to_string).or_else(|| cost_unknown(findings));
            asked.unwrap_or_else(|| nothing_judged(inputs).to_string())
        }
        Verdict::Healthy => passed(judged, Subject::Speed),
        Verdict::NoErrors => {
            let is_table = |input: &Input| input.kinds.contains(&InputKind::NcclTests);
            let speed = if inputs.iter().any(is_table) { "judged" } else { "measured" };
            let is_end = |one: &Judged| one.what == END_OF_RUN && one.outcome == Judgement::Passed;
            let end = if ended || judged.iter().any(is_end) { "" } else { ", and no end of the run is seen" };
            format!("{}. Speed was not {speed}{end}.", passed(judged, Subject::Course))
        }
    }
}

/// The question of a note of what costs speed, where no speed was measured.
fn cost_unknown(findings: &[Finding]) -> Option<String> {
    let note = findings.iter().find(|finding| finding.severity == Severity::Info && shows_in_speed(finding.code))?;
    Some(format!(
        "{}. Does it cost speed here? None was measured: give a table of nccl-tests or `busbw bench`",
        note.title
    ))
}

/// What to say where nothing was judged: who gave what a tool printed is not asked for NCCL's log.
fn nothing_judged(inputs: &[Input]) -> &'static str {
    let mut kinds = inputs.iter().flat_map(|input| &input.kinds).peekable();
    if kinds.peek().is_some() && kinds.all(|kind| kind.is_of_tool()) {
        "Nothing in it is wrong by itself. Add the output of the run that it belongs to, to judge both"
    } else {
        "The input has nothing to judge: give the whole output of all ranks, run with NCCL_DEBUG=INFO"
    }
}

/// The question of the first thing that is undecided.
fn question(judged: &[Judged]) -> Option<&str> {
    let open = judged.iter().filter(|one| one.outcome == Judgement::Undecided);
    open.filter_map(|one| one.question.as_deref()).next()
}

/// What passed, the named subject first: `99% of the 486 GB/s expected, 0 wrong in 52 rows`. Of tables of the same, the slowest.
fn passed(judged: &[Judged], first: Subject) -> String {
    let mut passed: Vec<&Judged> = judged.iter().filter(|one| one.outcome == Judgement::Passed).collect();
    let share = |one: &Judged| one.speed.map_or(f64::INFINITY, |speed| speed.share());
    passed.sort_by(|a, b| (a.subject != first).cmp(&(b.subject != first)).then(share(a).total_cmp(&share(b))));
    let alike =
        |one: &Judged| passed.iter().filter(|other| (other.subject, &other.what) == (one.subject, &one.what)).count();
    let said = |one: &Judged| match one.subject {
        Subject::Speed if alike(one) > 1 => {
            format!("{}: {}, the slowest of {} tables", one.what, one.how, alike(one))
        }
        Subject::Speed | Subject::Host => format!("{}: {}", one.what, one.how),
        Subject::Results | Subject::Course => one.how.clone(),
    };
    let mut seen = HashSet::new();
    let different = passed.iter().filter(|one| one.subject != Subject::Speed || seen.insert(&one.what));
    different.take(3).map(|one| said(one)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(subject: Subject, outcome: Judgement) -> Judged {
        let question = (outcome == Judgement::Undecided).then(|| "How many NICs?".to_string());
        Judged { question, ..Judged::new(subject, "all_reduce", "99% of 486 GB/s expected", outcome) }
    }

    #[test]
    fn a_tools_output_alone_is_not_asked_for_a_log_of_nccl() {
        let input = |kinds: &[InputKind]| Input { kinds: kinds.to_vec(), ..Input::default() };
        for (inputs, asks_for_log) in [
            (vec![input(&[InputKind::RdmaMonitor])], false),
            (vec![input(&[InputKind::Busbw]), input(&[InputKind::HostFacts, InputKind::Perftest])], false),
            (vec![input(&[InputKind::TopoMatrix])], true),
            (vec![input(&[InputKind::Busbw]), input(&[InputKind::NcclLog])], true),
            (vec![input(&[])], true),
        ] {
            let said = summary(Verdict::Inconclusive, &[], &[], &inputs, true);
            assert_eq!(said.contains("NCCL_DEBUG"), asks_for_log, "{inputs:?}: {said}");
        }
    }

    #[test]
    fn what_was_not_judged_is_not_praised() {
        use Judgement::{Passed, Undecided};
        use Subject::{Course, Host, Results, Speed};
        let cases: [(&[(Subject, Judgement)], Verdict); 6] = [
            (&[], Verdict::Inconclusive),
            (&[(Course, Passed)], Verdict::NoErrors),
            (&[(Results, Passed)], Verdict::NoErrors),
            (&[(Speed, Passed), (Course, Passed)], Verdict::Healthy),
            (&[(Host, Passed)], Verdict::Healthy),
            (&[(Speed, Undecided), (Course, Passed), (Host, Passed)], Verdict::Inconclusive),
        ];
        for (what, expected) in cases {
            let judged: Vec<Judged> = what.iter().map(|(subject, outcome)| judged(*subject, *outcome)).collect();
            assert_eq!(verdict(&[], &judged, true), expected, "{what:?}");
        }
    }
}
