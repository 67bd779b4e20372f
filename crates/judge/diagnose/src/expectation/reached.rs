//! Notes about tables that reach what they should.

use super::Prospect;
use crate::rules::sound;
use busbw_model::{Collective, Expected, Finding, GBps, Judgement};

/// A finding per kind of run that reaches what it should, however many tables show it.
pub(super) fn as_expected(judged: &[&Prospect]) -> Vec<Finding> {
    let mut alike: Vec<(Collective, String, Vec<&Prospect>)> = Vec::new();
    let passed = |prospect: &&&Prospect| prospect.outcome() == Judgement::Passed && !prospect.is_compared();
    for prospect in judged.iter().filter(passed) {
        let how = prospect.how();
        match alike.iter_mut().find(|(collective, other, _)| *collective == prospect.collective && *other == how) {
            Some((.., members)) => members.push(prospect),
            None => alike.push((prospect.collective, how, vec![prospect])),
        }
    }
    alike.into_iter().filter_map(|(collective, how, members)| reached(collective, &how, &members)).collect()
}

fn reached(collective: Collective, how: &str, members: &[&Prospect]) -> Option<Finding> {
    let first = members.first()?;
    let Expected { busbw: expected, bottleneck, .. } = first.expected();
    let plateau = |prospect: &&Prospect| prospect.test.curve.plateau.0;
    let low = members.iter().map(plateau).fold(f64::INFINITY, f64::min);
    let high = GBps(members.iter().map(plateau).fold(0.0, f64::max));
    let who = match members.len() {
        1 => format!("{collective} reaches {high}"),
        count => format!("{count} tables of {collective} reach {low:.2} to {high}"),
    };
    let why = format!(
        "Large messages are limited by {bottleneck}. Predicted for {how}. At sizes of a few MiB and below, \
         latency dominates, so busbw is small on any machine."
    );
    let confidence = if first.described { 0.9 } else { 0.6 };
    let evidence = extremes(members).into_iter().flat_map(Prospect::evidence).collect();
    Some(sound(confidence, format!("{who}; this machine should reach {expected}"), why, evidence))
}

/// The slowest and the fastest, or the only one.
fn extremes<'a, 'b>(members: &'b [&'b Prospect<'a>]) -> Vec<&'b Prospect<'a>> {
    let plateau = |a: &&&Prospect, b: &&&Prospect| a.test.curve.plateau.0.total_cmp(&b.test.curve.plateau.0);
    let slowest = members.iter().min_by(plateau);
    let fastest = members.iter().max_by(plateau).filter(|_| members.len() > 1);
    slowest.into_iter().chain(fastest).copied().collect()
}
