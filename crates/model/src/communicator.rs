//! Communicators: their ranks, rings, trees and the edges between ranks.

use crate::cluster::Node;
use crate::host::each_once;
use crate::place::Place;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One communicator, put together from what its ranks logged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Communicator {
    /// `commId` where NCCL prints it (2.17 and later), else a name that is stable for the input: `comm-1`.
    pub id: String,
    /// Number of ranks; `None` when no line says it.
    pub nranks: Option<u32>,
    /// Number of nodes as NCCL says (`nNodes`), else as the hosts of its ranks show.
    pub nnodes: Option<u32>,
    /// `N coll channels`, else the number of channels in its ring lines.
    pub coll_channels: Option<u32>,
    /// `N nvls channels`.
    pub nvls_channels: Option<u32>,
    /// `N p2p channels`.
    pub p2p_channels: Option<u32>,
    /// Ranks that logged something, by rank.
    pub ranks: BTreeMap<u32, Rank>,
    /// Channels by id.
    pub channels: BTreeMap<u16, Channel>,
    /// The places of ranks in the channels' trees, by rank.
    pub trees: Vec<Tree>,
    /// The logged connections, by the rank that logged them.
    pub edges: Vec<Edge>,
    /// The transports; edges refer to them by index.
    pub transports: Vec<Transport>,
    /// Ranks built an NVLS (NVLink SHARP) structure.
    pub nvls: bool,
    /// Ranks connected through CollNet (SHARP in the switch).
    pub collnet: bool,
    /// Where it was first seen.
    pub place: Place,
}

/// One rank of a communicator: one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rank {
    /// Index into [`crate::Run::nodes`].
    pub node: Option<u32>,
    /// Process id.
    pub pid: Option<u64>,
    /// CUDA device index.
    pub device: Option<u32>,
    /// PCI bus id as printed in hexadecimal: `f000`.
    pub bus_id: Option<String>,
    /// How far its init came.
    pub stage: Stage,
    /// The place of its `Init COMPLETE`; none if only a torn line said it.
    pub up: Option<Place>,
    /// The place of the first error that its init returned.
    pub failed: Option<Place>,
    /// The place of `Destroy COMPLETE` or `Abort COMPLETE`: its orderly end.
    pub left: Option<Place>,
    /// It was `Abort COMPLETE`, which a process prints as it exits, after an exception too.
    pub aborted: bool,
}

/// How far a rank came in `ncclCommInitRank` (`src/init.cc`), as its lines show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// It said `Init START`: ranks look for each other over TCP.
    #[default]
    Bootstrap,
    /// It knows the others: it reads the machine and searches for rings and trees.
    Search,
    /// It opens connections.
    Connect,
    /// It said `Init COMPLETE`.
    Up,
}

/// One of NCCL's parallel rings and trees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channel {
    /// The ring in its order, starting at rank 0 as NCCL prints it.
    pub ring: Option<Ring>,
}

/// The ring of a channel: the order of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ring {
    /// Ranks in order; the last sends to the first.
    pub ranks: Vec<u32>,
    /// Whether all ranks are there. NCCL 2.6 to 2.18 print 20 at most; a cut ring is completed from edges if these show it.
    pub complete: bool,
    /// The line.
    pub place: Place,
}

/// A rank's place in the trees of one or more channels: in most, its neighbours are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// The rank, from 0.
    pub rank: u32,
    /// The parent and the children of the rank.
    pub links: TreeLinks,
    /// The channels that have this connection.
    pub channels: ChannelSet,
}

/// A rank's neighbours in a tree: `Trees [0] 1/-1/-1->0->-1` has child 1 and no parent. Four numbers of NCCL's, -1 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLinks {
    parent: i32,
    children: [i32; 3],
}

