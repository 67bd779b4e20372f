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
pub use busbw_predict::cluster::NicsOfHost;

/// What somebody tells of a run beside its output.
#[derive(Debug, Clone, Default)]
pub struct Given<'a> {
    /// The cluster that it ran on.
    pub cluster: Option<&'a Cluster>,
    /// The NICs of a host.
    pub nics: Option<NicsOfHost>,
    /// The GPUs' name.
    pub gpu: Option<String>,
    /// GPUs of a host.
    pub gpus_per_node: Option<usize>,
}

/// Reads `8xH100`, or a GPU's name alone: how many a host has, and which.
///
/// # Errors
/// When the text names no GPU.
pub fn gpus(text: &str) -> Result<(Option<usize>, String), String> {
    let counted = text.split_once(['x', 'X']).and_then(|(count, name)| Some((count.trim().parse().ok()?, name.trim())));
    let (count, name) = counted.map_or((None, text.trim()), |(count, name)| (Some(count), name));
    match busbw_predict::cluster::is_gpu(name) && count.is_none_or(|count: usize| (1..=20).contains(&count)) {
        true => Ok((count, name.to_string())),
        false => Err(format!("{text:?} names no GPU that busbw knows; write how many a host has, and which: 8xH100")),
    }
}

/// Judges a run. The first finding is the one to act on: errors before warnings before notes, causes before what
/// follows from them, surer before less sure. What the machine should reach is taken from what the run tells of it.
pub fn diagnose(run: &Run) -> Diagnosis {
    diagnose_with(run, &Given::default())
}

/// Judges a run, knowing the cluster that it ran on.
pub fn diagnose_on(run: &Run, cluster: Option<&Cluster>) -> Diagnosis {
    diagnose_with(run, &Given { cluster, ..Given::default() })
}

/// Judges a run, knowing what is given.
pub fn diagnose_with(run: &Run, given: &Given) -> Diagnosis {
    diagnose_by(run, given, rules::ALL)
}

/// The names of all rules, in the order in which they run.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|entry| entry.name)
}

/// Judges a run by some of the rules.
fn diagnose_by(run: &Run, given: &Given, rules: &[rules::Entry]) -> Diagnosis {
    let case = Case::new(run);
    let found = rules.iter().flat_map(|entry| (entry.rule)(&case).into_iter().map(|finding| (entry.basis, finding)));
    let mut findings = order::settle(&case, found.collect());
    let prospects = expectation::prospects(&case, given);
    expectation::judge(&prospects, &mut findings);
    let judged: Vec<Judged> =
        expectation::judged(&case, &prospects).into_iter().chain(course::judge(&case, &findings)).collect();
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
