//! The links between NICs, and the ways that flows can take over them.

mod cables;
#[cfg(test)]
mod fair;
mod hash;
#[cfg(test)]
mod invariants;
mod limits;
mod naming;
#[cfg(test)]
mod routes;
mod seeds;
mod simulate;
mod spread;
#[cfg(test)]
mod tests;
mod tiers;

pub use limits::payload;
pub use simulate::simulate;

use crate::cluster::{Cluster, Wiring};
use crate::simulation::SimulationError;
use crate::traffic::Port;
use cables::Cables;
use std::ops::Range;
use tiers::Tiers;

/// A link in one direction: its place among all links of the fabric.
pub type LinkId = u32;

/// The links of a fabric. Parallel links are links of their own; the two directions of a cable are too.
#[derive(Debug)]
pub enum Network {
    /// Leaves, spines and cores, or switches joined directly: next links follow from numbers.
    Tiers(Tiers),
    /// Listed cables: next links are found by searching.
    Cables(Cables),
}

/// A flow's two ends on the fabric: leaf switches, or listed NICs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnds {
    from: u32,
    to: u32,
}

impl Network {
    /// The fabric of a cluster, with the ways to the NICs in `ports`, pairs of sender and receiver. Rates are those of payload.
    pub fn new(cluster: &Cluster, payload: f64, ports: &[(Port, Port)]) -> Result<Network, SimulationError> {
        Ok(match &cluster.fabric.wiring {
            Wiring::Explicit { switches, links } => Network::Cables(Cables::new(switches, links, payload, ports)?),
            wiring => Network::Tiers(Tiers::new(wiring, cluster, payload)?),
        })
    }

    pub fn links(&self) -> usize {
        match self {
            Network::Tiers(tiers) => tiers.links(),
            Network::Cables(cables) => cables.links(),
        }
    }

    /// The payload that a link carries, GB/s.
    pub fn rate(&self, link: LinkId) -> f64 {
        match self {
            Network::Tiers(tiers) => tiers.rate(link),
            Network::Cables(cables) => cables.rate(link),
        }
    }

    /// The two ends of a link, in words.
    pub fn name(&self, link: LinkId) -> String {
        match self {
            Network::Tiers(tiers) => tiers.name(link),
            Network::Cables(cables) => cables.name(link),
        }
    }

    /// The ends of a flow.
    pub fn journey(&self, from: Port, to: Port) -> Result<FlowEnds, SimulationError> {
        let journey = match self {
            Network::Tiers(tiers) => tiers.journey(from, to),
            Network::Cables(cables) => cables.journey(from, to),
        };
        journey.ok_or(SimulationError::Unreachable { from, to })
    }

    /// Walks a flow's way: `choose` gets the number of equal next links and says which, `take` gets the link.
    pub fn walk(&self, journey: FlowEnds, choose: impl FnMut(u32) -> u32, take: impl FnMut(LinkId)) {
        match self {
            Network::Tiers(tiers) => tiers.walk(journey, choose, take),
            Network::Cables(cables) => cables.walk(journey, choose, take),
        }
    }

    /// Spreads a flow over all equal ways: `add` gets ranges of links and the part of the flow that each of them carries.
    pub fn spread(&self, journey: FlowEnds, add: impl FnMut(Range<LinkId>, f64)) {
        match self {
            Network::Tiers(tiers) => tiers.spread(journey, add),
            Network::Cables(cables) => cables.spread(journey, add),
        }
    }

    /// Whether a flow has a choice of ways.
    pub fn chooses(&self, journey: FlowEnds) -> bool {
        let mut most = 1;
        let count = |choices: u32| {
            most = most.max(choices);
            0
        };
        self.walk(journey, count, |_| ());
        most > 1
    }
}

/// The most links that are simulated.
const MAX_LINKS: usize = 1 << 24;

fn check_links(links: Option<usize>) -> Result<u32, SimulationError> {
    match links {
        Some(links) if links <= MAX_LINKS => Ok(links as u32),
        _ => Err(SimulationError::TooManyLinks),
    }
}

fn check_rate(rate: f64, of: &'static str) -> Result<f64, SimulationError> {
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err(SimulationError::Rate { of }) }
}
