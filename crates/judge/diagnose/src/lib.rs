//! Turns a run into findings: what is wrong, the evidence, and the fix.
//!
//! A rule looks at a [`Case`] and returns findings; [`diagnose`] runs all of them, puts the findings in the order in
//! which to act on them, and says how the run stands. Rules that look for a text are data: `rules/` at the
//! top of the repository. Rules that look at structure are functions, a file each.

#![forbid(unsafe_code)]

mod advice;
mod case;
pub mod check;

mod culprit;
mod curve;
mod data;
mod elsewhere;
mod ends;
mod expectation;
mod findings;
mod interfaces;
pub mod known_faults;
pub mod labelled;
mod last_word;
mod lines;
mod node_rows;
mod order;
mod outcome;
mod pages;
mod peers;
mod progress;
mod ranks;
mod refute;
mod remedy;
mod results;
mod rules;
mod silence;
mod sweeps;
mod times;
mod unfit_nodes;
mod unread;
mod variables;
mod vendor;
mod verdict;
mod waiting_pods;
mod words;
mod xid;

pub use case::{Case, Network, Test, network_of};
pub use curve::{BANDWIDTH_FROM, Curve, Fall};
pub use data::{Cause, Printed, Template, Until, Variable};
pub use pages::page;
pub use rules::transport::network_in_use;
pub use variables::{nearest_variable, variable};

use busbw_model::{Diagnosis, Judged, Load, Run};
use busbw_predict::Cluster;
pub use busbw_predict::cluster::{GpusOfHost, NicsOfHost};
pub use rules::signatures::book::{Book, check_rules};
use vendor::Vendor;

/// What the user says about a run, apart from its output.
#[derive(Clone, Default)]
pub struct UserFacts<'a> {
    pub cluster: Option<&'a Cluster>,
    /// What ranks send in an uneven exchange.
    pub load: Option<&'a Load>,
    pub nics: Option<NicsOfHost>,
    pub gpu: Option<String>,
    pub gpus_per_node: Option<usize>,
    /// The causes to look for, where not those that are built in.
    pub book: Option<&'a Book>,
}

impl UserFacts<'_> {
    fn nics_of_host(&self) -> Option<NicsOfHost> {
        let described = self.cluster.and_then(|cluster| cluster.nics.as_ref());
        let rate = self.nics.map(|nics| nics.rate).or_else(|| described.map(|nics| nics.rate))?;
        let count = self.nics.and_then(|nics| nics.count).or_else(|| described.map(|nics| nics.count));
        Some(NicsOfHost { count, rate })
    }

    /// With the value of `--gpus`.
    pub fn with_gpus(self, gpus: Option<GpusOfHost>) -> Self {
        let (gpu, gpus_per_node) = gpus.map_or((None, None), |gpus| (Some(gpus.name), gpus.count));
        UserFacts { gpu, gpus_per_node, ..self }
    }
}

/// Judges a run. The first finding is the one to act on: errors before warnings before notes, causes before what
/// follows from them, surer before less sure. What the machine should reach is derived from what the run shows.
pub fn diagnose(run: &Run) -> Diagnosis {
    diagnose_with(run, &UserFacts::default())
}

/// Judges a run, knowing the cluster that it ran on.
pub fn diagnose_on<'a>(run: &'a Run, cluster: Option<&'a Cluster>) -> Diagnosis {
    diagnose_with(run, &UserFacts { cluster, ..UserFacts::default() })
}

/// Judges a run, knowing what is given.
pub fn diagnose_with<'a>(run: &'a Run, given: &UserFacts<'a>) -> Diagnosis {
    diagnose_by(run, given, rules::ALL)
}

/// Whether nothing in the inputs is known, and no program goes on or fails in them: there is nothing to ask about, either.
pub fn is_unknown(run: &Run, diagnosis: &Diagnosis) -> bool {
    const FEWEST: usize = 3;
    let goes_on = || run.problems.is_empty() && progress::progress(run).len() >= FEWEST;
    run.is_empty() && diagnosis.findings.is_empty() && diagnosis.judged.is_empty() && !goes_on()
}

/// The names of all rules, in the order in which they run.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    rules::ALL.iter().map(|entry| entry.name)
}

/// Judges a run by some of the rules.
fn diagnose_by<'a>(run: &'a Run, given: &UserFacts<'a>, rules: &[rules::Entry]) -> Diagnosis {
    let case =
        Case { nics: given.nics_of_host(), ..given.book.map_or_else(|| Case::new(run), |book| Case::by(run, book)) };
    let found = rules.iter().flat_map(|entry| (entry.rule)(&case).into_iter().map(|finding| (entry.basis, finding)));
    let mut findings = order::settle(&case, found.collect());
    let prospects = expectation::prospects(&case, given);
    expectation::judge(&case, &prospects, &mut findings);
    expectation::uneven::judge(&case, given, &mut findings);
    let mut judged: Vec<Judged> = expectation::judged(&case, &prospects, given)
        .into_iter()
        .chain(outcome::judge(&case, &findings))
        .chain(rules::hosts::judge(&case))
        .chain(rules::hello::judge(&case))
        .chain(rules::links::judge(&case))
        .chain(rules::wire_test::judge(&case))
        .chain(rules::copies::judge(&case))
        .collect();
    if judged.is_empty() && findings.is_empty() {
        judged.extend(last_word::alone(&case));
    }
    let vendor = Vendor::of(&case);
    if let Some(vendor) = &vendor {
        vendor.put(&mut findings);
        vendor.put_judged(&mut judged);
    }
    let verdict = verdict::verdict(&findings, &judged, verdict::is_of_machines(run));
    let summary = verdict::summary(verdict, &findings, &judged, &run.inputs, case.refuters.ended_well());
    remedy::fit(&case, &mut findings);
    let mut advice = advice::advise(&case, verdict, &findings);
    let mut expected = expectation::expected(&prospects);
    if let Some(vendor) = &vendor {
        vendor.put_advice(&mut advice);
        expected = expected.map(|expected| vendor.put_expected(expected));
    }
    Diagnosis {
        verdict,
        summary,
        judged,
        culprit: culprit::of(&case, &findings),
        findings,
        expected,
        expected_tables: expectation::tables(&case, &prospects),
        variables: rules::environment::lint(&case),
        advice,
        peers: case.peers,
    }
}

#[cfg(test)]
mod tests;