impl TreeLinks {
    /// Links to a parent and up to three children. Ranks beyond `i32::MAX`, which NCCL cannot have, count as none.
    pub fn new(parent: Option<u32>, children: [Option<u32>; 3]) -> Self {
        let number = |rank: Option<u32>| rank.and_then(|r| i32::try_from(r).ok()).unwrap_or(-1);
        TreeLinks { parent: number(parent), children: children.map(number) }
    }

    /// The parent; none at the root.
    pub fn parent(&self) -> Option<u32> {
        u32::try_from(self.parent).ok()
    }

    /// The children.
    pub fn children(&self) -> impl Iterator<Item = u32> + '_ {
        self.children.iter().filter_map(|rank| u32::try_from(*rank).ok())
    }
}

/// A connection from a rank to a rank, on one or more channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The rank that sends, from 0.
    pub from: u32,
    /// The rank that receives, from 0.
    pub to: u32,
    /// Index into [`Communicator::transports`].
    pub transport: u16,
    /// Which end logged it.
    pub end: EdgeEnd,
    /// Whether it serves a collective (`Channel 00/0`) or send/receive (`Channel 00/1`).
    pub use_: EdgeUse,
    /// The channels that have this connection.
    pub channels: ChannelSet,
}

impl Edge {
    /// The rank that logged it.
    pub fn teller(&self) -> u32 {
        match self.end {
            EdgeEnd::Send => self.from,
            EdgeEnd::Receive => self.to,
        }
    }
}

/// A set of channels. NCCL has 64 at most (`MAXCHANNELS`), RCCL 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ChannelSet([u64; 2]);

impl ChannelSet {
    /// The set of one channel; empty for a channel beyond 127, which no library has.
    #[inline]
    pub fn of(channel: u16) -> Self {
        let mut set = ChannelSet::default();
        if let Some(word) = set.0.get_mut(usize::from(channel / 64)) {
            *word = 1 << (channel % 64);
        }
        set
    }

    /// Adds the channels of another set.
    #[inline]
    pub fn add(&mut self, other: ChannelSet) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Takes the channels of another set out.
    #[inline]
    pub fn remove(&mut self, other: ChannelSet) {
        for (word, less) in self.0.iter_mut().zip(other.0) {
            *word &= !less;
        }
    }

    /// The channels, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0u16..)
            .zip(&self.0)
            .flat_map(|(index, word)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit))
    }

    /// Whether it holds a channel.
    pub fn has(&self, channel: u16) -> bool {
        self.0.get(usize::from(channel / 64)).is_some_and(|word| word >> (channel % 64) & 1 == 1)
    }

    /// Number of channels.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 2]
    }
}

/// Which end of a network connection logged the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeEnd {
    /// `[send]`, or a connection within the node, which the sender logs.
    Send,
    /// `[receive]`.
    Receive,
}

/// What a connection is for: the index after the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeUse {
    /// Connection 0: rings and trees.
    Collective,
    /// Connection 1: send/receive and all-to-all.
    PointToPoint,
}

/// How an edge carries data: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0(2)/GDRDMA/Shared`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    /// The family.
    pub kind: TransportKind,
    /// The text after `via`, as printed but for the rank of a PXN neighbour.
    pub via: String,
    /// `N` of `NET/IB/N`: index of the NIC in NCCL's list.
    pub nic: Option<u32>,
    /// Data goes through a neighbour GPU's NIC (PXN): `NET/IB/0(2)` names the neighbour's rank, which is left out here.
    pub pxn: bool,
    /// `GDRDMA`: the NIC reads and writes GPU memory itself.
    pub gdr: bool,
    /// The first line that names it.
    pub first: Place,
}

/// The family of a transport.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransportKind {
    /// Between GPUs of one node, by NVLink or PCIe. The text names how: `IPC`, `CUMEM`, `direct pointer`.
    P2p(String),
    /// Through host memory of one node.
    Shm,
    /// Over the network. The text is NCCL's name of it: `IB`, `IBext_v8`, `Socket`, `AWS Libfabric`.
    Net(String),
    /// Reduction in the network (SHARP).
    CollNet,
    /// Reduction in the NVSwitch.
    Nvls,
}

