//! Which views belong to one communicator.
//!
//! NCCL 2.17 and later print a `commId` that all ranks share. `ncclCommSplit` prints parent, count and color instead.
//! Before that there is only the number of ranks, the rank, and what a process can be: no process (and GPU) holds two
//! ranks of a communicator.
//!
//! Lines that ran into each other leave views that never say how large their communicator is. Where other views do, such
//! a view joins a communicator that lacks its rank.

use super::speakers::{HostId, ProcessId, Speakers};
use super::views::{View, ViewId, Views};
use crate::nccl_log::Split;
use rustc_hash::{FxHashMap, FxHashSet};

/// How many groups a view without a size is compared with.
const MOST_HELD: usize = 1024;

/// Views of one communicator.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub views: Vec<ViewId>,
    pub comm_id: Option<u64>,
    /// What its first view says of the communicator.
    kind: Kind,
    ranks: FxHashSet<u32>,
    processes: FxHashSet<Gpu>,
    hosts: FxHashSet<HostId>,
}

/// A process and its GPU: what holds one rank of a communicator at most.
type Gpu = (ProcessId, Option<u32>);

/// What views of one communicator share where it has no id: the number of ranks, and where it was split from.
type Kind = (Option<u32>, Option<Split>);

/// Groups of a kind without an id, in order of appearance.
#[derive(Default)]
struct GroupsOfKind {
    groups: Vec<usize>,
    /// How many of the first groups have a rank each, and a GPU. They will not take it again, and need not be looked at.
    with_rank: FxHashMap<u32, usize>,
    with_gpu: FxHashMap<Gpu, usize>,
}

impl GroupsOfKind {
    /// The first group that lacks the rank and the GPU.
    fn lacking(&mut self, all: &[Group], (rank, gpu): (Option<u32>, Gpu)) -> Option<usize> {
        let has_rank = |index: &usize| rank.is_some_and(|rank| all[*index].ranks.contains(&rank));
        let has_gpu = |index: &usize| all[*index].processes.contains(&gpu);
        let by_gpu = self.with_gpu.entry(gpu).or_default();
        *by_gpu += self.groups[*by_gpu..].iter().take_while(|index| has_gpu(index)).count();
        let by_rank = rank.map_or(0, |rank| {
            let by_rank = self.with_rank.entry(rank).or_default();
            *by_rank += self.groups[*by_rank..].iter().take_while(|index| has_rank(index)).count();
            *by_rank
        });
        let rest = &self.groups[by_rank.max(*by_gpu)..];
        rest.iter().find(|index| !has_rank(index) && !has_gpu(index)).copied()
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    CommId(u64, Option<u32>),
    Split { parent: usize, count: u64, color: i64 },
}

/// Groups all views, in order of appearance. `network` tells transports that leave the node. Views that are no more than
/// connections of nobody knows whom come back apart from the groups, unless they come from a real host (`is_real`) that no
/// named communicator has: then they are what is left of another one.
pub(crate) fn group(
    views: &Views,
    speakers: &Speakers,
    network: impl Fn(u16) -> bool,
    is_real: impl Fn(&View) -> bool,
) -> (Vec<Group>, Vec<ViewId>) {
    let mut grouping = Grouping::new(views, speakers, network);
    let speaking = || views.all.iter().enumerate().filter(|(_, view)| view.says_something());
    let any_named = speaking().any(|(_, view)| view.is_named());
    for (id, view) in speaking().filter(|(_, view)| !any_named || view.is_named()) {
        grouping.place(id, view);
    }
    let host = |view: &View| speakers.host_of(view.process);
    let known_hosts: FxHashSet<_> =
        speaking().filter(|(_, view)| view.is_named()).map(|(_, view)| host(view)).collect();
    let mut strays = Vec::new();
    for (id, view) in speaking().filter(|(_, view)| any_named && !view.is_named()) {
        let of_another_job = is_real(view) && !known_hosts.contains(&host(view));
        match grouping.lacking(view).filter(|_| !of_another_job) {
            Some(index) => grouping.put(index, id, view),
            None if view.has_structure() || of_another_job => grouping.place(id, view),
            None => strays.push(id),
        }
    }
    (grouping.groups, strays)
}

impl View {
    /// A view that was opened and never filled is no rank of anything.
    fn says_something(&self) -> bool {
        self.rank.is_some()
            || !self.rings.is_empty()
            || !self.trees.is_empty()
            || !self.edges.is_empty()
            || !self.ring_links.is_empty()
    }

