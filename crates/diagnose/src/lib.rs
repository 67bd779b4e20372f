//! Model to findings: what is wrong with a run, how it shows, and what fixes it.
//!
//! A rule looks at a [`Case`] and returns findings; [`diagnose`] runs all of them, puts the findings in the order in
//! which to act on them, and says how the run stands. Rules that look for a text are data: `rules/` at the
//! top of the repository. Rules that look at structure are functions, a file each.

#![forbid(unsafe_code)]

mod advice;
mod case;
pub mod check;
mod course;
mod curve;
mod data;
mod ends;
mod expectation;
mod interfaces;
pub mod labelled;
mod lines;
mod order;
mod pages;
mod peers;
mod refute;
mod remedy;
mod rules;
mod variables;
mod verdict;
mod words;
mod xid;

pub use case::{Case, Network, Test, network_of};
pub use curve::{BANDWIDTH_FROM, Curve, Fall};
pub use data::check as check_rules;
pub use data::{By, Cause, Printed, Template, Until, Variable};
pub use pages::page;
pub use rules::signatures::book::Book;
pub use rules::transport::network_in_use;
pub use variables::{nearest_variable, variable};

use busbw_model::{Diagnosis, Judged, Run};
use busbw_predict::Cluster;

/// Judges a run. The first finding is the one to act on: errors before warnings before notes, causes before what
/// follows from them, surer before less sure. What the machine should reach is taken from what the run tells of it.
pub fn diagnose(run: &Run) -> Diagnosis {
    diagnose_on(run, None)
}

/// Judges a run, knowing the cluster that it ran on.
pub fn diagnose_on(run: &Run, described: Option<&Cluster>) -> Diagnosis {
    diagnose_by_book(run, described, Book::built_in())
}

/// Judges a run by the causes of a book: those that are compiled in, and a file of one's own ([`Book::with`]).
pub fn diagnose_by_book(run: &Run, described: Option<&Cluster>, book: &Book) -> Diagnosis {
    diagnose_by(&Case::by(run, book), described, rules::ALL)
}

/// The names of all rules, in the order in which they run.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|entry| entry.name)
}

/// Judges a run by some of the rules.
fn diagnose_by(case: &Case, described: Option<&Cluster>, rules: &[rules::Entry]) -> Diagnosis {
    let found = rules.iter().flat_map(|entry| (entry.rule)(case).into_iter().map(|finding| (entry.basis, finding)));
    let mut findings = order::settle(case, found.collect());
    let prospects = expectation::prospects(case, described);
    expectation::judge(&prospects, &mut findings);
    let judged: Vec<Judged> = expectation::judged(&prospects)
        .into_iter()
        .chain(course::judge(case, &findings))
        .chain(rules::hosts::judge(case))
        .collect();
    let verdict = verdict::verdict(&findings, &judged);
    let summary = verdict::summary(verdict, &findings, &judged);
    remedy::fit(case, &mut findings);
    let advice = advice::advise(case, verdict, &findings);
    Diagnosis {
        verdict,
        summary,
        judged,
        findings,
        expected: expectation::expected(&prospects),
        expected_tables: expectation::tables(case, &prospects),
        variables: rules::environment::lint(case),
        advice,
        peers: case.peers.clone(),
    }
}

#[cfg(test)]
mod tests;
