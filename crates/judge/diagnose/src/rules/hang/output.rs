//! What the output of ranks shows by itself: who says nothing, who is in another call.

use super::Job;
use super::shown::{
    got_twice, has_lost, has_timed_out, is_between_two, is_of_sizes, is_report, is_terminated, lost_in, standing,
};
use crate::ranks::RankSet;
use busbw_model::ProgramFrame;
use std::collections::{BTreeMap, BTreeSet};

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

    /// The one rank that was ended with others of its host, where all others say what they waited in; several, where all others waited in one call, and no
    /// one rank explains what for.
    pub(super) fn ended_unheard(&self) -> RankSet {
        let ended = self.ended_with_others();
        let others = &self.ranks.all() - &ended;
        let calls: BTreeSet<_> = others.iter().map(|rank| self.ranks.get(*rank).and_then(lost_in)).collect();
        let together = calls.len() == 1 && !calls.contains(&None) && ended.len() < others.len();
        if ended.len() == 1 || together && self.causes().is_empty() { ended } else { RankSet::new() }
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
        let found = alone.next().filter(|_| alone.next().is_none()).unwrap_or_default();
        let call = |rank: u32| self.ranks.get(rank).and_then(lost_in);
        // Another that stands alone, in another call of that kind, may be the one as well.
        let all = self.ranks.all();
        let shared = |rank: u32| all.iter().any(|other| *other != rank && call(*other) == call(rank));
        let others = || all.iter().copied().filter(|rank| !found.contains(rank) && call(*rank).is_some());
        if others().next().is_some() && others().all(shared) { found } else { RankSet::new() }
    }

    /// The one rank that stands in the earliest statement of a function in which all stand. Whom it waits for has passed that statement,
    /// without it or a round ago; those in later statements wait for it, or for one that does.
    pub(super) fn earliest(&self) -> RankSet {
        let apart = self.where_apart();
        let least = apart.iter().map(|(_, line, _)| *line).min();
        let earliest = apart.iter().filter(|(_, line, _)| Some(*line) == least).map(|(rank, ..)| *rank);
        let earliest: RankSet = earliest.collect();
        if earliest.len() == 1 { earliest } else { RankSet::new() }
    }

    /// The one rank that called a collective itself from the last of the statements in which all stand, where the others are inside of what theirs call:
    /// it has left the loop in which these are.
    pub(super) fn past_all(&self) -> RankSet {
        let apart = self.where_apart();
        let most = apart.iter().map(|(_, line, _)| *line).max();
        let last: Vec<&(u32, u32, bool)> = apart.iter().filter(|(_, line, _)| Some(*line) == most).collect();
        let inside = apart.iter().filter(|(.., innermost)| !innermost).count();
        match last.as_slice() {
            [(rank, _, true)] if inside + 1 == apart.len() => RankSet::from([*rank]),
            _ => RankSet::new(),
        }
    }

    /// The statements of the outermost function in which ranks stand apart, each with whether the rank is in no function below; nothing where they are not
    /// in one function, and of two ranks, of which either may be the one that is a round ahead.
    fn where_apart(&self) -> Vec<(u32, u32, bool)> {
        let frames = |rank: u32| Some((rank, standing(self.ranks.get(rank)?)?));
        let standing: Vec<(u32, Vec<ProgramFrame>)> = self.ranks.all().into_iter().filter_map(frames).collect();
        for depth in (0..).take_while(|_| standing.len() > 2) {
            let at: Option<Vec<&ProgramFrame>> = standing.iter().map(|(_, frames)| frames.get(depth)).collect();
            let Some((first, rest)) = at.as_ref().and_then(|at| at.split_first()) else { break };
            if rest.iter().any(|frame| (&frame.file, &frame.function) != (&first.file, &first.function)) {
                break;
            }
            if rest.iter().any(|frame| frame.line != first.line) {
                let statement =
                    |(rank, frames): &(u32, Vec<ProgramFrame>)| (*rank, frames[depth].line, frames.len() == depth + 1);
                return standing.iter().map(statement).collect();
            }
        }
        Vec::new()
    }

    /// Ranks whose traceback shows them elsewhere than most others.
    pub(super) fn elsewhere(&self) -> RankSet {
        self.fewest(|view| lost_in(view).cloned())
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
        let odd = self.went_another_way();
        if !crashed.is_empty() && !odd.is_empty() {
            return odd;
        }
        let dumps = self.ranks.which(|view| view.dump.is_some()).len();
        let pair = |rank: u32| {
            let other = (rank + 1) % count;
            let cleared = dumps > 1 && self.ranks.get(other).is_some_and(|view| view.dump.is_some());
            let twice = self.ranks.get(rank).and_then(|view| view.end).is_some_and(got_twice);
            if !self.hands_on().is_empty() {
                // Whose data it got is open: not every rank hands on around the ring.
                return vec![rank];
            }
            match (cleared, twice) {
                (true, _) => vec![rank],
                (false, true) => vec![other],
                (false, false) => vec![rank, other],
            }
        };
        crashed.into_iter().flat_map(pair).collect()
    }

    /// Ranks that lost the one to which they hand on, or from which they take.
    fn hands_on(&self) -> RankSet {
        self.ranks.which(|view| {
            let call = view.end.filter(|end| has_lost(end)).and_then(|end| end.call.as_ref());
            call.is_some_and(is_between_two)
        })
    }

    fn failed_first(&self, rank: u32) -> bool {
        self.case.ends.standing.iter().any(|end| end.first && end.ranks == [rank])
    }

    /// Ranks with their last line, by the letters of it.
    fn last_lines(&self) -> BTreeMap<String, Vec<(u32, &str)>> {
        let mut by_wording: BTreeMap<String, Vec<(u32, &str)>> = BTreeMap::new();
        for output in &self.case.run.outputs {
            let text = output.last.text.split_once("]:").map_or(&*output.last.text, |(_, text)| text);
            let letters: String = text.chars().filter(|letter| letter.is_alphabetic()).collect();
            if let Some(rank) = output.rank.filter(|_| !letters.is_empty()) {
                by_wording.entry(letters).or_default().push((rank, text));
            }
        }
        by_wording
    }

    /// Ranks whose last line has another wording than that of most others.
    pub(super) fn speaks_otherwise(&self) -> RankSet {
        let by_wording = self.last_lines();
        let most = by_wording.values().map(Vec::len).max().unwrap_or(0);
        let few = by_wording.into_values().filter(|ranks| ranks.len() * 2 <= most).flatten();
        few.map(|(rank, _)| rank).collect()
    }

    /// Ranks whose last line counts one less than that of most others, which says the same otherwise: they have not ended a round that these ended.
    pub(super) fn counts_less(&self) -> RankSet {
        let alike = self.last_lines().into_values().max_by_key(Vec::len).unwrap_or_default();
        let numbers: Vec<(u32, Vec<u64>)> = alike.into_iter().map(|(rank, text)| (rank, numbers(text))).collect();
        let count = numbers.iter().map(|(_, numbers)| numbers.len()).min().unwrap_or(0);
        // Seconds differ by one as well: what counts rounds has counted further than a clock's hands.
        let counter = (0..count).filter_map(|at| {
            let values: BTreeSet<u64> = numbers.iter().map(|(_, numbers)| numbers[at]).collect();
            let (least, most) = (*values.first()?, *values.last()?);
            (values.len() == 2 && least + 1 == most).then_some((least, at))
        });
        let Some((least, at)) = counter.max() else { return RankSet::new() };
        let less = numbers.iter().filter(|(_, numbers)| numbers[at] == least).map(|(rank, _)| *rank);
        let less: RankSet = less.collect();
        if less.len() * 2 < numbers.len() { less } else { RankSet::new() }
    }

    /// Ranks that only lost a connection, where others waited until the time was over: they came when these had gone. Where a host may be cut off, all
    /// may have come in time.
    pub(super) fn late(&self) -> RankSet {
        let timed_out = self.ranks.which(has_timed_out);
        let closed = self.ranks.which(|view| view.end.is_some_and(has_lost) && !has_timed_out(view));
        let in_time = self.causes().iter().any(|cause| cause.cut_off);
        if timed_out.is_empty() || in_time { RankSet::new() } else { closed }
    }

    /// Whether another rank lost the others in the same collective: both called it in time.
    pub(super) fn shares_its_call(&self, rank: u32) -> bool {
        let call = |rank: u32| self.ranks.get(rank).and_then(lost_in);
        let own = call(rank);
        own.is_some() && self.ranks.all().into_iter().any(|other| other != rank && call(other) == own)
    }
}

/// The whole numbers of a text, in order.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}