    /// Whether a line says how many ranks its communicator has.
    fn is_named(&self) -> bool {
        self.nranks.is_some()
    }

    /// Rings or trees: what a rank prints once for each communicator.
    fn has_structure(&self) -> bool {
        !self.rings.is_empty() || !self.trees.is_empty() || !self.ring_links.is_empty()
    }

    /// The number of ranks as far as the view shows: a nameless view knows the ranks of its rings and edges.
    pub fn at_least_ranks(&self) -> u32 {
        self.nranks.unwrap_or_else(|| {
            let in_rings = self.rings.iter().map(|(ring, _)| ring.ranks.len() as u32).max().unwrap_or(0);
            let in_edges = self.edges.iter().map(|e| e.from.max(e.to).saturating_add(1)).max().unwrap_or(0);
            let in_trees = self.trees.iter().map(|t| t.rank.saturating_add(1)).max().unwrap_or(0);
            in_rings.max(in_edges).max(in_trees)
        })
    }
}

struct Grouping<'a> {
    speakers: &'a Speakers,
    groups: Vec<Group>,
    by_key: FxHashMap<Key, usize>,
    by_address: FxHashMap<(ProcessId, u64), usize>,
    /// Those without an id: all of a kind, and those of a kind that have a host.
    shelves: FxHashMap<(Kind, Option<HostId>), GroupsOfKind>,
    /// Numbers of ranks of nameless communicators that have network connections.
    crossing_sizes: FxHashSet<u32>,
    gpus_on_host: FxHashMap<HostId, FxHashSet<Gpu>>,
}

impl<'a> Grouping<'a> {
    fn new(views: &'a Views, speakers: &'a Speakers, network: impl Fn(u16) -> bool) -> Self {
        let mut crossing_sizes = FxHashSet::default();
        let mut gpus_on_host: FxHashMap<HostId, FxHashSet<_>> = FxHashMap::default();
        for view in &views.all {
            gpus_on_host.entry(speakers.host_of(view.process)).or_default().insert((view.process, view.device));
            if view.comm_id.is_none() && view.edges.iter().any(|e| network(e.transport)) {
                crossing_sizes.extend(view.nranks);
            }
        }
        let (groups, by_key, by_address, shelves) = Default::default();
        Grouping { speakers, groups, by_key, by_address, shelves, crossing_sizes, gpus_on_host }
    }

    fn place(&mut self, id: ViewId, view: &View) {
        let index = match self.key(view) {
            Some(key) => *self.by_key.entry(key).or_insert(self.groups.len()),
            None => self.first_open(view).unwrap_or(self.groups.len()),
        };
        if index == self.groups.len() {
            let (comm_id, kind) = (view.comm_id, (view.nranks, view.split));
            self.groups.push(Group { comm_id, kind, ..Group::default() });
            if comm_id.is_none() {
                self.shelves.entry((kind, None)).or_default().groups.push(index);
            }
        }
        self.put(index, id, view);
    }

    fn put(&mut self, index: usize, id: ViewId, view: &View) {
        let host = self.speakers.host_of(view.process);
        let group = &mut self.groups[index];
        group.views.push(id);
        group.ranks.extend(view.own_rank());
        group.processes.insert((view.process, view.device));
        if group.hosts.insert(host) && group.comm_id.is_none() {
            self.shelves.entry((group.kind, Some(host))).or_default().groups.push(index);
        }
        if let Some(address) = view.address {
            self.by_address.insert((view.process, address), index);
        }
    }

