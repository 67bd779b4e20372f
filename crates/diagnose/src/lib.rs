//! Model to findings: what is wrong with a run, how it shows, and what fixes it.
//!
//! A rule looks at a [`Case`] and returns findings; [`diagnose`] runs all of them, puts the findings in the order in
//! which to act on them, and says how the run stands. Rules that look for a text are data: `rules/signatures/`,
//! `rules/cures.toml` and `rules/environment.toml`. Rules that look at structure are functions, a file each.

#![forbid(unsafe_code)]

mod advice;
mod case;
pub mod check;
mod course;
mod curve;
mod expectation;
mod interfaces;
mod lines;
mod order;
mod pages;
mod peers;
mod refute;
mod rules;
mod variables;
mod verdict;
mod words;
mod xid;

pub use case::{Case, Network, Test, network_of};
pub use curve::{BANDWIDTH_FROM, Curve, Fall};
pub use pages::page;
pub use rules::transport::network_in_use;
pub use variables::{Variable, nearest_variable, variable};

use busbw_model::{Diagnosis, Judged, Run};
use busbw_predict::Cluster;

/// Judges a run. The first finding is the one to act on: errors before warnings before notes, causes before what
/// follows from them, surer before less sure. What the machine should reach is taken from what the run tells of it.
pub fn diagnose(run: &Run) -> Diagnosis {
    diagnose_on(run, None)
}

/// Judges a run, knowing the cluster that it ran on.
pub fn diagnose_on(run: &Run, described: Option<&Cluster>) -> Diagnosis {
    diagnose_by(run, described, rules::ALL)
}

/// The names of all rules, in the order in which they run.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|entry| entry.name)
}

/// Judges a run by some of the rules.
fn diagnose_by(run: &Run, described: Option<&Cluster>, rules: &[rules::Entry]) -> Diagnosis {
    let case = Case::new(run);
    let found = rules.iter().flat_map(|entry| (entry.rule)(&case).into_iter().map(|finding| (entry.basis, finding)));
    let mut findings = order::settle(&case, found.collect());
    let prospects = expectation::prospects(&case, described);
    expectation::judge(&prospects, &mut findings);
    let judged: Vec<Judged> = expectation::judged(&prospects)
        .into_iter()
        .chain(course::judge(&case, &findings))
        .chain(rules::hosts::judge(&case))
        .collect();
    let verdict = verdict::verdict(&findings, &judged);
    let summary = verdict::summary(verdict, &findings, &judged);
    let advice = advice::advise(&case, verdict, &findings);
    Diagnosis {
        verdict,
        summary,
        judged,
        findings,
        expected: expectation::expected(&prospects),
        expected_tables: expectation::tables(&case, &prospects),
        variables: rules::environment::lint(&case),
        advice,
        peers: case.peers,
    }
}

#[cfg(test)]
mod tests;
