//! What `busbw link` measured between the hosts, and what it found: as it says it, where one measurement is among the inputs. The
//! findings of many are counted like those of other answers ([`super::saved`]).

use crate::case::Case;
use busbw_model::{
    Code, Evidence, Finding, Judged, Judgement, LinkRun, LinkTransport, SavedFinding, Severity, SourceLine, Subject,
    gbit, median,
};

/// The one measurement, and where it stands.
pub(crate) fn only<'a>(case: &Case<'a>) -> Option<&'a (SourceLine, LinkRun)> {
    match case.run.link_runs.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// What was found in the one measurement.
fn of_links<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a SavedFinding> {
    let place = only(case).map(|(source, _)| source.place);
    case.run.saved_findings.iter().filter(move |saved| Some(saved.source.place) == place)
}

/// Whether the one measurement found it.
pub(crate) fn found_it(case: &Case, saved: &SavedFinding) -> bool {
    only(case).is_some_and(|(source, _)| source.place == saved.source.place)
}

/// What the links typically carry over sockets.
pub(crate) fn typical_gbit_s(case: &Case) -> Option<f64> {
    let (_, links) = only(case).filter(|(_, links)| links.transport == LinkTransport::Tcp)?;
    median(rates(links))
}

fn rates(links: &LinkRun) -> impl Iterator<Item = f64> + Clone {
    links.links.iter().filter_map(|link| Some(link.outcome.as_ref().ok()?.gbit_s))
}

pub fn rule(case: &Case) -> Vec<Finding> {
    of_links(case).filter(|saved| saved.code != Code::OkAsExpected).map(finding).collect()
}

/// A link that is slow works: only what was not reached has failed.
fn finding(saved: &SavedFinding) -> Finding {
    let worst = if saved.code == Code::NetUnreachable { Severity::Error } else { Severity::Warning };
    Finding {
        evidence: vec![Evidence::new(saved.source.clone())],
        remedy: saved.remedy.clone(),
        ..Finding::new(saved.code, saved.severity.min(worst), 0.9, &saved.text, &saved.explanation)
    }
}

/// The links, compared with each other: two hosts have none to compare with.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let (_, links) = only(case).filter(|(_, links)| links.ends.len() > 2)?;
    let (least, most) = (rates(links).reduce(f64::min)?, rates(links).reduce(f64::max)?);
    let sound = of_links(case).all(|saved| saved.severity == Severity::Info);
    let what = format!("links over {}", links.transport.name());
    let how = format!("{} carry {} to {} Gbit/s", rates(links).count(), gbit(least), gbit(most));
    let outcome = if sound { Judgement::Passed } else { Judgement::Failed };
    Some(Judged::new(Subject::Host, what, how, outcome))
}