    fn key(&self, view: &View) -> Option<Key> {
        if let Some(id) = view.comm_id {
            return Some(Key::CommId(id, view.nranks));
        }
        let Split { parent, count, color } = view.split?;
        let parent = *self.by_address.get(&(view.process, parent))?;
        Some(Key::Split { parent, count, color })
    }

    /// Without an id: the first group of as many ranks that lacks this rank and this process. Communicators that stay
    /// within a node are distinguished by their host.
    fn first_open(&mut self, view: &View) -> Option<usize> {
        let host = self.speakers.host_of(view.process);
        let gpus = self.gpus_on_host.get(&host).map_or(0, FxHashSet::len);
        let local = view.nranks.is_some_and(|n| n as usize <= gpus && !self.crossing_sizes.contains(&n));
        let shelf = self.shelves.get_mut(&((view.nranks, view.split), local.then_some(host)))?;
        shelf.lacking(&self.groups, (view.own_rank(), (view.process, view.device)))
    }

    /// The first group that a view without a size may be a rank of.
    fn lacking(&self, view: &View) -> Option<usize> {
        let rank = view.own_rank()?;
        self.groups.iter().take(MOST_HELD).position(|group| {
            let (nranks, _) = group.kind;
            nranks.is_some_and(|n| view.at_least_ranks() <= n)
                && !group.ranks.contains(&rank)
                && !group.processes.contains(&(view.process, view.device))
        })
    }
}

#[cfg(test)]
mod tests {
    /// Lines of Cori: rank 0's line ends inside its prefix, and the rest comes behind a label of srun's.
    #[test]
    fn a_ring_whose_prefix_was_cut_is_a_ring() {
        let log = " 0: cgpu08:14057:14582 [0] NCCL INFO Channel 00 :    0   1\n 0: cgpu08:14057:14582 [0] NC\n \
                   0: CL INFO Channel 01 :    0   1\n 0: cgpu08:14057:14582 [0] NCCL INFO comm 0x2aab rank 0 nranks 2 cudaDev 0 \
                   nvmlDev 0 - Init COMPLETE\n";
        let run = crate::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        assert_eq!(run.communicators.iter().map(|c| (c.nranks, c.ring_count())).collect::<Vec<_>>(), [(Some(2), 2)]);
    }

    /// Lines of Polaris, where ranks write over each other: a name or a process id that lost its middle speaks of one
    /// connection and is no communicator of its own.
    #[test]
    fn torn_lines_make_no_communicator() {
        let whole = |rank: u32, host: &str, pid: u32| {
            let peer = (rank + 1) % 2;
            format!(
                "{host}:{pid}:{pid} [{rank}] NCCL INFO comm 0x9c{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 46000 commId 0xf15 - Init START\n\
                 {host}:{pid}:{pid} [{rank}] NCCL INFO Trees [0] -1/-1/-1->{rank}->{peer}\n\
                 {host}:{pid}:{pid} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {peer}[{peer}] via P2P/CUMEM/read\n\
                 {host}:{pid}:{pid} [{rank}] NCCL INFO comm 0x9c{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 46000 commId 0xf15 - Init COMPLETE\n"
            )
        };
        let torn = [
            "x3001c0s25b0n0:3839:3839891 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n",
            "n0:3839891:3839891 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n",
        ];
        let log = [whole(0, "x3001c0s25b0n0", 3839891), whole(1, "x3001c0s25b1n0", 3846764), torn.concat()].concat();
        let run = crate::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let sizes: Vec<_> = run.communicators.iter().map(|c| (c.nranks, c.ranks.len())).collect();
        assert_eq!(sizes, [(Some(2), 2)]);
        let hosts: Vec<_> = run.nodes.iter().map(|n| n.host.as_str()).collect();
        assert_eq!(hosts, ["x3001c0s25b0n0", "x3001c0s25b1n0"]);
    }
}