impl fmt::Display for TransportKind {
    /// The family under one name for all plugins: `P2P`, `SHM`, `NVLS`, `COLLNET`, `NET/IB` (NCCL's own and the
    /// `IBext` plugins of HPC-X), `NET/Socket`, `NET/OFI` (libfabric); other plugins keep their name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransportKind::P2p(_) => f.pad("P2P"),
            TransportKind::Shm => f.pad("SHM"),
            TransportKind::CollNet => f.pad("COLLNET"),
            TransportKind::Nvls => f.pad("NVLS"),
            TransportKind::Net(name) if name.starts_with("IB") => f.pad("NET/IB"),
            TransportKind::Net(name) if name.contains("Libfabric") || name == "OFI" => f.pad("NET/OFI"),
            TransportKind::Net(name) => f.pad(&format!("NET/{name}")),
        }
    }
}

impl TransportKind {
    /// Whether it leaves the node.
    pub fn is_network(&self) -> bool {
        matches!(self, TransportKind::Net(_) | TransportKind::CollNet)
    }
}

/// Whether network connections use GPUDirect RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GdrUse {
    /// All do.
    All,
    /// None does.
    None,
    /// Some do.
    Mixed,
}

/// An ordered pair of ranks on different nodes that are neighbours in rings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Crossing {
    /// The rank that sends, from 0.
    pub from: u32,
    /// The rank that receives, from 0.
    pub to: u32,
    /// Channels whose ring holds the pair, ascending.
    pub channels: Vec<u16>,
}

impl Ring {
    /// Ordered neighbours, closing pair included when the ring is complete.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        let closing = match (self.complete, self.ranks.last(), self.ranks.first()) {
            (true, Some(last), Some(first)) if self.ranks.len() > 1 => Some((*last, *first)),
            _ => None,
        };
        self.ranks.windows(2).map(|pair| (pair[0], pair[1])).chain(closing)
    }
}

impl Rank {
    /// Whether it said `Init COMPLETE`.
    pub fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }
}

impl Communicator {
    /// Whether a rank says that the communicator is ready (`Init COMPLETE`).
    pub fn came_up(&self) -> bool {
        self.ranks.values().any(Rank::is_up)
    }

    /// Whether every rank logged a connection of its own.
    pub fn all_told(&self) -> bool {
        let told: BTreeSet<u32> = self.edges.iter().map(Edge::teller).collect();
        self.nranks.is_some_and(|nranks| told.len() == nranks as usize)
    }

