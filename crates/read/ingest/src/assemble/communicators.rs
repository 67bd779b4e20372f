//! From groups of views to communicators.

use super::groups::{Group, group};
use super::speakers::Speakers;
use super::views::{View, Views, connection};
use crate::nccl_log::{RingLine, add_tree};
use busbw_model::{ChannelSet, Communicator, Edge, EdgeEnd, EdgeUse, Place, Rank, Ring, Transport};
use rustc_hash::{FxHashMap, FxHashSet};

/// What communicators are put together from.
pub(crate) struct Parts<'a> {
    pub views: Views,
    pub speakers: &'a Speakers,
    /// Every transport of the run; edges refer to it.
    pub transports: &'a [Transport],
    /// The node of each host, by host id.
    pub nodes: &'a [Option<u32>],
}

impl Parts<'_> {
    /// The node that a view's process runs on; `None` where its host's name is torn.
    fn node_of(&self, view: &View) -> Option<u32> {
        self.nodes.get(self.speakers.host_of(view.process) as usize).copied().flatten()
    }
}

/// Puts the communicators together: the largest first, then in order of appearance.
pub(crate) fn assemble(mut parts: Parts) -> Vec<Communicator> {
    let network = |transport: u16| parts.transports.get(transport as usize).is_some_and(|t| t.kind.is_network());
    let (groups, strays) = group(&parts.views, parts.speakers, network, |view| parts.node_of(view).is_some());
    let mut orphans = std::mem::take(&mut parts.views.orphans);
    for view in strays {
        orphans.append(&mut parts.views.all[view].edges);
    }
    let only = groups.len() == 1;
    let mut communicators: Vec<Communicator> =
        groups.into_iter().enumerate().map(|(index, group)| communicator(&mut parts, group, index)).collect();
    if only {
        adopt(&mut communicators[0], &orphans, parts.transports);
        adopt_rings(&mut communicators[0], std::mem::take(&mut parts.views.orphan_rings));
    }
    communicators.sort_by_key(|comm| std::cmp::Reverse(comm.nranks));
    communicators
}

fn communicator(parts: &mut Parts, mut group: Group, index: usize) -> Communicator {
    let id = group.comm_id.map_or_else(|| format!("comm-{}", index + 1), |id| format!("{id:#x}"));
    let mut comm = Communicator { id, ..Communicator::default() };
    let views = &parts.views.all;
    comm.place = group.views.iter().map(|id| views[*id].first).min().unwrap_or_default();
    group.views.sort_by_key(|id| views[*id].own_rank());
    comm.edges.reserve_exact(group.views.iter().map(|id| views[*id].edges.len()).sum());
    comm.trees.reserve_exact(group.views.iter().map(|id| views[*id].trees.len()).sum());
    let mut builder = Builder::for_ranks(group.views.iter().map(|id| &*views[*id]));
    for id in &group.views {
        let view = std::mem::take(&mut *parts.views.all[*id]);
        builder.add(&mut comm, view, parts);
    }
    builder.finish(&mut comm);
    comm
}

/// Edges whose prefix was torn belong to the only communicator there is.
fn adopt(comm: &mut Communicator, orphans: &[Edge], transports: &[Transport]) {
    let nranks = comm.nranks.unwrap_or(u32::MAX);
    let local: FxHashMap<(&str, bool), u16> =
        (0..=u16::MAX).zip(&comm.transports).map(|(i, t)| ((&*t.via, t.pxn), i)).collect();
    let mut adopted: Vec<Edge> = Vec::new();
    let mut index: FxHashMap<_, usize> = FxHashMap::default();
    for edge in orphans.iter().filter(|e| e.from < nranks && e.to < nranks) {
        let transport = transports.get(edge.transport as usize).and_then(|t| local.get(&(&*t.via, t.pxn)));
        let Some(edge) = transport.map(|transport| Edge { transport: *transport, ..*edge }) else { continue };
        match index.get(&connection(&edge)) {
            Some(known) => adopted[*known].channels.add(edge.channels),
            None => {
                index.insert(connection(&edge), adopted.len());
                adopted.push(edge);
            }
        }
    }
    for known in &mut comm.edges {
        if let Some(more) = index.remove(&connection(known)) {
            known.channels.add(adopted[more].channels);
        }
    }
    comm.edges.extend(adopted.into_iter().filter(|edge| index.contains_key(&connection(edge))));
}

