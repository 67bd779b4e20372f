//! What each rank says about a communicator: a view per rank, from which communicators are put together.

use super::speakers::{ProcessId, SpeakerId, Speakers};
use crate::facts::NOBODY;
use crate::nccl_log::{ChannelCounts, InitLine, InitPhase, RingLine, RingLink, SizesLine, Split, add_tree};
use busbw_model::{Edge, EdgeEnd, EdgeUse, Place, Stage, Tree};
use rustc_hash::FxHashMap;

/// Index into [`Views::all`].
pub(crate) type ViewId = usize;

/// One rank's view of one communicator.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub process: ProcessId,
    /// The GPU of the thread that spoke.
    pub device: Option<u32>,
    /// The communicator's address in the process.
    pub address: Option<u64>,
    pub rank: Option<u32>,
    pub nranks: Option<u32>,
    pub nnodes: Option<u32>,
    pub cuda_dev: Option<u32>,
    pub bus_id: Option<u64>,
    pub comm_id: Option<u64>,
    pub split: Option<Split>,
    pub complete: bool,
    /// Where it came up, and where it was left.
    pub up: Option<Place>,
    pub left: Option<Place>,
    /// By `Abort COMPLETE`.
    pub aborted: bool,
    /// Where the first error that NCCL returned before it came up stands.
    pub failed: Option<Place>,
    /// It knows the other ranks.
    pub met: bool,
    pub rings: Vec<(RingLine, Place)>,
    pub ring_links: Vec<RingLink>,
    pub trees: Vec<Tree>,
    pub edges: Vec<Edge>,
    /// How many of `edges` were there when the rings were connected; what follows belongs to trees.
    pub ring_edges: Option<usize>,
    pub counts: Option<ChannelCounts>,
    pub nvls: bool,
    pub collnet: bool,
    pub first: Place,
    /// No line names the process: it is made up, to tell it from others.
    pub anonymous: bool,
    /// How many edges to merge at.
    pub merge_at: usize,
}

impl View {
    /// The rank itself, where any line says it.
    pub fn own_rank(&self) -> Option<u32> {
        self.rank.or_else(|| self.trees.first().map(|t| t.rank)).or_else(|| self.edges.first().map(Edge::teller))
    }

    pub fn stage(&self) -> Stage {
        match self {
            view if view.complete => Stage::Up,
            view if !view.edges.is_empty() => Stage::Connect,
            view if view.met || view.nnodes.is_some() || !view.trees.is_empty() || !view.rings.is_empty() => {
                Stage::Search
            }
            _ => Stage::Bootstrap,
        }
    }

    fn has_ring(&self, channel: u16) -> bool {
        self.rings.iter().any(|(ring, _)| ring.channel == channel)
    }

    /// Keeps an edge: with the edges to the same rank, which differ in the channel, where they were logged lately. Edges of
    /// trees stay apart from those of rings.
    pub(super) fn push_edge(&mut self, edge: Edge) {
        const LATELY: usize = 16;
        let ring_edges = self.ring_edges.unwrap_or(0);
        let from = ring_edges.max(self.edges.len().saturating_sub(LATELY));
        match self.edges[from..].iter_mut().rev().find(|known| connection(known) == connection(&edge)) {
            Some(known) => known.channels.add(edge.channels),
            None => {
                self.edges.push(edge);
                if self.edges.len() - ring_edges >= self.merge_at.max(4096) {
                    self.merge_edges(ring_edges);
                }
            }
        }
    }

    /// A log that repeats itself must not grow the view.
    fn merge_edges(&mut self, ring_edges: usize) {
        let mut edges = self.edges.split_off(ring_edges);
        edges.sort_unstable();
        edges.dedup_by(|edge, kept| {
            let same = connection(edge) == connection(kept);
            if same {
                kept.channels.add(edge.channels);
            }
            same
        });
        self.merge_at = 2 * edges.len();
        self.edges.append(&mut edges);
    }
}

/// What of an edge is not its channels.
pub(crate) fn connection(edge: &Edge) -> (u32, u32, u16, EdgeEnd, EdgeUse) {
    (edge.from, edge.to, edge.transport, edge.end, edge.use_)
}

/// Who is who, and where the line stands.
pub(crate) type At<'a> = (&'a Speakers, Place);

/// All views, by process and thread.
#[derive(Default)]
pub(crate) struct Views {
    #[allow(clippy::vec_box, reason = "a log has many, large ones, which a growing vector would copy")]
    pub all: Vec<Box<View>>,
    of_process: FxHashMap<ProcessId, Vec<ViewId>>,
    /// The view that said last where in the process its communicator lies.
    at_address: FxHashMap<(ProcessId, u64), ViewId>,
    /// The view that said last where its communicator lies and which rank it is.
    at_rank: FxHashMap<(u64, u32), ViewId>,
    /// The view that each speaker spoke of last, by speaker.
    current: Vec<Option<ViewId>>,
    /// Edges whose prefix was torn.
    pub orphans: Vec<Edge>,
    /// Rings whose prefix was torn.
    pub orphan_rings: Vec<(RingLine, Place)>,
}

