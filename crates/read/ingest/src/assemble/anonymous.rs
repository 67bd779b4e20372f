//! Communicators of logs without host and process: `[0] NCCL INFO …` or bare `NCCL INFO …`, after somebody removed the prefixes.
//!
//! Where at least one line names its process, lines without a prefix are torn ones and go to whom they fit. Where none
//! does, what the lines say about themselves (the rank of an Init line, of a tree, of a connection's end) makes the ranks.

use super::speakers::Speakers;
use super::views::{View, ViewId, Views};
use crate::facts::SpeakerFact;
use crate::nccl_log::{InitPhase, LogMessage};
use busbw_model::Place;
use rustc_hash::FxHashMap;

/// More lines than this add nothing new.
const MOST_KEPT: usize = 100_000;

/// What lines without a prefix said, apart from the connections and rings that [`Views`] keeps.
#[derive(Debug, Default)]
pub(crate) struct Anonymous {
    lines: Vec<(LogMessage, Place)>,
}

impl Anonymous {
    /// Keeps what a line said about a communicator.
    pub fn said(&mut self, said: &LogMessage, place: Place) {
        use LogMessage::{Channels, CollNet, Init, Nvls, Sizes, Trees};
        let is_kept = matches!(said, Init(_) | Sizes(_) | Trees(_) | Channels(_) | Nvls(_) | CollNet { .. });
        if is_kept && self.lines.len() < MOST_KEPT {
            self.lines.push((said.clone(), place));
        }
    }

    /// Makes the ranks, when no line of any input named a process.
    pub fn make_views(self, views: &mut Views, speakers: &mut Speakers) {
        if !views.all.is_empty() {
            return;
        }
        let mut maker = Maker { views, speakers, of_rank: FxHashMap::default() };
        for (line, place) in &self.lines {
            maker.named(line, *place);
        }
        for (line, place) in self.lines {
            maker.nameless(line, place);
        }
        for (ring, place) in std::mem::take(&mut maker.views.orphan_rings) {
            let lacks = |view: &View| !view.rings.iter().any(|(known, _)| known.channel == ring.channel);
            let id = maker.of_rank(*ring.ranks.first().unwrap_or(&0), lacks, place);
            maker.views.all[id].rings.push((ring, place));
        }
        for edge in std::mem::take(&mut maker.views.orphans) {
            let id = maker.of_rank(edge.teller(), |_| true, Place::default());
            maker.views.all[id].push_edge(edge);
        }
    }
}

struct Maker<'a> {
    views: &'a mut Views,
    speakers: &'a mut Speakers,
    /// The views of each rank, in order of appearance.
    of_rank: FxHashMap<u32, Vec<ViewId>>,
}

