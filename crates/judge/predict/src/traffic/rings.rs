//! The rings that NCCL builds on a described cluster.

use super::channels::channels_per_nic;
use super::{Domains, Flow, Pattern, Traffic, check_size};
use crate::cluster::{Cluster, GpuLinks};
use crate::prediction::Crossing;
use crate::simulation::SimulationError;

impl Traffic {
    /// The rings of a described cluster: one per NIC, through the nodes in order.
    ///
    /// With NCCL_CROSS_NIC=0 a ring enters and leaves every node by the same NIC. Otherwise rings alternate: one that enters
    /// by NIC 0 leaves by NIC 1, and passes the next node the other way round, so that it still crosses on a rail. With
    /// NCCL_CROSS_NIC=1 every node is passed the same way, and rings cross from rail to rail.
    pub fn of_cluster(cluster: &Cluster) -> Result<Traffic, SimulationError> {
        let domains = Domains::of(cluster)?;
        let passing = NodePath::of(cluster, &domains);
        let mut flows = Vec::new();
        if domains.count > 1 {
            check_size(domains.count.checked_mul(domains.slots))?;
            let connections = channels_per_nic(cluster);
            let share = 1.0 / domains.slots as f64;
            for domain in 0..domains.count {
                let next = (domain + 1) % domains.count;
                for ring in 0..domains.slots {
                    let from = domains.port(domain, passing.leaves_by(ring, domain));
                    let to = domains.port(next, passing.enters_by(ring, next));
                    flows.push(Flow { from, to, share, connections });
                }
            }
        }
        let gpu_load = gpu_load(cluster, &domains, passing);
        let assumptions = passing.assumptions(&domains);
        Ok(Traffic { pattern: Pattern::Ring, flows, gpu_load, load: None, assumptions })
    }
}

/// How each ring goes from the first domain to the next.
pub fn crossings(cluster: &Cluster) -> Vec<Crossing> {
    let Ok(domains) = Domains::of(cluster) else { return Vec::new() };
    let passing = NodePath::of(cluster, &domains);
    let ring = |ring| Crossing { leaves_by: passing.leaves_by(ring, 0), enters_by: passing.enters_by(ring, 1) };
    if domains.count > 1 { (0..domains.slots).map(ring).collect() } else { Vec::new() }
}

/// How rings pass a node. Rings are exchanged in pairs, so all but the first way need an even number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodePath {
    /// In and out by the same NIC.
    OneNic,
    /// In by one, out by its neighbour, and the other way round in every second node (`ncclTopoPostset`,
    /// src/graph/connect.cc, since NCCL 2.20).
    Alternating,
    /// In by one, out by its neighbour, in every node.
    Crossing,
}

impl NodePath {
    fn of(cluster: &Cluster, domains: &Domains) -> Self {
        let alternates = cluster.nccl.is_none_or(|version| version >= (2, 20));
        match cluster.variable("NCCL_CROSS_NIC") {
            _ if domains.count <= 1 || !domains.slots.is_multiple_of(2) => NodePath::OneNic,
            Some(0) => NodePath::OneNic,
            Some(1) => NodePath::Crossing,
            // NCCL 2.19 and older tries rings that stay on their NIC first, which evenly placed NICs allow.
            _ if alternates => NodePath::Alternating,
            _ => NodePath::OneNic,
        }
    }

    fn enters_by(self, ring: usize, domain: usize) -> usize {
        if self == NodePath::Alternating && !domain.is_multiple_of(2) { ring ^ 1 } else { ring }
    }

    fn leaves_by(self, ring: usize, domain: usize) -> usize {
        let enters = self.enters_by(ring, domain);
        if self == NodePath::OneNic { enters } else { enters ^ 1 }
    }

    fn assumptions(self, domains: &Domains) -> Vec<String> {
        if domains.count <= 1 {
            return vec!["All ranks reach each other without the network, so nothing is routed.".to_string()];
        }
        let way = match self {
            NodePath::OneNic => "enters and leaves a node by the same NIC",
            NodePath::Alternating => {
                "enters a node by one NIC and leaves it by its neighbour, in turn, so that it stays on a rail"
            }
            NodePath::Crossing => "enters a node by one NIC and leaves it by its neighbour, and so changes rail",
        };
        vec![format!("NCCL builds one ring per NIC through the nodes in order; each {way}.")]
    }
}

/// A ring within a node takes one hop less than there are GPUs where the last GPU sends to the network itself. Where its NIC
/// is near the first GPU alone, it hands the data to that GPU (PXN). Over PCIe, what goes to the NIC takes the same way.
fn gpu_load(cluster: &Cluster, domains: &Domains, passing: NodePath) -> f64 {
    let gpus = cluster.domain_gpus().max(1) as f64;
    match cluster.links {
        GpuLinks::Pcie { .. } | GpuLinks::Single { .. } => 1.0,
        _ if domains.count <= 1 => 1.0,
        _ if passing == NodePath::OneNic && cluster.gpus_per_node <= domains.nics_each && cluster.uses_pxn() => 1.0,
        _ => (gpus - 1.0) / gpus,
    }
}
