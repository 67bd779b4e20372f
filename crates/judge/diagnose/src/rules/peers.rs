//! Nodes and pairs far below the many others that were measured alike.

use super::found;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Blame, Evidence, Finding, PeerGroup, SlowPeer};

/// Names and lines of evidence that a finding shows at most.
const MOST_NAMED: usize = 5;

/// The slow ones of each group of peers: a finding for all nodes, one for all pairs.
pub fn rule(case: &Case) -> Vec<Finding> {
    let of = |group, blame| slow(group, blame);
    case.peers
        .iter()
        .flat_map(|group| [Blame::Node, Blame::Between, Blame::Open].map(|blame| of(group, blame)))
        .flatten()
        .collect()
}

fn slow(group: &PeerGroup, blame: Blame) -> Option<Finding> {
    let slow: Vec<&SlowPeer> = group.blamed(blame).collect();
    let first = slow.first()?;
    let (id, noun) = match blame {
        Blame::Node => ("peers.node", "node"),
        Blame::Between => ("peers.between", "pair"),
        Blame::Open => ("peers.open", "pair"),
    };
    let median = format!("the median of {} is {} {}", group.measured, group.figure(group.median), group.unit);
    let figure = |peer: &SlowPeer| format!("{} ({})", peer.name(), group.figure(peer.value));
    let who = match slow.len() {
        1 => format!("{} is slow: {} {}", first.name(), group.figure(first.value), group.unit),
        count => {
            format!("{count} {noun}s are slow: {}", listed(slow.iter().map(|peer| figure(peer)), MOST_NAMED))
        }
    };
    let spread = format!(
        "Compared: {}, {} measured alike, {} to {} {}, with a median deviation of {}. ",
        group.what,
        group.measured,
        group.figure(group.least),
        group.figure(group.most),
        group.unit,
        group.figure(group.deviation),
    );
    let evidence = |peer: &&SlowPeer| Evidence::noted(peer.source.clone(), figure(peer));
    let evidence = slow.iter().take(MOST_NAMED).map(evidence).collect();
    Some(found(id, &[("slow", &who), ("median", &median), ("spread", &spread)], evidence))
}
