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
    /// Operations that could be judged.
    judged: u64,
}

impl Rounds {
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
            let parts: Vec<Part> = entries.iter().map(|entry| entry.part).collect();
            if let Some(verdict) = judge(&parts) {
                let (operations, cost) = self.found.entry((verdict.class, verdict.rank, verdict.peer)).or_default();
                *operations += 1;
                *cost += verdict.cost_ns;
            }
        }
    }

    /// Who held others up in more operations than chance does, the most expensive first.
    pub fn stragglers(&self) -> Vec<Straggler> {
        let told = |((class, rank, peer), (operations, cost)): (&(StragglerClass, u32, Option<u32>), &(u64, f64))| {
            let (operations, of) = (*operations, self.judged);
            Straggler { rank: *rank, class: *class, peer: *peer, operations, of, cost_us: cost / 1e3 }
        };
        let mut all: Vec<Straggler> = self.found.iter().map(told).collect();
        all.retain(|straggler| straggler.operations * 10 >= straggler.of);
        all.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
        all
    }
}
