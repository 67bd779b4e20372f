//! Known faults of the versions in use that hit the run, as their own text shows; and the one that a failure is like.

use crate::case::Case;
use crate::known_faults::{self, situation::Situation, table::Sure};
use busbw_model::{Code, Evidence, Finding, KnownFault, Severity};

pub fn rule(case: &Case) -> Vec<Finding> {
    let known = Situation::of_case(case);
    known_faults::hits(case, &known)
        .into_iter()
        .map(|(fault, found, evidence)| finding(fault, found, evidence))
        .collect()
}

fn finding(fault: &known_faults::table::Fault, found: KnownFault, evidence: Evidence) -> Finding {
    let KnownFault { component, version, title, affected, source, .. } = &found;
    Finding {
        code: fault.symptom.unwrap_or(Code::VersionMismatch),
        severity: if fault.consequence.ends_a_run() { Severity::Error } else { Severity::Warning },
        confidence: match fault.sure {
            Sure::Stated => 0.95,
            Sure::Inferred => 0.9,
            Sure::Reported => 0.8,
        },
        title: format!("A known fault of {} {version}: {title}", component.title()),
        explanation: format!(
            "{} {affected} has it; this run printed its text. Source: {}.",
            component.title(),
            source.join(", ")
        ),
        evidence: vec![evidence],
        remedy: remedy(&found, format!("{}={version}", component.name())),
        expected_gain: None,
        suspects: None,
        alternatives: Vec::new(),
        if_slow: false,
    }
}

/// A known fault that a failure is like. Nothing that only it prints was printed, so it is a note.
pub fn note(like: &KnownFault) -> Finding {
    let KnownFault { id, component, version, title, affected, unknown, source, .. } = like;
    let asked = if unknown.is_empty() { String::new() } else { format!(" Not known here: {}.", unknown.join("; ")) };
    Finding {
        code: Code::VersionMismatch,
        severity: Severity::Info,
        confidence: 0.4,
        title: format!("It may be a known fault of {}: {title} ({id})", component.title()),
        explanation: format!(
            "{} {affected} has it, and what was printed is like it; no line shows that it hit.{asked} Source: {}.",
            component.title(),
            source.join(", ")
        ),
        evidence: Vec::new(),
        remedy: remedy(like, format!("{}={version}", component.name())),
        expected_gain: None,
        suspects: None,
        alternatives: Vec::new(),
        if_slow: false,
    }
}

/// The release without the fault, the way around it, and how to see what else the version can do.
fn remedy(found: &KnownFault, versions: String) -> Vec<String> {
    let fixed: Vec<String> = found.fixed.iter().map(ToString::to_string).collect();
    let mend = (!fixed.is_empty()).then(|| format!("Install {} {}", found.component.title(), fixed.join(" or ")));
    let see = format!("See what else this version can do: `busbw advise --versions {versions}`");
    mend.into_iter().chain(found.workaround.clone()).chain([see]).collect()
}