impl Maker<'_> {
    /// Lines that name their communicator's address and their rank.
    fn named(&mut self, line: &LogMessage, place: Place) {
        match line {
            LogMessage::Init(init) => {
                let begins_again =
                    |view: &View| view.complete || init.phase == InitPhase::Start && view.nranks.is_some();
                let goes_on = |view: &View| view.address == Some(init.comm) && !begins_again(view);
                let known = self.ids(init.rank).iter().copied().find(|id| goes_on(&self.views.all[*id]));
                let id = known.unwrap_or_else(|| self.open(init.rank, place));
                self.views.all[id].apply(init);
            }
            LogMessage::Sizes(sizes) => {
                let is_same = |id: &ViewId| self.views.all[*id].address == Some(sizes.comm);
                let known = self.ids(sizes.rank).iter().copied().rfind(is_same);
                let id = known.unwrap_or_else(|| self.open(sizes.rank, place));
                self.views.all[id].size(sizes);
            }
            _ => {}
        }
    }

    /// Lines that name a rank at most.
    fn nameless(&mut self, line: LogMessage, place: Place) {
        match line {
            LogMessage::Trees(trees) => {
                let Some(first) = trees.first() else { return };
                let lacks = |view: &View| {
                    !view.trees.iter().any(|known| first.channels.iter().any(|channel| known.channels.has(channel)))
                };
                let id = self.of_rank(first.rank, lacks, place);
                self.views.all[id].stand(trees);
            }
            LogMessage::Channels(counts) => {
                let lacking = self.views.all.iter_mut().find(|view| view.counts.is_none());
                if let Some(view) = lacking {
                    view.counts = Some(counts);
                }
            }
            LogMessage::Nvls(_) => self.views.all.iter_mut().for_each(|view| view.nvls = true),
            LogMessage::CollNet { .. } => self.views.all.iter_mut().for_each(|view| view.collnet = true),
            _ => {}
        }
    }

    /// The rank's view that pleases, else any of the rank, else a new one.
    fn of_rank(&mut self, rank: u32, pleases: impl Fn(&View) -> bool, place: Place) -> ViewId {
        let ids = self.ids(rank);
        let known = ids.iter().find(|id| pleases(&self.views.all[**id])).or(ids.first()).copied();
        known.unwrap_or_else(|| self.open(rank, place))
    }

    fn ids(&self, rank: u32) -> &[ViewId] {
        self.of_rank.get(&rank).map_or(&[], Vec::as_slice)
    }

    /// A view of a rank by a process of its own, on a host without a name.
    fn open(&mut self, rank: u32, first: Place) -> ViewId {
        let id = self.views.all.len();
        let process = SpeakerFact { host: 0, pid: id as u64 + 1, tid: 0, device: None };
        let (speaker, _) = self.speakers.intern("", &process);
        let process = self.speakers.get(speaker).process;
        let view = View { process, rank: Some(rank), first, anonymous: true, ..View::default() };
        self.views.all.push(Box::new(view));
        self.of_rank.entry(rank).or_default().push(id);
        id
    }
}

#[cfg(test)]
mod tests {
    use busbw_model::{GdrUse, Run};

    fn read(log: &str) -> Run {
        crate::read_bytes(&[("log", log.as_bytes())]).expect("a log")
    }

    const LINES: [&str; 8] = [
        "ncclCommInitRank comm 0xa1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xfe - Init START",
        "ncclCommInitRank comm 0xb2 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0xfe - Init START",
        "Channel 00/02 :    0   1",
        "Channel 01/02 :    0   1",
        "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
        "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA",
        "Channel 01/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA",
        "ncclCommInitRank comm 0xa1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xfe - Init COMPLETE",
    ];

    #[test]
    fn stripped_logs_give_their_communicator() {
        for prefix in ["[0] NCCL INFO ", "NCCL INFO "] {
            let run = read(&LINES.map(|line| format!("{prefix}{line}\n")).concat());
            assert_eq!(run.communicators.len(), 1, "{prefix}");
            let comm = &run.communicators[0];
            assert_eq!((comm.id.as_str(), comm.nranks, comm.ring_count()), ("0xfe", Some(2), 2), "{prefix}");
            assert_eq!((comm.gdr(), comm.edges.len()), (Some(GdrUse::All), 2), "{prefix}");
            assert_eq!(
                comm.ranks.values().map(|rank| (rank.pid, rank.is_up())).collect::<Vec<_>>(),
                [(None, true), (None, false)]
            );
            assert!(run.nodes.is_empty(), "{prefix}: {:?}", run.nodes);
        }
    }

    #[test]
    fn rings_and_connections_alone_are_enough() {
        let run = read(&LINES[2..7].iter().map(|line| format!("NCCL INFO {line}\n")).collect::<String>());
        let found: Vec<_> = run.communicators.iter().map(|c| (c.nranks, c.ring_count(), c.transport_names())).collect();
        assert_eq!(found, [(Some(2), 2, vec!["NET/IB".to_string()])]);
    }

    #[test]
    fn a_log_with_speakers_is_read_as_before() {
        let log = "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1 commId 0x2 - Init COMPLETE\nNCCL INFO comm 0x9 rank 7 nranks 8 cudaDev 7 nvmlDev 7 busId 1 commId 0x3 - Init COMPLETE\n";
        let sizes: Vec<_> = read(log).communicators.iter().map(|c| c.nranks).collect();
        assert_eq!(sizes, [Some(4)]);
    }
}
