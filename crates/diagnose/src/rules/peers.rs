//! Nodes and pairs far below the many others that were measured alike.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Blame, Code, Evidence, Finding, PeerGroup, Severity, SlowPeer};

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
    let (code, confidence, noun, why) = match blame {
        Blame::Node => (Code::StragglerNode, 0.9, "node", NODE),
        Blame::Between => (Code::FabricCongestion, 0.7, "pair", BETWEEN),
        Blame::Open => (Code::StragglerNode, 0.6, "pair", OPEN),
    };
    let median = format!("the median of {} is {} {}", group.measured, group.figure(group.median), group.unit);
    let figure = |peer: &SlowPeer| format!("{} ({})", peer.name(), group.figure(peer.value));
    let title = match slow.len() {
        1 => format!("{} is slow: {} {}, where {median}", first.name(), group.figure(first.value), group.unit),
        count => {
            let named = listed(slow.iter().map(|peer| figure(peer)), MOST_NAMED);
            format!("{count} {noun}s are slow: {named}, where {median}")
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
    let draft = Draft { code, severity: Severity::Warning, confidence, title, explanation: spread + why };
    let evidence = |peer: &&SlowPeer| Evidence::noted(peer.source.clone(), figure(peer));
    Some(draft.finding(slow.iter().take(MOST_NAMED).map(evidence).collect(), remedy(blame)))
}

const NODE: &str = "A node that is slow alone, or with nearly every partner, has a fault of its own: a NIC, a PCIe link or a cable \
                    below its rate, clocks, access control on its bridges, or a process that takes its cores. A job over all nodes \
                    runs at its speed.";
const BETWEEN: &str = "Each of these nodes is fast with others, so that the cause lies on the way between them: a link between \
                       switches, a hash that puts several flows on one link, or a cable with errors.";
const OPEN: &str =
    "One of the nodes was measured with nobody else: whether it is slow, or the way to it, the next measurement tells.";

fn remedy(blame: Blame) -> &'static [&'static str] {
    match blame {
        Blame::Node => &[
            "Take these nodes out of the queue: `scontrol update nodename=NODE state=drain reason=slow`, or `kubectl cordon NODE`",
            "Compare one of them with a good node: `busbw check --hosts SLOW,GOOD`",
        ],
        Blame::Between => &[
            "Measure again: a hash may fall differently, a bad cable does not",
            "Look at the error counters of the switch ports between the nodes",
        ],
        Blame::Open => &[
            "Measure each of them with a node that is fast: `busbw bench all_reduce --hosts SUSPECT:8,GOOD:8 -b 1M -e 8G -f 2`",
        ],
    }
}
