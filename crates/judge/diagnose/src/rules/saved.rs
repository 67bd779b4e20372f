//! What busbw found on nodes before, and kept as JSON: the same of many nodes as one finding.

use super::{found, links};
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Evidence, Finding, SavedFinding, Severity};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Hosts and lines of evidence that a finding shows at most.
const MOST_NAMED: usize = 5;

/// A finding per code that was found, whatever the number of nodes.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut by_code: BTreeMap<Code, Vec<&SavedFinding>> = BTreeMap::new();
    let calls = |saved: &&SavedFinding| saved.severity >= Severity::Warning && !links::found_it(case, saved);
    for saved in case.run.saved_findings.iter().filter(calls) {
        by_code.entry(saved.code).or_default().push(saved);
    }
    by_code.into_iter().filter_map(|(code, saved)| of_code(code, &saved)).collect()
}

fn of_code(code: Code, saved: &[&SavedFinding]) -> Option<Finding> {
    let worst = saved.iter().max_by_key(|one| one.severity)?;
    let hosts: BTreeSet<&str> = saved.iter().filter_map(|one| one.host.as_deref()).collect();
    let named = listed(hosts.iter(), MOST_NAMED);
    let title = match hosts.len() {
        0 if saved.len() == 1 => worst.text.clone(),
        0 => format!("{} of the inputs say: {}", saved.len(), code.meaning()),
        1 => format!("{named}: {}", worst.text),
        count => format!("{count} nodes: {}: {named}", code.meaning()),
    };
    let first = saved.first()?.text.trim_end_matches('.');
    let words: [(&str, &dyn Display); 4] =
        [("code", &code), ("count", &saved.len()), ("title", &title), ("first", &first)];
    let note = |one: &&SavedFinding| match &one.host {
        Some(host) => Evidence::noted(one.source.clone(), host.clone()),
        None => Evidence::new(one.source.clone()),
    };
    let evidence = saved.iter().take(MOST_NAMED).map(note).collect();
    Some(Finding { code, severity: worst.severity, ..found("saved.kept", &words, evidence) })
}