/// Rings whose prefix was torn, likewise, where their channel lacks one.
fn adopt_rings(comm: &mut Communicator, orphans: Vec<(RingLine, Place)>) {
    let nranks = comm.nranks.unwrap_or(0);
    for (RingLine { channel, ranks, .. }, place) in orphans {
        if ranks.iter().all(|rank| *rank < nranks) {
            let complete = ranks.len() == nranks as usize;
            comm.channels.entry(channel).or_default().ring.get_or_insert(Ring { ranks, complete, place });
        }
    }
}

/// What is gathered from view to view.
#[derive(Default)]
struct Builder {
    /// The communicator's index of each of the run's transports.
    transports: FxHashMap<u16, u16>,
    nodes: FxHashSet<u32>,
    nranks: u32,
    tree_channels: ChannelSet,
    ring_channels: Option<u32>,
    /// Some ring was cut, so the neighbours below are needed.
    has_cut_ring: bool,
    /// Next rank per channel and rank, as lines of ranks and edges of rings tell.
    next: FxHashMap<(u16, u32), u32>,
    /// Channel and rank with two different next ranks: edges of trees came in.
    ambiguous: FxHashSet<(u16, u32)>,
}

impl Builder {
    fn for_ranks<'v>(views: impl Iterator<Item = &'v View> + Clone) -> Self {
        let nranks = views.clone().map(View::at_least_ranks).max().unwrap_or(0);
        let is_cut = |view: &View| view.rings.iter().any(|(ring, _)| ring.ranks.len() < nranks as usize);
        Builder { nranks, has_cut_ring: views.clone().any(is_cut), ..Builder::default() }
    }

    fn add(&mut self, comm: &mut Communicator, view: View, parts: &Parts) {
        self.nodes.extend(parts.node_of(&view));
        comm.nranks = comm.nranks.or(view.nranks);
        comm.nnodes = comm.nnodes.or(view.nnodes);
        comm.nvls |= view.nvls || view.counts.is_some_and(|c| c.nvls.is_some_and(|n| n > 0));
        comm.collnet |= view.collnet;
        if let Some(counts) = view.counts {
            comm.coll_channels = comm.coll_channels.or(Some(counts.coll));
            comm.nvls_channels = comm.nvls_channels.or(counts.nvls);
            comm.p2p_channels = comm.p2p_channels.or(counts.p2p);
        }
        if let Some(rank) = view.own_rank() {
            comm.ranks.insert(rank, model_rank(&view, parts));
        }
        for tree in &view.trees {
            let of_rank = comm.trees.iter().rposition(|known| known.rank != tree.rank).map_or(0, |other| other + 1);
            add_tree(&mut comm.trees, of_rank, *tree);
            self.tree_channels.add(tree.channels);
        }
        if self.has_cut_ring {
            self.note_ring_neighbours(&view);
        }
        self.add_edges(comm, &view, parts.transports);
        for (line, place) in view.rings {
            self.ring_channels = self.ring_channels.max(line.of.map(u32::from));
            let ring = Ring { ranks: line.ranks, complete: false, place };
            comm.channels.entry(line.channel).or_default().ring.get_or_insert(ring);
        }
    }

    fn note_ring_neighbours(&mut self, view: &View) {
        for link in &view.ring_links {
            self.next.insert((link.channel, link.rank), link.next);
        }
        let ring_edges = &view.edges[..view.ring_edges.unwrap_or(view.edges.len()).min(view.edges.len())];
        for edge in ring_edges.iter().filter(|e| e.use_ == EdgeUse::Collective && e.end == EdgeEnd::Send) {
            for channel in edge.channels.iter() {
                let key = (channel, edge.from);
                if self.next.insert(key, edge.to).is_some_and(|other| other != edge.to) {
                    self.ambiguous.insert(key);
                }
            }
        }
    }

    fn add_edges(&mut self, comm: &mut Communicator, view: &View, transports: &[Transport]) {
        for edge in &view.edges {
            let local = match self.transports.get(&edge.transport) {
                Some(local) => *local,
                None => {
                    let Some(transport) = transports.get(edge.transport as usize) else { continue };
                    let local = comm.transports.len() as u16;
                    comm.transports.push(transport.clone());
                    self.transports.insert(edge.transport, local);
                    local
                }
            };
            comm.edges.push(Edge { transport: local, ..*edge });
        }
    }

    fn finish(self, comm: &mut Communicator) {
        if comm.nranks.is_none() && self.nranks > 0 {
            comm.nranks = Some(self.nranks);
        }
        let nranks = comm.nranks.unwrap_or(0) as usize;
        for channel in self.tree_channels.iter() {
            comm.channels.entry(channel).or_default();
        }
        for (id, channel) in &mut comm.channels {
            if let Some(ring) = &mut channel.ring {
                self.complete_ring(*id, ring, nranks);
            }
        }
        if comm.nnodes.is_none() && comm.ranks.len() == nranks {
            comm.nnodes = Some(self.nodes.len() as u32).filter(|n| *n > 0);
        }
        if comm.coll_channels.is_none() {
            comm.coll_channels = self.ring_channels.or_else(|| self.channels_in_use(comm));
        }
    }

    /// Up to NCCL 2.6 no line counts the channels: those that rings or trees use are the ones.
    fn channels_in_use(&self, comm: &Communicator) -> Option<u32> {
        let structured = comm.channels.len() as u32;
        let collective = comm.edges.iter().filter(|e| e.use_ == EdgeUse::Collective);
        let in_edges = collective.filter_map(|e| e.channels.iter().last()).max().map(|last| u32::from(last) + 1);
        (structured > 0).then_some(structured).or(in_edges)
    }

    /// NCCL 2.6 to 2.18 print 20 ranks of a ring. The rest follows from the neighbours that ranks name.
    fn complete_ring(&self, channel: u16, ring: &mut Ring, nranks: usize) {
        ring.complete = ring.ranks.len() == nranks;
        if ring.complete || ring.ranks.is_empty() {
            return;
        }
        let mut seen: FxHashSet<u32> = ring.ranks.iter().copied().collect();
        let mut ranks = ring.ranks.clone();
        while ranks.len() < nranks {
            let Some(last) = ranks.last() else { return };
            let key = (channel, *last);
            let Some(next) = self.next.get(&key).filter(|_| !self.ambiguous.contains(&key)) else { return };
            if !seen.insert(*next) {
                return;
            }
            ranks.push(*next);
        }
        ring.ranks = ranks;
        ring.complete = true;
    }
}

fn model_rank(view: &View, parts: &Parts) -> Rank {
    Rank {
        node: parts.node_of(view),
        pid: (!view.anonymous).then(|| parts.speakers.pid(view.process)),
        device: view.cuda_dev.or(view.device),
        bus_id: view.bus_id.map(|id| format!("{id:x}")),
        stage: view.stage(),
        failed: view.failed.filter(|_| !view.complete),
        up: view.up,
        left: view.left,
        aborted: view.aborted,
    }
}

/// The first line of each ring, kept as evidence.
pub(crate) fn ring_places(views: &Views) -> Vec<Place> {
    let whole = views.all.iter().flat_map(|view| &view.rings);
    whole.chain(&views.orphan_rings).map(|(_, place)| *place).collect()
}