/// More torn edges than this add nothing new.
const MOST_ORPHANS: usize = 10_000;
/// How many of a process's views an edge without a communicator is compared with, the newest first.
const MOST_HELD: usize = 1024;

impl Views {
    fn open(&mut self, speaker: SpeakerId, speakers: &Speakers, first: Place) -> ViewId {
        let known = speakers.get(speaker);
        let id = self.all.len();
        self.all.push(Box::new(View { process: known.process, device: known.device, first, ..View::default() }));
        self.of_process.entry(known.process).or_default().push(id);
        self.set_current(speaker, id);
        id
    }

    fn current(&self, speaker: SpeakerId) -> Option<ViewId> {
        self.current.get(speaker as usize).copied().flatten()
    }

    fn set_current(&mut self, speaker: SpeakerId, id: ViewId) {
        let index = speaker as usize;
        if self.current.len() <= index {
            self.current.resize(index + 1, None);
        }
        self.current[index] = Some(id);
    }

    /// The view a thread is building, unless it stands already.
    fn building(&self, speaker: SpeakerId) -> Option<ViewId> {
        self.current(speaker).filter(|id| !self.all[*id].complete)
    }

    fn by_address(&self, process: ProcessId, address: u64) -> Option<ViewId> {
        self.at_address.get(&(process, address)).copied()
    }

    /// Notes what a view says of itself, to be found by it.
    fn named(&mut self, id: ViewId, (comm, rank): (u64, u32)) {
        self.at_address.insert((self.all[id].process, comm), id);
        self.at_rank.insert((comm, rank), id);
    }

    pub fn init(&mut self, speaker: SpeakerId, line: &InitLine, (speakers, place): At) {
        let process = speakers.get(speaker).process;
        let known = self.by_address(process, line.comm);
        if matches!(line.phase, InitPhase::Left | InitPhase::Aborted) {
            if let Some(id) = known {
                self.all[id].left = Some(place);
                self.all[id].aborted = line.phase == InitPhase::Aborted;
            }
            return;
        }
        let known = known.filter(|id| match line.phase {
            InitPhase::Start | InitPhase::Left | InitPhase::Aborted => false,
            InitPhase::Complete => !self.all[*id].complete && self.all[*id].rank.is_none_or(|rank| rank == line.rank),
        });
        let nameless = || {
            let id = self.building(speaker)?;
            let view = &self.all[id];
            (view.address.is_none() && view.own_rank().is_none_or(|rank| rank == line.rank)).then_some(id)
        };
        let nameless = if line.phase == InitPhase::Complete { nameless() } else { None };
        let id = known.or(nameless).unwrap_or_else(|| self.open(speaker, speakers, place));
        self.all[id].apply(line);
        if line.phase == InitPhase::Complete {
            self.all[id].up = Some(place);
        }
        self.named(id, (line.comm, line.rank));
    }

    /// An Init COMPLETE whose prefix was torn: the communicator's address and rank tell the view.
    pub fn orphan_init(&mut self, line: &InitLine) {
        let known = self.at_rank.get(&(line.comm, line.rank)).map(|id| &mut self.all[*id]);
        if let Some(view) = known.filter(|view| !view.complete && line.phase != InitPhase::Left) {
            view.apply(line);
        }
    }

    /// The view that lines of the communicator's structure belong to, opened if need be. `starts_anew`: the view has such a line already.
    fn structure(&mut self, speaker: SpeakerId, at: At, starts_anew: impl Fn(&View) -> bool) -> ViewId {
        match self.building(speaker).filter(|id| !starts_anew(&self.all[*id])) {
            Some(id) => id,
            None => self.open(speaker, at.0, at.1),
        }
    }

    pub fn ring(&mut self, speaker: SpeakerId, line: RingLine, at: At) {
        let channel = line.channel;
        let id = self.structure(speaker, at, |view| view.has_ring(channel));
        self.all[id].rings.push((line, at.1));
    }

    pub fn ring_link(&mut self, speaker: SpeakerId, link: RingLink, at: At) {
        let id = self.structure(speaker, at, |_| false);
        self.all[id].ring_links.push(link);
    }

    pub fn trees(&mut self, speaker: SpeakerId, trees: Vec<Tree>, at: At) {
        let Some(Tree { rank, channels, .. }) = trees.first().copied() else { return };
        let id = self.structure(speaker, at, |view| {
            let others = |tree: &Tree| tree.rank != rank && channels.iter().any(|channel| tree.channels.has(channel));
            view.rank.is_some_and(|own| own != rank) || view.trees.iter().any(others)
        });
        self.all[id].stand(trees);
    }

