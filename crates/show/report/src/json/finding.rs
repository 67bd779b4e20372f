//! Findings and variables, as answers have them.

use super::evidence::LineView;
use crate::words;
use busbw_model::{Alternative, Code, Evidence, Finding, Gain, Run, Severity, Variable};
use schemars::JsonSchema;
use serde::Serialize;

/// A variable that was set, and what is to be said of it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Variable")]
pub(super) struct VariableView<'a> {
    /// Its name.
    name: &'a str,
    /// Its value.
    value: &'a str,
    /// What it does, where it is known.
    meaning: Option<&'a str>,
    /// Its default, where it is known.
    default: Option<&'a str>,
    /// The versions of NCCL that read it: from 2.4 on.
    versions: Option<&'a str>,
    /// read: NCCL reads it and nothing speaks against it; of others: something else reads it; overrides: takes a choice from
    /// NCCL; harmful: hurts such a run; no effect: nothing reads it.
    #[schemars(extend("enum" = ["read", "of others", "overrides", "harmful", "no effect"]))]
    standing: &'static str,
    /// What this value does, or why it has no effect.
    remark: Option<&'a str>,
    /// Path of the first input that says so.
    path: &'a str,
    /// Its line, from 1; 0 when the whole input is meant.
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

/// A line that shows a finding.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Evidence")]
struct EvidenceView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    /// What to see in it.
    note: Option<&'a str>,
}

/// A conclusion of a rule.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub(super) struct FindingView<'a> {
    /// What it is about.
    code: Code,
    /// error: the run failed or its results are wrong. warning: costs speed or will cost a run. info: good to know.
    severity: Severity,
    /// How sure the rule is.
    #[schemars(range(min = 0, max = 1))]
    confidence: f64,
    /// One line: what is the matter.
    title: &'a str,
    /// What it means and how busbw knows. Paragraphs are separated by an empty line; lines that begin with `- ` are list items.
    explanation: &'a str,
    /// The lines that show it, the most telling first.
    evidence: Vec<EvidenceView<'a>>,
    /// What else may be the cause of the same, the likeliest first; empty where the input shows the cause.
    alternatives: &'a [Alternative],
    /// What to do, in order. Text in backquotes can be pasted into a shell.
    remedy: &'a [String],
    /// What the remedy should gain; null where it cannot be said.
    expected_gain: Option<&'a Gain>,
    /// The address of the page of this code: what it means, how to confirm it, how to fix it. `busbw explain --code` prints it
    /// without a network.
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
            alternatives: &finding.alternatives,
            remedy: &finding.remedy,
            expected_gain: finding.expected_gain.as_ref(),
            page: words::code_page(finding.code),
        }
    }
}
