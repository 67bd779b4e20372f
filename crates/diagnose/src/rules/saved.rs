//! What busbw found on nodes before, and kept as JSON: the same of many nodes as one finding.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Evidence, Finding, SavedFinding, Severity};
use std::collections::{BTreeMap, BTreeSet};

/// Hosts and lines of evidence that a finding shows at most.
const MOST_NAMED: usize = 5;

/// A finding per code that was found, whatever the number of nodes.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut by_code: BTreeMap<Code, Vec<&SavedFinding>> = BTreeMap::new();
    for saved in case.run.saved_findings.iter().filter(|saved| saved.severity >= Severity::Warning) {
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
    let explanation = format!(
        "busbw found this before and kept it as JSON, which is among the inputs. Of {} such statements the first is: {}.",
        saved.len(),
        saved.first()?.text.trim_end_matches('.')
    );
    let draft = Draft { code, severity: worst.severity, confidence: 0.9, title, explanation };
    let note = |one: &&SavedFinding| match &one.host {
        Some(host) => Evidence::noted(one.source.clone(), host.clone()),
        None => Evidence::new(one.source.clone()),
    };
    let page = format!("See what it means and how to fix it: `busbw explain --code {code}`");
    Some(draft.finding(saved.iter().take(MOST_NAMED).map(note).collect(), &[&page]))
}
