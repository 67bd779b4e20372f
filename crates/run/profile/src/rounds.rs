//! Compares the ranks of an operation: who began last, who waited how long for that, who is at fault.
//!
//! Ranks of a communicator call its collectives in the same order, so the n-th of one rank is the n-th of another.

use crate::classify::{Part, judge};
use crate::ledger::Operation;
use busbw_model::{Straggler, StragglerClass};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// So many operations may wait for ranks that have not done theirs.
const MOST_OPEN: usize = 1 << 16;
/// A straggler is one in this share of operations, and in this multiple of its turn among those of its class, or in most of them.
const OFTEN: f64 = 0.1;
const OUT_OF_TURN: f64 = 2.0;
const MOSTLY: f64 = 0.75;

/// An operation as one rank did it.
#[derive(Clone, Copy)]
struct Entry {
    ring: usize,
    part: Part,
}

#[derive(Default)]
pub(crate) struct Rounds {
    open: FxHashMap<(u64, u64), Vec<Entry>>,
    /// By process: time that it waited for others.
    pub waited_ns: FxHashMap<usize, f64>,
    found: BTreeMap<(StragglerClass, u32, Option<u32>), (u64, f64)>,
    /// Operations that could be judged, and the most ranks of one.
    judged: u64,
    ranks: usize,
    /// By process: its host. Of one host where nothing is said.
    hosts: Vec<usize>,
    /// What times of different hosts may be wrong by beside each other.
    error_ns: f64,
}

impl Rounds {
    /// Processes are on several hosts, by whose clocks times are wrong by so much at most.
    pub fn across(&mut self, hosts: Vec<usize>, error_ns: f64) {
        (self.hosts, self.error_ns) = (hosts, error_ns);
    }

    /// Adds a rank's operation. `members`: how many ranks of its communicator are seen.
    pub fn add(&mut self, operation: &Operation, members: usize) {
        let (Some(end_ns), hash) = (operation.end_ns, operation.communicator.hash) else { return };
        if hash == 0 || members < 2 {
            return;
        }
        let rank = operation.communicator.rank;
        let part = Part { rank, begin_ns: operation.begin_ns, end_ns, peer: operation.peer, steps: operation.steps };
        if self.open.len() > MOST_OPEN {
            self.open.clear();
        }
        let key = (hash, operation.of.1);
        let entries = self.open.entry(key).or_default();
        entries.push(Entry { ring: operation.ring, part });
        if entries.len() == members {
            let entries = self.open.remove(&key).unwrap_or_default();
            self.close(&entries, operation.communicator.ranks as usize == members);
        }
    }

    fn close(&mut self, entries: &[Entry], whole: bool) {
        let last = entries.iter().map(|entry| entry.part.begin_ns).max().unwrap_or(0);
        for Entry { ring, part } in entries {
            let waited = last.saturating_sub(part.begin_ns).min(part.end_ns.saturating_sub(part.begin_ns));
            *self.waited_ns.entry(*ring).or_default() += waited as f64;
        }
        // Who is at fault may be a rank that is not seen here.
        if whole {
            self.judged += 1;
            self.ranks = self.ranks.max(entries.len());
            let parts: Vec<Part> = entries.iter().map(|entry| entry.part).collect();
            let mut hosts = entries.iter().map(|entry| self.hosts.get(entry.ring));
            let first = hosts.next();
            let error_ns = if hosts.all(|host| Some(host) == first) { 0.0 } else { self.error_ns };
            if let Some(verdict) = judge(&parts, error_ns) {
                let (operations, cost) = self.found.entry((verdict.class, verdict.rank, verdict.peer)).or_default();
                *operations += 1;
                *cost += verdict.cost_ns;
            }
        }
    }

    /// Who held others up in more operations than chance does, the most expensive first: somebody is last each time, so it is to be
    /// the same one much more often than in turn.
    pub fn stragglers(&self) -> Vec<Straggler> {
        let told = |((class, rank, peer), (operations, cost)): (&(StragglerClass, u32, Option<u32>), &(u64, f64))| {
            let (operations, of) = (*operations, self.judged);
            Straggler { rank: *rank, class: *class, peer: *peer, operations, of, cost_us: cost / 1e3 }
        };
        let mut all: Vec<Straggler> = self.found.iter().map(told).collect();
        let mut by_class: FxHashMap<StragglerClass, u64> = FxHashMap::default();
        for straggler in &all {
            *by_class.entry(straggler.class).or_default() += straggler.operations;
        }
        let turn = (OUT_OF_TURN / self.ranks.max(1) as f64).min(MOSTLY);
        all.retain(|straggler| {
            let of_class = by_class.get(&straggler.class).copied().unwrap_or(0) as f64;
            straggler.operations as f64 >= OFTEN * straggler.of as f64 && straggler.operations as f64 >= turn * of_class
        });
        all.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Communicator;
    use busbw_events::Source;

    /// Ranks of an operation; who begins a millisecond later.
    fn operations(number: u64, ranks: u32, late: u32) -> impl Iterator<Item = Operation> {
        (0..ranks).map(move |rank| {
            let communicator = Communicator { hash: 7, ranks, nodes: 1, rank, source: Source::Engine };
            let begin_ns = number * 10_000_000 + if rank == late { 1_000_000 } else { 0 };
            Operation::of_rank(communicator, number, begin_ns, number * 10_000_000 + 1_500_000)
        })
    }

    fn stragglers(ranks: u32, late: impl Fn(u64) -> u32) -> Vec<u32> {
        let mut rounds = Rounds::default();
        for number in 0..120 {
            operations(number, ranks, late(number)).for_each(|operation| rounds.add(&operation, ranks as usize));
        }
        rounds.stragglers().iter().map(|straggler| straggler.rank).collect()
    }

    #[test]
    fn who_is_last_in_turn_holds_nobody_up() {
        for ranks in [2, 3, 4, 8] {
            assert_eq!(stragglers(ranks, |number| number as u32 % ranks), [0; 0], "{ranks} ranks");
            assert_eq!(stragglers(ranks, |_| 1), [1], "{ranks} ranks");
            // Four times of five the same one.
            assert_eq!(stragglers(ranks, |number| if number % 5 == 0 { 0 } else { 1 }), [1], "{ranks} ranks");
        }
        // In one of twenty operations.
        assert_eq!(stragglers(4, |number| if number % 20 == 0 { 1 } else { 99 }), [0; 0]);
    }

    #[test]
    fn ranks_that_are_not_seen_are_not_judged() {
        let mut rounds = Rounds::default();
        for number in 0..100 {
            operations(number, 4, 1).take(2).for_each(|operation| rounds.add(&operation, 2));
        }
        assert!(rounds.stragglers().is_empty());
        assert_eq!(rounds.waited_ns.get(&0), Some(&1e8));
    }
}
