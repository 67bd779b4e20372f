//! Known faults of the versions in use that hit the run, as their own text shows.

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
    let fixed: Vec<String> = found.fixed.iter().map(ToString::to_string).collect();
    let mend = match fixed.as_slice() {
        [] => None,
        releases => Some(format!("Install {} {}", component.title(), releases.join(" or "))),
    };
    let see = format!("See what else this version can do: `busbw advise --versions {}={version}`", component.name());
    let code = fault.symptom.unwrap_or(Code::VersionMismatch);
    let severity = if fault.consequence.ends_a_run() { Severity::Error } else { Severity::Warning };
    let confidence = match fault.sure {
        Sure::Stated => 0.95,
        Sure::Inferred => 0.9,
        Sure::Reported => 0.8,
    };
    let (name, sources) = (component.title(), source.join(", "));
    let title = format!("A known fault of {name} {version}: {title}");
    let explanation = format!("{name} {affected} has it; this run printed its text. Source: {sources}.");
    let remedy = mend.into_iter().chain(found.workaround.clone()).chain([see]).collect();
    Finding { evidence: vec![evidence], remedy, ..Finding::new(code, severity, confidence, title, explanation) }
}
