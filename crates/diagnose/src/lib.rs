//! Model to findings: what is wrong with a run, how it shows, and what fixes it.
//!
//! A rule looks at a [`Case`] and returns findings; [`diagnose`] runs all of them, puts the findings in the order in
//! which to act on them, and says how the run stands. Rules that look for a text are data: `rules/signatures.toml`
//! and `rules/environment.toml`. Rules that look at structure are functions, a file each.

mod case;
mod curve;
mod rules;
mod verdict;

pub use case::{Case, Network, Test, network_of};
pub use curve::{BANDWIDTH_FROM, Curve, Fall};

use busbw_model::{Diagnosis, Finding, Run};

/// Judges a run. The first finding is the one to act on: errors before warnings before notes, causes before what
/// follows from them, surer before less sure.
pub fn diagnose(run: &Run) -> Diagnosis {
    let case = Case::new(run);
    let mut findings: Vec<Finding> = rules::ALL.iter().flat_map(|rule| rule(&case)).collect();
    rules::settle(&case, &mut findings);
    findings.sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then(rules::is_consequence(a.code).cmp(&rules::is_consequence(b.code)))
            .then(b.confidence.total_cmp(&a.confidence))
    });
    let verdict = verdict::verdict(&case, &findings);
    let summary = verdict::summary(&case, verdict, &findings);
    Diagnosis { verdict, summary, findings, expected: None }
}
