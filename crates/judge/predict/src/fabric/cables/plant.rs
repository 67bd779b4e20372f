//! Listed switches, NICs and cables as a graph of links in one direction.

use crate::cluster::{Cable, CableEnd};
use crate::fabric::{LinkId, check_links, check_rate};
use crate::simulation::SimulationError;
use crate::traffic::Port;
use std::collections::HashMap;

/// A switch or a NIC: switches come first, in the order of their names, so that the order of a list changes nothing.
pub type Vertex = u32;

#[derive(Debug)]
pub struct Plant {
    pub links: Vec<Link>,
    /// Links that leave a vertex.
    pub leaving: Vec<Vec<LinkId>>,
    /// Links that arrive at a vertex.
    pub arriving: Vec<Vec<LinkId>>,
    switches: Vec<String>,
    nics: Vec<Port>,
    vertex_of: HashMap<Port, Vertex>,
}

/// A link in one direction.
#[derive(Debug)]
pub struct Link {
    pub from: Vertex,
    pub to: Vertex,
    /// Payload, GB/s.
    pub rate: f64,
    /// Its place among the parallel links of its cable; none where it has no parallel.
    parallel: Option<u32>,
}

impl Plant {
    pub fn new(switches: &[String], cables: &[Cable], payload: f64) -> Result<Plant, SimulationError> {
        let mut order: Vec<usize> = (0..switches.len()).collect();
        order.sort_by(|&a, &b| switches[a].cmp(&switches[b]).then(a.cmp(&b)));
        let mut vertex_of_switch = vec![0; switches.len()];
        for (vertex, &switch) in (0u32..).zip(&order) {
            vertex_of_switch[switch] = vertex;
        }
        let switches = order.into_iter().map(|switch| switches[switch].clone()).collect();
        let mut plant = Plant {
            links: Vec::new(),
            leaving: vec![Vec::new(); vertex_of_switch.len()],
            arriving: vec![Vec::new(); vertex_of_switch.len()],
            switches,
            nics: Vec::new(),
            vertex_of: HashMap::new(),
        };
        for cable in cables {
            let from = plant.vertex(&cable.from, &vertex_of_switch)?;
            let to = plant.vertex(&cable.to, &vertex_of_switch)?;
            plant.lay(from, to, cable, payload)?;
        }
        Ok(plant)
    }

    fn vertex(&mut self, end: &CableEnd, switches: &[Vertex]) -> Result<Vertex, SimulationError> {
        let port = match *end {
            CableEnd::Switch(index) => return switches.get(index).copied().ok_or(SimulationError::NoSuchSwitch(index)),
            CableEnd::Nic { node, nic } => Port { node: check_links(Some(node))?, nic: check_links(Some(nic))? },
        };
        let next = self.leaving.len() as Vertex;
        let vertex = *self.vertex_of.entry(port).or_insert(next);
        if vertex == next {
            self.nics.push(port);
            self.leaving.push(Vec::new());
            self.arriving.push(Vec::new());
        }
        Ok(vertex)
    }

    /// Lays a cable: parallel links, each in both directions.
    fn lay(&mut self, a: Vertex, b: Vertex, cable: &Cable, payload: f64) -> Result<(), SimulationError> {
        let count = cable.uplinks.count;
        if count == 0 {
            return Err(SimulationError::Zero { of: "parallel links of a cable" });
        }
        check_links(count.checked_mul(2).and_then(|links| links.checked_add(self.links.len())))?;
        let rate = check_rate(cable.uplinks.rate.0 * payload, "a cable")?;
        for (from, to) in [(a, b), (b, a)] {
            for parallel in 0..count as u32 {
                let link = self.links.len() as LinkId;
                self.links.push(Link { from, to, rate, parallel: (count > 1).then_some(parallel) });
                self.leaving[from as usize].push(link);
                self.arriving[to as usize].push(link);
            }
        }
        Ok(())
    }

    pub fn vertices(&self) -> usize {
        self.leaving.len()
    }

    pub fn is_switch(&self, vertex: Vertex) -> bool {
        (vertex as usize) < self.switches.len()
    }

    pub fn nic(&self, port: Port) -> Option<Vertex> {
        self.vertex_of.get(&port).copied()
    }

    fn vertex_name(&self, vertex: Vertex) -> String {
        match self.switches.get(vertex as usize) {
            Some(name) => name.clone(),
            None => self.nics.get(vertex as usize - self.switches.len()).map(Port::to_string).unwrap_or_default(),
        }
    }

    pub fn name(&self, link: LinkId) -> String {
        let Some(link) = self.links.get(link as usize) else { return format!("link {link}") };
        let ends = format!("{} → {}", self.vertex_name(link.from), self.vertex_name(link.to));
        match link.parallel {
            None => ends,
            Some(parallel) => format!("{ends}, link {parallel}"),
        }
    }
}
