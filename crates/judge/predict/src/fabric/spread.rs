//! Loads where switches spread every flow over all equal ways.

use super::{FlowEnds, LinkId, Network};
use crate::traffic::Traffic;
use std::collections::BTreeMap;
use std::ops::Range;

/// What links carry when flows are spread.
pub struct Spread {
    /// The busbw that the fabric allows; infinite where no flow touches a link.
    pub level: f64,
    /// Links that carry anything, in groups that carry the same.
    pub groups: Vec<Group>,
}

/// Links next to each other that carry the same.
pub struct Group {
    pub links: Range<LinkId>,
    /// The busbw that each of them allows.
    pub level: f64,
    /// Flows over each of them, by the parts of flows that it carries.
    pub flows_mean: f64,
    /// Flows that are spread over them.
    pub flows: usize,
}

pub fn spread(network: &Network, traffic: &Traffic, journeys: &[FlowEnds]) -> Spread {
    let mut loads: BTreeMap<(LinkId, LinkId), (f64, f64, usize)> = BTreeMap::new();
    for (flow, &journey) in traffic.flows.iter().zip(journeys) {
        network.spread(journey, |links, part| {
            let (share, parts, flows) = loads.entry((links.start, links.end)).or_default();
            *share += flow.share * part;
            *parts += part;
            *flows += 1;
        });
    }
    let group = |((first, end), (share, flows_mean, flows))| Group {
        links: first..end,
        level: network.rate(first) / share,
        flows_mean,
        flows,
    };
    let groups: Vec<Group> = loads.into_iter().map(group).collect();
    Spread { level: groups.iter().map(|group| group.level).fold(f64::INFINITY, f64::min), groups }
}
