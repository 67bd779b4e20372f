//! The double binary trees that NCCL builds on a described cluster.

use super::channels::channels_per_nic;
use super::{Domains, Flow, Flows, Pattern, Traffic, check_size};
use crate::cluster::{Cluster, GpuLinks};
use crate::simulation::SimulationError;

impl Traffic {
    /// The trees of an all_reduce on a described cluster: over each NIC two binary trees through the nodes, each with half of
    /// the data. A node that is inside one tree is at the edge of the other, so that together they load NICs evenly
    /// (`ncclGetDtree`, src/graph/trees.cc of NCCL 2.30).
    pub fn trees_of_cluster(cluster: &Cluster) -> Result<Traffic, SimulationError> {
        let domains = Domains::of(cluster)?;
        let mut flows = Flows::default();
        if domains.count > 1 {
            check_size(domains.count.checked_mul(4).and_then(|edges| edges.checked_mul(domains.slots)))?;
            // Both trees have half of a NIC's channels, which are at least two.
            let connections = channels_per_nic(cluster) / 2;
            let share = message_per_busbw(cluster.ranks()) / (2 * domains.slots) as f64;
            for tree in [Tree::First, Tree::Second] {
                for domain in 0..domains.count {
                    let Some(parent) = tree.parent(domain, domains.count) else { continue };
                    for slot in 0..domains.slots {
                        let (child, parent) = (domains.port(domain, slot), domains.port(parent, slot));
                        flows.add(Flow { from: child, to: parent, share, connections });
                        flows.add(Flow { from: parent, to: child, share, connections });
                    }
                }
            }
        }
        let assumptions = vec![
            "NCCL builds two binary trees per NIC through the nodes in order, which stay on their NIC in every node."
                .to_string(),
        ];
        Ok(Traffic {
            pattern: Pattern::Tree,
            flows: flows.list,
            gpu_load: gpu_load(cluster, &domains),
            load: None,
            assumptions,
        })
    }
}

/// Bytes of an all_reduce's message per byte of busbw: busbw is 2(n-1)/n of what the message's size over time is.
fn message_per_busbw(ranks: usize) -> f64 {
    let ranks = ranks.max(2) as f64;
    ranks / (2.0 * (ranks - 1.0))
}

/// GPUs of a node form a chain: one inside it sends the message up and the result down. The only GPU of a node sends to
/// the network alone.
fn gpu_load(cluster: &Cluster, domains: &Domains) -> f64 {
    let message = message_per_busbw(cluster.ranks());
    match cluster.links {
        GpuLinks::Single { .. } if domains.count <= 2 => message,
        GpuLinks::Pcie { .. } | GpuLinks::Single { .. } => 2.0 * message,
        _ if cluster.domain_gpus() == 1 => 0.0,
        // Of two GPUs one sends up and the other down.
        _ if cluster.domain_gpus() == 2 => message,
        _ => 2.0 * message,
    }
}

/// The two trees of a double binary tree.
#[derive(Debug, Clone, Copy)]
enum Tree {
    First,
    Second,
}

impl Tree {
    /// The parent of a node among `nodes`; none at the root.
    fn parent(self, node: usize, nodes: usize) -> Option<usize> {
        match self {
            Tree::First => binary_parent(node, nodes),
            // The mirror image, or for an odd number the first tree moved on by one node.
            Tree::Second if nodes.is_multiple_of(2) => {
                binary_parent(nodes - 1 - node, nodes).map(|parent| nodes - 1 - parent)
            }
            Tree::Second => binary_parent((node + nodes - 1) % nodes, nodes).map(|parent| (parent + 1) % nodes),
        }
    }
}

/// In a tree that alternates leaves and inner nodes, the parent has the lowest set bit one place higher, or, where there is no
/// such node, not at all.
fn binary_parent(node: usize, nodes: usize) -> Option<usize> {
    let bit = 1usize.checked_shl(node.trailing_zeros()).filter(|_| node > 0)?;
    let without = node ^ bit;
    let parent = without | bit << 1;
    Some(if parent < nodes { parent } else { without })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_those_of_nccl() {
        let parents = |tree: Tree, nodes| (0..nodes).map(|node| tree.parent(node, nodes)).collect::<Vec<_>>();
        // The drawings in NCCL's src/graph/trees.cc: 14 nodes 0-13, and 12 nodes mirrored.
        let of_14 = [8, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12];
        let first = parents(Tree::First, 14);
        assert_eq!(first[0], None);
        assert_eq!(first[1..], of_14[1..].iter().map(|&parent| Some(parent)).collect::<Vec<_>>());
        let second = parents(Tree::Second, 12);
        assert_eq!(second[..4], [Some(1), Some(3), Some(1), Some(11)]);
        assert_eq!((second[7], second[11]), (Some(3), None));
        // 13 nodes moved on by one: 0 is what 12 was.
        let moved = parents(Tree::Second, 13);
        assert_eq!((moved[0], moved[1], moved[9]), (Some(9), None, Some(1)));
    }

    #[test]
    fn every_node_reaches_the_root_and_has_two_children_at_most() {
        for nodes in 1..200 {
            for tree in [Tree::First, Tree::Second] {
                let mut children = vec![0; nodes];
                for node in 0..nodes {
                    let mut at = node;
                    let mut steps = 0;
                    while let Some(parent) = tree.parent(at, nodes) {
                        at = parent;
                        steps += 1;
                        assert!(steps <= 9, "{tree:?} of {nodes}: {node} does not reach the root");
                    }
                    if let Some(parent) = tree.parent(node, nodes) {
                        children[parent] += 1;
                    }
                }
                assert!(children.iter().all(|&count| count <= 2), "{tree:?} of {nodes}: {children:?}");
            }
        }
    }
}
