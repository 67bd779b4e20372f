//! Which host or which link is slow, and what holds back all of them.
//!
//! A host is slow when nearly all that it sends (or receives) stays far below what links that do not touch it reach; a
//! link is slow when it alone does. Medians decide, so that neither a lucky nor an unlucky figure does.

mod findings;
mod slow;

use busbw_model::{Code, Diagnosis, LinkRun, Severity, Verdict};
use slow::Matrix;

/// Pairs with a direction that is slow although neither end is: worth measuring again, alone, before they are named.
pub(crate) fn suspects(run: &LinkRun) -> Vec<(usize, usize)> {
    let matrix = Matrix::of(run);
    let links = matrix.slow_links(&matrix.slow_ends());
    let mut pairs: Vec<_> = links.iter().map(|slow| slow.cell.pair()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Says what is wrong with the links of a run.
pub fn judge(run: &LinkRun) -> Diagnosis {
    let matrix = Matrix::of(run);
    let slow_ends = matrix.slow_ends();
    let slow_links = matrix.slow_links(&slow_ends);
    let mut found = findings::unreachable(run);
    found.extend(slow_ends.iter().map(|slow| findings::slow_end(run, &matrix, slow)));
    found.extend(slow_links.iter().map(|slow| findings::slow_link(run, slow)));
    found.extend(findings::below_expected(run));
    found.extend(findings::below_rate(run));
    found.extend(findings::flow_limit(run));
    found.extend(findings::losses(run));
    if run.interrupted.is_none() && found.iter().all(|finding| finding.severity == Severity::Info) {
        found.splice(0..0, findings::as_expected(run));
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let measured = run.links.iter().any(|link| link.outcome.is_ok());
    let verdict = match found.first().map(|finding| finding.severity) {
        _ if !measured || run.interrupted.is_some() => Verdict::Failed,
        _ if found.iter().any(|finding| finding.code == Code::NetUnreachable) => Verdict::Failed,
        Some(Severity::Error | Severity::Warning) => Verdict::Degraded,
        _ if findings::can_be_judged(run) => Verdict::Healthy,
        _ => Verdict::NoErrors,
    };
    let summary = match (&run.interrupted, found.first()) {
        (Some(reason), _) => {
            let done = run.links.iter().filter(|link| link.outcome.is_ok()).count();
            format!("{reason}, after {done} of {} links", run.links.len())
        }
        (None, Some(first)) => first.title.clone(),
        (None, None) => "nothing was measured".into(),
    };
    Diagnosis { verdict, summary, findings: found, ..Diagnosis::default() }
}

#[cfg(test)]
mod tests;
