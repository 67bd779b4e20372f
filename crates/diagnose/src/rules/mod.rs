//! The rules. Each is a function from a case to findings; a new one is a file here and a line in [`ALL`].

mod environment;
mod fabric_congestion;
mod failures;
mod results;
mod signatures;
mod transport;

use crate::case::Case;
use busbw_model::{Code, Finding, RemarkKind, Severity};

/// A rule.
pub type Rule = fn(&Case) -> Vec<Finding>;

/// Every rule.
pub const ALL: &[Rule] = &[
    fabric_congestion::rule,
    transport::rule,
    environment::rule,
    signatures::rule,
    results::wrong_data,
    results::too_small,
];

/// Whether a code tells of something that follows from a cause elsewhere: the cause comes first.
pub fn is_consequence(code: Code) -> bool {
    matches!(code, Code::PeerDied | Code::HangMismatch)
}

/// What depends on all findings together.
pub fn settle(case: &Case, findings: &mut Vec<Finding>) {
    findings.extend(failures::unexplained(case, findings));
    let finished = case.run.remarks.iter().any(|r| r.kind == RemarkKind::Finished)
        || case.run.tables.iter().any(|t| t.finished && !t.rows.is_empty());
    if finished && !failures::failed(case) {
        // Processes that leave one after the other warn about each other: such lines tell of no failure.
        for finding in findings.iter_mut().filter(|f| f.severity == Severity::Error && is_survivable(f.code)) {
            finding.severity = if is_consequence(finding.code) { Severity::Info } else { Severity::Warning };
        }
    }
}

/// Whether a run that finished may have met it on the way.
fn is_survivable(code: Code) -> bool {
    code != Code::DataCorruption
}
