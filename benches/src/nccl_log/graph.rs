//! The rings and trees of one communicator, as NCCL 2.27 connects them on rail-wired nodes with NVSwitch.

/// The communicator's size and how its rings and trees run. Ranks are numbered node by node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Graph {
    nodes: u32,
    gpus: u32,
    channels: u32,
}

/// One rank's place in one tree: NCCL prints `down/down/down->rank->up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TreeLinks {
    pub up: Option<u32>,
    pub down: [Option<u32>; 3],
}

impl TreeLinks {
    fn add_down(&mut self, rank: u32) {
        if let Some(slot) = self.down.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(rank);
        }
    }
}

/// A node's place in a tree over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct NodeLinks {
    /// The parent, and whether this node is its first (0) or second (1) child.
    up: Option<(u32, usize)>,
    down: [Option<u32>; 2],
}

/// One connection that a rank sets up, and prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    /// Ranks between the two ends: NCCL sets peers up in this order.
    distance: u32,
    pub sends: bool,
    pub channel: u32,
    pub peer: u32,
}

impl Graph {
    pub fn new(nodes: u32, gpus: u32, channels: u32) -> Self {
        Graph { nodes, gpus, channels }
    }

    pub fn ranks(&self) -> u32 {
        self.nodes * self.gpus
    }

    /// The channel whose search result `channel` uses: NCCL doubles the channels that its search found
    /// (`ncclTopoPreset` in `src/graph/connect.cc`), so the second half repeats the first.
    fn searched(&self, channel: u32) -> u32 {
        channel % self.searched_channels()
    }

    fn searched_channels(&self) -> u32 {
        if self.channels.is_multiple_of(2) { self.channels / 2 } else { self.channels }
    }

    /// The two ends of a ring's path through a node. Two channels share them: where one enters, the other leaves.
    fn ring_ends(&self, channel: u32) -> (u32, u32) {
        let first = self.searched(channel) / 2 * 2 % self.gpus;
        (first, (first + 1) % self.gpus)
    }

    /// Even and odd nodes run a path in opposite directions, so that a ring stays on one rail when it leaves a node
    /// ("Alternate rings to avoid crossing rails" in `src/graph/connect.cc`).
    fn runs_down(&self, channel: u32, node: u32) -> bool {
        (self.searched(channel) + node).is_multiple_of(2)
    }

    /// The local rank at `step` of a ring's path through `node`.
    fn local_at(&self, channel: u32, node: u32, step: u32) -> u32 {
        let (first, last) = self.ring_ends(channel);
        if self.runs_down(channel, node) { (first + self.gpus - step) % self.gpus } else { (last + step) % self.gpus }
    }

    /// The step at which a ring's path through `node` reaches a local rank.
    fn step_of(&self, channel: u32, node: u32, local: u32) -> u32 {
        let (first, last) = self.ring_ends(channel);
        if self.runs_down(channel, node) {
            (first + self.gpus - local) % self.gpus
        } else {
            (local + self.gpus - last) % self.gpus
        }
    }

    /// The rank after `rank` in the channel's ring.
    pub fn ring_next(&self, channel: u32, rank: u32) -> u32 {
        let (node, local) = (rank / self.gpus, rank % self.gpus);
        let step = self.step_of(channel, node, local) + 1;
        let (node, step) = if step < self.gpus { (node, step) } else { ((node + 1) % self.nodes, 0) };
        node * self.gpus + self.local_at(channel, node, step)
    }

    /// The rank before `rank` in the channel's ring.
    pub fn ring_previous(&self, channel: u32, rank: u32) -> u32 {
        let (node, local) = (rank / self.gpus, rank % self.gpus);
        let (node, step) = match self.step_of(channel, node, local) {
            0 => ((node + self.nodes - 1) % self.nodes, self.gpus - 1),
            step => (node, step - 1),
        };
        node * self.gpus + self.local_at(channel, node, step)
    }

    /// One rank's links in the channel's tree: a chain inside the node, a double binary tree between the nodes
    /// (NCCL_TOPO_PATTERN_BALANCED_TREE: a node's first GPU talks to its parent and second child, the second GPU to
    /// its first child).
    pub fn tree(&self, channel: u32, rank: u32) -> TreeLinks {
        let (node, local) = (rank / self.gpus, rank % self.gpus);
        let start = self.searched(channel) % self.gpus;
        let chain_rank = |node: u32, index: u32| node * self.gpus + (start + index) % self.gpus;
        let index = (local + self.gpus - start) % self.gpus;
        let child_index = [1 % self.gpus, 0];

        let mut links = TreeLinks::default();
        if index + 1 < self.gpus {
            links.add_down(chain_rank(node, index + 1));
        }
        if index > 0 {
            links.up = Some(chain_rank(node, index - 1));
        }
        let is_second_tree = channel >= self.searched_channels();
        let node_links = if is_second_tree { second_tree(self.nodes, node) } else { first_tree(self.nodes, node) };
        if let (0, Some((parent, child))) = (index, node_links.up) {
            links.up = Some(chain_rank(parent, child_index[child]));
        }
        for (child, child_node) in node_links.down.into_iter().enumerate() {
            if let (true, Some(child_node)) = (index == child_index[child], child_node) {
                links.add_down(chain_rank(child_node, 0));
            }
        }
        links
    }

    /// The connections that `rank` sets up for all rings, in NCCL's order.
    pub fn ring_links(&self, rank: u32, links: &mut Vec<Link>) {
        links.clear();
        for channel in 0..self.channels {
            self.push_link(links, rank, channel, self.ring_previous(channel, rank), false);
            self.push_link(links, rank, channel, self.ring_next(channel, rank), true);
        }
        links.sort_unstable();
    }