    /// The families of transports in use, sorted by name, each once.
    pub fn transport_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.transports.iter().map(|t| t.kind.to_string()).collect();
        if self.nvls {
            names.push(TransportKind::Nvls.to_string());
        }
        if self.collnet {
            names.push(TransportKind::CollNet.to_string());
        }
        names.sort();
        names.dedup();
        names
    }

    /// Whether the network connections use GPUDirect RDMA; `None` without network connections.
    pub fn gdr(&self) -> Option<GdrUse> {
        let mut network = self.transports.iter().filter(|t| t.kind.is_network()).map(|t| t.gdr);
        let first = network.next()?;
        Some(match (network.any(|gdr| gdr != first), first) {
            (true, _) => GdrUse::Mixed,
            (false, true) => GdrUse::All,
            (false, false) => GdrUse::None,
        })
    }

    /// The place of each rank in a channel's tree, by rank.
    pub fn tree(&self, channel: u16) -> impl Iterator<Item = (u32, TreeLinks)> + Clone + '_ {
        self.trees.iter().filter(move |tree| tree.channels.has(channel)).map(|tree| (tree.rank, tree.links))
    }

    /// The node of a rank, where known: an index into [`crate::Run::nodes`].
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        self.ranks.get(&rank).and_then(|r| r.node)
    }

    /// The hosts of its ranks, each once, in the order of ranks; `nodes` are the run's.
    pub fn hosts<'a>(&self, nodes: &'a [Node]) -> Vec<&'a str> {
        let nodes = self.ranks.values().filter_map(|rank| nodes.get(rank.node? as usize));
        each_once(nodes.map(|node| node.host.as_str()))
    }

    /// The ordered rank pairs of rings that leave a node, by sender and receiver. Pairs whose nodes are not known are left out.
    pub fn crossings(&self) -> Vec<Crossing> {
        // Only ranks that were seen: a damaged line may name any number as a rank.
        let nodes: Vec<Option<u32>> = (0..self.ranks.len() as u32).map(|rank| self.node_of(rank)).collect();
        let node = |rank| nodes.get(rank as usize).copied().unwrap_or_else(|| self.node_of(rank));
        let mut found: BTreeMap<(u32, u32), Vec<u16>> = BTreeMap::new();
        for (id, channel) in &self.channels {
            let Some(ring) = &channel.ring else { continue };
            for (from, to) in ring.pairs() {
                if let (Some(a), Some(b)) = (node(from), node(to))
                    && a != b
                {
                    let channels = found.entry((from, to)).or_default();
                    if channels.last() != Some(id) {
                        channels.push(*id);
                    }
                }
            }
        }
        found.into_iter().map(|((from, to), channels)| Crossing { from, to, channels }).collect()
    }

    /// Number of rings that were printed.
    pub fn ring_count(&self) -> usize {
        self.channels.values().filter(|c| c.ring.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_nodes_of_two(rings: &[&[u32]]) -> Communicator {
        let mut comm = Communicator { nranks: Some(4), ..Communicator::default() };
        for rank in 0..4 {
            comm.ranks.insert(rank, Rank { node: Some(rank / 2), ..Rank::default() });
        }
        for (id, ranks) in rings.iter().enumerate() {
            let ring = Ring { ranks: ranks.to_vec(), complete: true, place: Place::default() };
            comm.channels.insert(id as u16, Channel { ring: Some(ring) });
        }
        comm
    }

    #[test]
    fn a_ring_over_two_nodes_crosses_twice() {
        let crossings = two_nodes_of_two(&[&[0, 1, 2, 3], &[0, 1, 3, 2]]).crossings();
        let pairs: Vec<_> = crossings.iter().map(|c| (c.from, c.to, c.channels.as_slice())).collect();
        assert_eq!(pairs, [(1, 2, &[0][..]), (1, 3, &[1]), (2, 0, &[1]), (3, 0, &[0])]);
    }

    #[test]
    fn a_damaged_rank_does_not_fill_the_memory() {
        let mut comm = two_nodes_of_two(&[&[0, 1, 2, 3]]);
        comm.ranks.insert(u32::MAX, Rank { node: Some(1), ..Rank::default() });
        assert_eq!(comm.crossings().len(), 2);
    }

    #[test]
    fn channel_sets_hold_what_is_put_in() {
        let mut set = ChannelSet::default();
        for channel in [0, 63, 64, 127, 64, 128] {
            set.add(ChannelSet::of(channel));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 127]);
        assert_eq!((set.len(), set.is_empty()), (4, false));
    }

    #[test]
    fn a_cut_ring_does_not_close() {
        let ring = Ring { ranks: vec![0, 1, 2], complete: false, place: Place::default() };
        assert_eq!(ring.pairs().collect::<Vec<_>>(), [(0, 1), (1, 2)]);
    }

    #[test]
    fn plugins_share_a_name() {
        let name = |plugin: &str| TransportKind::Net(plugin.into()).to_string();
        assert_eq!(name("IBext_v8"), "NET/IB");
        assert_eq!(name("AWS Libfabric"), "NET/OFI");
        assert_eq!(name("Socket"), "NET/Socket");
        assert_eq!(name("FasTrak"), "NET/FasTrak");
    }
}
