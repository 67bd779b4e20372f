//! The flows of a run: which NIC sends how much to which.

mod channels;
mod log;
mod rings;
mod trees;
mod uneven;

pub use channels::{channels_per_nic, streams_per_connection};
pub use rings::crossings;

use crate::Cluster;
pub use crate::cluster::Port;
use crate::simulation::SimulationError;
use busbw_model::Load;
use std::collections::HashMap;
use std::sync::Arc;

/// The flows of a collective between hosts.
///
/// A flow's place in `flows` is what switches know it by: the hash draws by it, not by the numbers of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    pub pattern: Pattern,
    /// One per ordered pair of NICs that exchange data.
    pub flows: Vec<Flow>,
    /// What the busiest GPU sends to other GPUs of its node, per byte of busbw.
    pub gpu_load: f64,
    /// What ranks send each other, where that is an exchange.
    pub load: Option<Arc<Load>>,
    /// What was assumed, a sentence each.
    pub assumptions: Vec<String>,
}

/// How the ranks of a channel pass data on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Around a ring: all collectives of large messages.
    Ring,
    /// Up and down a double binary tree: all_reduce.
    Tree,
    /// From each rank to each: alltoall, alltoallv.
    Exchange,
}

/// What one NIC sends to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    pub from: Port,
    pub to: Port,
    /// Bytes of this flow per byte of busbw: a ring over one of four NICs carries a quarter.
    pub share: f64,
    /// Connections of NCCL's (one per channel) that the flow is made of, all with the same part of it.
    pub connections: u32,
}

impl Traffic {
    /// The most flows that are simulated: a hundred times those of 65,536 GPUs around a ring.
    pub const MAX_FLOWS: usize = 1 << 23;

    /// The same flows with every flow leaving by the NIC on whose rail its receiver is, as rings do that stay on their rail
    /// (NCCL_CROSS_NIC=0): what NCCL is told to do where NICs of different rails are far from each other. A GPU that is not
    /// near that NIC hands its data to one that is (PXN), one hop more over NVLink.
    pub fn on_rails(&self) -> Traffic {
        let mut aligned = Flows::default();
        for flow in &self.flows {
            aligned.add(Flow { from: Port { nic: flow.to.nic, ..flow.from }, ..*flow });
        }
        let moves = self.flows.iter().any(|flow| flow.from.nic != flow.to.nic);
        let mut assumptions = self.assumptions.clone();
        assumptions
            .push("Rings leave a node by the NIC of the rail on which they arrive (NCCL_CROSS_NIC=0).".to_string());
        let gpu_load = if moves { self.gpu_load.max(1.0) } else { self.gpu_load };
        Traffic { pattern: self.pattern, flows: aligned.list, gpu_load, load: self.load.clone(), assumptions }
    }

    /// What NCCL would build in the same pattern on another cluster.
    pub fn rebuilt(&self, cluster: &Cluster) -> Result<Traffic, SimulationError> {
        match (self.pattern, &self.load) {
            (Pattern::Exchange, Some(load)) => {
                // A shape is one for any number of ranks.
                let shape = Load::shape(load.name(), cluster.ranks()).ok().flatten().map(Arc::new);
                Traffic::of_load(shape.as_ref().filter(|_| load.ranks() != cluster.ranks()).unwrap_or(load), cluster)
            }
            (Pattern::Tree, _) => Traffic::trees_of_cluster(cluster),
            (Pattern::Ring | Pattern::Exchange, _) => Traffic::of_cluster(cluster),
        }
    }

    /// The same flows with node `n` put in the place of node `places[n]`: jobs seldom get neighbouring nodes. Nodes beyond
    /// the list stay where they are.
    pub fn placed(&self, places: &[u32]) -> Traffic {
        let place = |port: Port| Port { node: places.get(port.node as usize).copied().unwrap_or(port.node), ..port };
        let flows =
            self.flows.iter().map(|flow| Flow { from: place(flow.from), to: place(flow.to), ..*flow }).collect();
        Traffic { flows, load: self.load.clone(), assumptions: self.assumptions.clone(), ..*self }
    }
}

/// Flows put together, one per pair of NICs, in order of their first appearance.
#[derive(Default)]
struct Flows {
    list: Vec<Flow>,
    found: HashMap<(Port, Port), usize>,
}

impl Flows {
    fn add(&mut self, flow: Flow) {
        match self.found.get(&(flow.from, flow.to)).and_then(|&index| self.list.get_mut(index)) {
            Some(known) => {
                known.share += flow.share;
                known.connections = known.connections.saturating_add(flow.connections);
            }
            None => {
                self.found.insert((flow.from, flow.to), self.list.len());
                self.list.push(flow);
            }
        }
    }
}

/// Refuses more flows than a simulation can hold.
fn check_size(flows: Option<usize>) -> Result<(), SimulationError> {
    match flows {
        Some(flows) if flows <= Traffic::MAX_FLOWS => Ok(()),
        _ => Err(SimulationError::TooManyFlows),
    }
}

/// The NVLink domains of a cluster, which NCCL calls nodes, with their NICs: ring and tree `slot` goes over the NIC `slot`.
struct Domains {
    count: usize,
    /// NICs of a whole domain.
    slots: usize,
    hosts: usize,
    hosts_each: usize,
    nics_each: usize,
}

impl Domains {
    fn of(cluster: &Cluster) -> Result<Self, SimulationError> {
        for (number, of) in [(cluster.nodes, "nodes"), (cluster.gpus_per_node, "GPUs per node")] {
            if number == 0 {
                return Err(SimulationError::Zero { of });
            }
        }
        let hosts_each = cluster.domain_gpus().div_ceil(cluster.gpus_per_node.max(1)).max(1);
        let nics_each = cluster.nics.as_ref().map_or(0, |nics| nics.count);
        let count = cluster.nodes.div_ceil(hosts_each);
        if count > 1 && nics_each == 0 {
            return Err(SimulationError::NoNics);
        }
        Ok(Domains { count, slots: hosts_each.saturating_mul(nics_each), hosts: cluster.nodes, hosts_each, nics_each })
    }

    /// NIC `slot` of domain `domain`. The last domain may have fewer hosts, whose NICs then serve several slots.
    fn port(&self, domain: usize, slot: usize) -> Port {
        let first = domain * self.hosts_each;
        let hosts = self.hosts.saturating_sub(first).clamp(1, self.hosts_each);
        // MAX_FLOWS keeps both far below 2^32.
        Port { node: (first + slot / self.nics_each % hosts) as u32, nic: (slot % self.nics_each) as u32 }
    }
}
