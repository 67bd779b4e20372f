//! What the output of ranks shows by itself: who says nothing, who is in another call, whom Gloo's ring names.

use super::Job;
use super::shown::{SEND, TIMED_OUT, got_twice, has_lost, is_of_sizes, is_report, is_terminated};
use crate::ranks::{RankSet, RankView};
use busbw_model::CollectiveCall;
use std::collections::{BTreeMap, BTreeSet};

/// Functions of `torch.distributed` that a rank calls with one other: what each does says nothing of the others.
const BETWEEN_TWO: [&str; 7] =
    ["send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"];

impl Job<'_> {
    /// Ranks whose output simply stops, where others report time-outs or lost connections.
    pub(super) fn silent(&self) -> RankSet {
        let lost = self.ranks.which(|view| view.end.is_some_and(has_lost));
        let silent = self.ranks.which(|view| view.end.is_none_or(is_report));
        let heard = silent.iter().all(|rank| self.ranks.get(*rank).is_some_and(|view| view.output.is_some()));
        let stopped = if lost.len() > silent.len() || heard && !lost.is_empty() { silent } else { RankSet::new() };
        &stopped - &self.ended_with_others()
    }

    /// Ranks that torchrun ended because another of their host had lost the others: a moment later they might have said the same.
    fn ended_with_others(&self) -> RankSet {
        let lost = self.ranks.which(|view| view.end.is_some_and(has_lost));
        let hosts: BTreeSet<&str> = lost.iter().filter_map(|rank| self.ranks.get(*rank)?.host).collect();
        self.ranks
            .which(|view| view.end.is_some_and(is_terminated) && view.host.is_some_and(|host| hosts.contains(host)))
    }

    /// The one rank that was ended with others of its host, where all others say what they waited in.
    pub(super) fn ended_unheard(&self) -> RankSet {
        let ended = self.ended_with_others();
        if ended.len() == 1 { ended } else { RankSet::new() }
    }

    /// The one rank that waits in a collective in which no other does, where the others wait together.
    pub(super) fn alone(&self) -> RankSet {
        let mut by_operation: BTreeMap<Option<&str>, RankSet> = BTreeMap::new();
        for rank in self.ranks.all() {
            if let Some(call) = self.ranks.get(rank).and_then(lost_in) {
                by_operation.entry(call.operation.as_deref()).or_default().insert(rank);
            }
        }
        let mut alone = by_operation.into_values().filter(|ranks| ranks.len() == 1);
        alone.next().filter(|_| alone.next().is_none()).unwrap_or_default()
    }

    /// Ranks whose traceback shows them elsewhere than most others.
    pub(super) fn elsewhere(&self) -> RankSet {
        self.fewest(|view| lost_in(view).cloned())
    }

    /// Whom Gloo's ring names: a rank hands its part to the one before it (`ring` in gloo/allreduce.cc), so one that waits to send waits for
    /// that. Only where all ranks but one wait in one call: a group of some ranks has a ring of its own.
    pub(super) fn before_a_sender(&self) -> RankSet {
        let all = self.ranks.all();
        let late = self.ranks.which(|view| view.end.is_some_and(has_lost));
        let calls: BTreeSet<Option<&CollectiveCall>> =
            late.iter().map(|rank| self.ranks.get(*rank).and_then(|view| view.end?.call.as_ref())).collect();
        let of_ring =
            calls.iter().flatten().all(|call| call.operation.as_deref().is_none_or(|name| name == "all_reduce"));
        if late.len() + 1 < all.len() || calls.len() != 1 || !of_ring {
            return RankSet::new();
        }
        let count = u32::try_from(all.len()).unwrap_or(1);
        let sends = self.ranks.which(|view| view.end.is_some_and(|end| end.source.text.contains(SEND)));
        sends.into_iter().map(|rank| (rank + count - 1) % count).collect()
    }

    /// A rank that got more than it asked for, and the one that it gets its part from in Gloo's ring. A dump that shows nothing odd clears the
    /// latter; twice as much is a wider type, which the latter has.
    pub(super) fn sizes_differ(&self) -> RankSet {
        let count = u32::try_from(self.ranks.all().len()).unwrap_or(1).max(1);
        let mut crashed = self.ranks.which(|view| view.end.is_some_and(is_of_sizes));
        let first: RankSet = crashed.iter().copied().filter(|rank| self.failed_first(*rank)).collect();
        if !first.is_empty() {
            crashed = first;
        }
        let dumps = self.ranks.which(|view| view.dump.is_some()).len();
        let pair = |rank: u32| {
            let other = (rank + 1) % count;
            let cleared = dumps > 2 && self.ranks.get(other).is_some_and(|view| view.dump.is_some());
            let twice = self.ranks.get(rank).and_then(|view| view.end).is_some_and(got_twice);
            match (cleared, twice) {
                (true, _) => vec![rank],
                (false, true) => vec![other],
                (false, false) => vec![rank, other],
            }
        };
        crashed.into_iter().flat_map(pair).collect()
    }

    fn failed_first(&self, rank: u32) -> bool {
        self.case.ends.standing.iter().any(|end| end.first && end.ranks == [rank])
    }

    /// Ranks whose last line has another wording than that of most others.
    pub(super) fn speaks_otherwise(&self) -> RankSet {
        let mut by_wording: BTreeMap<String, RankSet> = BTreeMap::new();
        for output in &self.case.run.outputs {
            let text = output.last.text.split_once("]:").map_or(&*output.last.text, |(_, text)| text);
            let letters: String = text.chars().filter(|letter| letter.is_alphabetic()).collect();
            if let Some(rank) = output.rank.filter(|_| !letters.is_empty()) {
                by_wording.entry(letters).or_default().insert(rank);
            }
        }
        let most = by_wording.values().map(RankSet::len).max().unwrap_or(0);
        by_wording.into_values().filter(|ranks| ranks.len() * 2 <= most).flatten().collect()
    }

    /// Ranks that only lost a connection, where others waited until the time was over: they came when these had gone.
    pub(super) fn late(&self) -> RankSet {
        let timed_out = self.ranks.which(|view| view.end.is_some_and(|end| end.source.text.contains(TIMED_OUT)));
        let closed =
            self.ranks.which(|view| view.end.is_some_and(|end| has_lost(end) && !end.source.text.contains(TIMED_OUT)));
        if timed_out.is_empty() { RankSet::new() } else { closed }
    }

    /// Whether another rank lost the others in the same collective: both called it in time.
    pub(super) fn shares_its_call(&self, rank: u32) -> bool {
        let call = |rank: u32| self.ranks.get(rank).and_then(lost_in);
        let own = call(rank);
        own.is_some() && self.ranks.all().into_iter().any(|other| other != rank && call(other) == own)
    }

    /// Whether a rank that Gloo's ring names is on the host of the one that waits for it: no cable is between them.
    pub(super) fn is_named_on_its_host(&self, rank: u32) -> bool {
        let count = u32::try_from(self.ranks.all().len()).unwrap_or(1).max(1);
        let host = |rank: u32| self.ranks.get(rank).and_then(|view| view.host);
        self.before_a_sender().contains(&rank) && host(rank).is_some() && host(rank) == host((rank + 1) % count)
    }
}

/// The collective in which a rank lost the others.
fn lost_in<'a>(view: &RankView<'a>) -> Option<&'a CollectiveCall> {
    let call = view.end.filter(|end| has_lost(end))?.call.as_ref()?;
    let between_two = call.operation.as_deref().is_some_and(|operation| BETWEEN_TWO.contains(&operation));
    (!between_two).then_some(call)
}
