//! What is wrong, which variables were set, and what to run next, as serde sees them.

use super::view::LineView;
use crate::words;
use busbw_model::{Advice, Code, Evidence, Finding, Gain, Run, Severity, Variable};
use serde::Serialize;

/// A variable that was set, and what is to be said of it.
#[derive(Serialize)]
pub(super) struct VariableView<'a> {
    name: &'a str,
    value: &'a str,
    meaning: Option<&'a str>,
    default: Option<&'a str>,
    versions: Option<&'a str>,
    standing: &'a str,
    remark: Option<&'a str>,
    path: &'a str,
    line: u64,
}

impl<'a> VariableView<'a> {
    pub(super) fn new(run: &'a Run, variable: &'a Variable) -> Self {
        let Variable { name, value, meaning, default, versions, standing, place, .. } = variable;
        VariableView {
            name,
            value,
            meaning: meaning.as_deref(),
            default: default.as_deref(),
            versions: versions.as_deref(),
            standing: standing.as_str(),
            remark: standing.remark(),
            path: run.path(*place),
            line: place.line,
        }
    }
}

/// What to run next.
#[derive(Serialize)]
pub(super) struct AdviceView<'a> {
    question: &'a str,
    command: &'a str,
    then: &'a str,
}

impl<'a> AdviceView<'a> {
    pub(super) fn new(Advice { question, command, then }: &'a Advice) -> Self {
        AdviceView { question, command, then }
    }
}

#[derive(Serialize)]
struct EvidenceView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    note: Option<&'a str>,
}

/// A finding.
#[derive(Serialize)]
pub(super) struct FindingView<'a> {
    code: Code,
    severity: Severity,
    confidence: f64,
    title: &'a str,
    explanation: &'a str,
    evidence: Vec<EvidenceView<'a>>,
    remedy: &'a [String],
    expected_gain: Option<GainView<'a>>,
    page: String,
}

impl<'a> FindingView<'a> {
    pub(super) fn new(run: &'a Run, finding: &'a Finding) -> Self {
        let evidence = |e: &'a Evidence| EvidenceView { line: LineView::of(run, &e.source), note: e.note.as_deref() };
        FindingView {
            code: finding.code,
            severity: finding.severity,
            confidence: finding.confidence,
            title: &finding.title,
            explanation: &finding.explanation,
            evidence: finding.evidence.iter().map(evidence).collect(),
            remedy: &finding.remedy,
            expected_gain: finding.expected_gain.as_ref().map(GainView::new),
            page: words::code_page(finding.code),
        }
    }
}

#[derive(Serialize)]
struct GainView<'a> {
    from_busbw_gbs: f64,
    to_busbw_gbs: [f64; 2],
    basis: &'a str,
}

impl<'a> GainView<'a> {
    fn new(gain: &'a Gain) -> Self {
        let to_busbw_gbs = [gain.to_busbw.0.0, gain.to_busbw.1.0];
        GainView { from_busbw_gbs: gain.from_busbw.0, to_busbw_gbs, basis: &gain.basis }
    }
}
