//! Fabrics of listed switches and cables.

mod plant;
mod ways;

use super::{FlowEnds, LinkId};
use crate::cluster::Cable;
use crate::simulation::SimulationError;
use crate::traffic::Port;
use plant::{Plant, Vertex};
use std::collections::BTreeMap;
use std::ops::Range;
use ways::NextHops;

/// A fabric of listed switches and cables, with the shortest ways between the NICs of a run.
#[derive(Debug)]
pub struct Cables {
    plant: Plant,
    ways: NextHops,
}

impl Cables {
    pub fn new(
        switches: &[String],
        cables: &[Cable],
        payload: f64,
        ports: &[(Port, Port)],
    ) -> Result<Cables, SimulationError> {
        let plant = Plant::new(switches, cables, payload)?;
        let ways = NextHops::find(&plant, ports);
        Ok(Cables { plant, ways })
    }

    pub fn links(&self) -> usize {
        self.plant.links.len()
    }

    pub fn rate(&self, link: LinkId) -> f64 {
        self.plant.links.get(link as usize).map_or(f64::INFINITY, |link| link.rate)
    }

    pub fn name(&self, link: LinkId) -> String {
        self.plant.name(link)
    }

    pub fn journey(&self, from: Port, to: Port) -> Option<FlowEnds> {
        let journey = FlowEnds { from: self.plant.nic(from)?, to: self.plant.nic(to)? };
        (from == to || !self.ways.next(journey.from, journey.to).is_empty()).then_some(journey)
    }

    pub fn walk(&self, journey: FlowEnds, mut choose: impl FnMut(u32) -> u32, mut take: impl FnMut(LinkId)) {
        let mut at = journey.from;
        while at != journey.to {
            let next = self.ways.next(at, journey.to);
            let Some(&link) = next.get(choose(next.len() as u32) as usize) else { return };
            take(link);
            at = self.plant.links[link as usize].to;
        }
    }

    /// At every switch the flow is split over the equal next links by their rates: packets go where there is room.
    pub fn spread(&self, journey: FlowEnds, mut add: impl FnMut(Range<LinkId>, f64)) {
        let mut here: BTreeMap<Vertex, f64> = BTreeMap::from([(journey.from, 1.0)]);
        while !here.is_empty() {
            let mut there: BTreeMap<Vertex, f64> = BTreeMap::new();
            for (vertex, part) in here.into_iter().filter(|(vertex, _)| *vertex != journey.to) {
                let next = self.ways.next(vertex, journey.to);
                let rates: f64 = next.iter().map(|&link| self.rate(link)).sum();
                for &link in next {
                    let part = part * self.rate(link) / rates;
                    add(link..link + 1, part);
                    *there.entry(self.plant.links[link as usize].to).or_default() += part;
                }
            }
            here = there;
        }
    }
}