    /// The connections that `rank` sets up for all trees. Those that a ring of the channel made are not made again.
    pub fn tree_links(&self, rank: u32, links: &mut Vec<Link>) {
        links.clear();
        for channel in 0..self.channels {
            let (previous, next) = (self.ring_previous(channel, rank), self.ring_next(channel, rank));
            let tree = self.tree(channel, rank);
            for peer in tree.down.into_iter().chain([tree.up]).flatten() {
                if peer != previous {
                    self.push_link(links, rank, channel, peer, false);
                }
                if peer != next {
                    self.push_link(links, rank, channel, peer, true);
                }
            }
        }
        links.sort_unstable();
    }

    fn push_link(&self, links: &mut Vec<Link>, rank: u32, channel: u32, peer: u32, sends: bool) {
        if peer != rank {
            let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
            links.push(Link { distance: (to + self.ranks() - from) % self.ranks(), sends, channel, peer });
        }
    }
}

/// The binary tree over nodes that NCCL builds, with its property stated: node 0 is the root, a node's height is the number
/// of zero bits at its end, its children stand half its step to either side, and a child that would lie beyond the
/// last node is replaced by the nearest lower one that does not.
fn first_tree(nodes: u32, node: u32) -> NodeLinks {
    let highest_below = |height: u32| (0..height).rev().map(|h| node + (1 << h)).find(|child| *child < nodes);
    if node == 0 {
        return NodeLinks { up: None, down: [None, highest_below(u32::BITS - 1)] };
    }
    let height = node.trailing_zeros();
    let step = 1 << height;
    let is_right_child = node >> (height + 1) & 1 == 1;
    let up = if is_right_child || node + step >= nodes { node - step } else { node + step };
    let left = (height > 0).then(|| node - step / 2);
    NodeLinks { up: Some((up, usize::from(node > up))), down: [left, highest_below(height)] }
}

/// NCCL's second tree: the first one mirrored (even number of nodes) or shifted by one (odd), so that a leaf of one is an
/// inner node of the other.
fn second_tree(nodes: u32, node: u32) -> NodeLinks {
    let rename = |other: u32| if nodes.is_multiple_of(2) { nodes - 1 - other } else { (other + 1) % nodes };
    let same = if nodes.is_multiple_of(2) { nodes - 1 - node } else { (node + nodes - 1) % nodes };
    let links = first_tree(nodes, same);
    NodeLinks { up: links.up.map(|(up, child)| (rename(up), child)), down: links.down.map(|down| down.map(rename)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [(u32, u32, u32); 9] =
        [(1, 8, 4), (2, 8, 16), (3, 8, 32), (5, 4, 8), (64, 8, 32), (7, 1, 2), (4, 3, 5), (2, 1, 1), (13, 2, 12)];

    fn graphs() -> impl Iterator<Item = Graph> {
        SHAPES.into_iter().map(|(nodes, gpus, channels)| Graph::new(nodes, gpus, channels))
    }

    #[test]
    fn every_ring_visits_every_rank_once() {
        for graph in graphs() {
            for channel in 0..graph.channels {
                let mut visited = vec![false; graph.ranks() as usize];
                let mut rank = 0;
                for _ in 0..graph.ranks() {
                    assert!(!std::mem::replace(&mut visited[rank as usize], true), "{graph:?} channel {channel}");
                    let next = graph.ring_next(channel, rank);
                    assert_eq!(graph.ring_previous(channel, next), rank, "{graph:?} channel {channel}");
                    rank = next;
                }
                assert_eq!(rank, 0, "{graph:?} channel {channel} does not close");
            }
        }
    }

    #[test]
    fn a_ring_stays_on_one_rail_when_the_nodes_are_even() {
        let graph = Graph::new(64, 8, 32);
        for channel in 0..32 {
            for rank in 0..graph.ranks() {
                let next = graph.ring_next(channel, rank);
                assert!(next / 8 == rank / 8 || next % 8 == rank % 8, "channel {channel}: {rank} -> {next}");
            }
        }
    }

    #[test]
    fn every_tree_reaches_every_rank_from_one_root() {
        for graph in graphs() {
            for channel in 0..graph.channels {
                let roots: Vec<u32> =
                    (0..graph.ranks()).filter(|&rank| graph.tree(channel, rank).up.is_none()).collect();
                assert_eq!(roots.len(), 1, "{graph:?} channel {channel}");
                let mut reached = roots.clone();
                let mut next = 0;
                while next < reached.len() {
                    for child in graph.tree(channel, reached[next]).down.into_iter().flatten() {
                        assert_eq!(graph.tree(channel, child).up, Some(reached[next]), "{graph:?} channel {channel}");
                        reached.push(child);
                    }
                    next += 1;
                }
                assert_eq!(reached.len() as u32, graph.ranks(), "{graph:?} channel {channel}");
            }
        }
    }

    #[test]
    fn trees_over_nodes_are_those_drawn_in_nccls_source() {
        // The drawing above ncclGetBtree, 14 nodes.
        let parents = [8, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12];
        for node in 1..14 {
            assert_eq!(first_tree(14, node).up.map(|(up, _)| up), Some(parents[node as usize]), "node {node}");
        }
        assert_eq!(first_tree(14, 0), NodeLinks { up: None, down: [None, Some(8)] });
        // The drawings above ncclGetDtree: mirrored with 12 nodes, shifted with 13.
        assert_eq!(second_tree(12, 3).up.map(|(up, _)| up), Some(11));
        assert_eq!(second_tree(12, 7).down, [Some(9), Some(5)]);
        assert_eq!(second_tree(13, 9).down, [Some(5), Some(0)]);
    }
}