    pub fn sizes(&mut self, speaker: SpeakerId, line: &SizesLine, at: At) {
        let process = at.0.get(speaker).process;
        let known = self.by_address(process, line.comm);
        let id = known.unwrap_or_else(|| self.structure(speaker, at, |view| view.address.is_some()));
        self.all[id].size(line);
        self.named(id, (line.comm, line.rank));
    }

    /// The view that a statement without a name belongs to: the one being built, else the last one.
    pub fn latest(&mut self, speaker: SpeakerId, speakers: &Speakers) -> Option<&mut View> {
        let process = speakers.get(speaker).process;
        let id = self.current(speaker).or_else(|| self.of_process.get(&process)?.last().copied())?;
        self.all.get_mut(id).map(Box::as_mut)
    }

    /// The view whose init is under way, for statements that do not name it.
    pub fn rising(&mut self, speaker: SpeakerId, speakers: &Speakers) -> Option<&mut View> {
        if speaker == NOBODY {
            return None;
        }
        self.latest(speaker, speakers).filter(|view| view.rank.is_some() && !view.complete)
    }

    pub fn nvls(&mut self, speaker: SpeakerId, address: Option<u64>, speakers: &Speakers) {
        let process = speakers.get(speaker).process;
        match address.and_then(|address| self.by_address(process, address)) {
            Some(id) => self.all[id].nvls = true,
            None => {
                if let Some(view) = self.latest(speaker, speakers) {
                    view.nvls = true;
                }
            }
        }
    }

    /// A connection. NCCL 2.22 and later connect when the first collective runs, from a thread of its own, after Init
    /// COMPLETE; send/receive connections always do. Such edges go to the process's view that they fit.
    pub fn edge(
        &mut self,
        speaker: SpeakerId,
        edge: Edge,
        (address, network): (Option<u64>, bool),
        (speakers, place): At,
    ) {
        let process = speakers.get(speaker).process;
        let id = address
            .and_then(|address| self.by_address(process, address))
            .or_else(|| self.building(speaker))
            .or_else(|| self.current(speaker).filter(|id| self.fits(*id, &edge, network)))
            .or_else(|| self.fitting(process, &edge, network))
            .unwrap_or_else(|| self.open(speaker, speakers, place));
        self.set_current(speaker, id);
        self.all[id].push_edge(edge);
    }

    fn fits(&self, id: ViewId, edge: &Edge, network: bool) -> bool {
        let view = &self.all[id];
        let one_node = view.nnodes == Some(1);
        let one_rank_per_node = view.nnodes.is_some() && view.nnodes == view.nranks;
        view.own_rank().is_none_or(|rank| rank == edge.teller())
            && view.nranks.is_none_or(|n| edge.from < n && edge.to < n)
            && !(network && one_node)
            && (network || !one_rank_per_node)
    }

    /// The process's view that an edge fits: one without edges before one with, the newest first.
    fn fitting(&self, process: ProcessId, edge: &Edge, network: bool) -> Option<ViewId> {
        let of_process = self.of_process.get(&process)?;
        let mut fitting = of_process.iter().rev().take(MOST_HELD).copied().filter(|id| self.fits(*id, edge, network));
        let newest = fitting.next()?;
        let empty = std::iter::once(newest).chain(fitting).find(|id| self.all[*id].edges.is_empty());
        Some(empty.unwrap_or(newest))
    }

    /// A ring whose prefix was torn.
    pub fn orphan_ring(&mut self, line: RingLine, place: Place) {
        if self.orphan_rings.len() < MOST_ORPHANS {
            self.orphan_rings.push((line, place));
        }
    }

    /// An edge whose prefix was torn.
    pub fn orphan_edge(&mut self, edge: Edge) {
        if self.orphans.len() < MOST_ORPHANS {
            self.orphans.push(edge);
        }
    }

    /// `Connected all rings`: later edges are those of trees.
    pub fn rings_connected(&mut self, speaker: SpeakerId, speakers: &Speakers) {
        if let Some(view) = self.latest(speaker, speakers)
            && view.ring_edges.is_none()
        {
            view.ring_edges = Some(view.edges.len());
        }
    }
}

impl View {
    pub(super) fn stand(&mut self, trees: Vec<Tree>) {
        trees.into_iter().for_each(|tree| add_tree(&mut self.trees, 0, tree));
    }

    pub(super) fn apply(&mut self, line: &InitLine) {
        self.address = Some(line.comm);
        self.rank = Some(line.rank);
        self.nranks = Some(line.nranks);
        self.cuda_dev = line.cuda_dev.or(self.cuda_dev);
        self.bus_id = line.bus_id.or(self.bus_id);
        self.comm_id = line.comm_id.or(self.comm_id);
        self.split = line.split.or(self.split);
        self.complete |= line.phase == InitPhase::Complete;
    }

    pub(super) fn size(&mut self, line: &SizesLine) {
        self.address = Some(line.comm);
        self.rank = Some(line.rank);
        self.nranks = Some(line.nranks);
        self.nnodes = Some(line.nnodes);
    }
}
