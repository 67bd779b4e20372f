//! When ranks called the collectives that all ranks of their group called, and how long each was by itself between them.

use super::clocks::Clocks;
use crate::case::Case;
use busbw_model::median;
use busbw_model::{FlightCall, FlightKind, GroupName};
use std::collections::{BTreeMap, HashMap};

/// Steps that a comparison needs.
pub(super) const FEWEST: usize = 8;

/// The calls of all ranks.
pub(super) struct Timeline {
    pub ranks: Vec<u32>,
    /// The calls of each rank, in order.
    pub calls: Vec<Vec<Call>>,
    /// Who came when to each collective that all ranks of its group called.
    pub come: BTreeMap<(u32, u64), Vec<Come>>,
    /// What was called, by [`Call::label`]: the same for ranks that do the same in groups of their own.
    labels: Vec<String>,
}

/// A rank's call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub label: u32,
    /// No rank leaves it before all have come.
    pub waits_for_all: bool,
    pub group: u32,
    pub sequence: u64,
    pub at_ns: i64,
}

/// One rank's coming to a collective: the index of the rank, and of its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Come {
    pub rank: usize,
    pub call: usize,
}

/// A step of a rank: its calls from one that follows the longest pause to before the next such.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: usize,
    end: usize,
}

/// The steps that all ranks made, by the number of the collective that begins each.
pub(super) struct Steps(BTreeMap<u64, Vec<Span>>);

/// What ranks did by themselves, step by step.
pub(super) struct Own {
    pub steps: Vec<Step>,
    /// Behind which call they did most of it, and before which.
    pub place: (String, String),
}

/// One step.
pub(super) struct Step {
    /// How long each rank was busy by itself: from when a collective could end, as the last rank had come, until it called the next one.
    pub own_ns: Vec<f64>,
    /// How long the step lasted.
    pub lasted_ns: f64,
    /// When each rank began it.
    pub began_ns: Vec<u64>,
}

impl Timeline {
    /// Of a job of which all ranks wrote down when they called collectives.
    pub fn of(case: &Case) -> Option<Self> {
        let ranks: Vec<u32> = case.ranks.all().into_iter().collect();
        if ranks.len() < 2 {
            return None;
        }
        let (mut groups, mut labels) = (Names::default(), Names::default());
        let mut calls = Vec::new();
        for rank in &ranks {
            let dump = case.ranks.get(*rank)?.dump.filter(|dump| !dump.calls.calls.is_empty())?;
            let kinds = &dump.calls.kinds;
            let numbers: Vec<(u32, u32)> =
                kinds.iter().map(|kind| (labels.number(label(kind)), groups.number(key(&kind.group)))).collect();
            let call = |call: &FlightCall| {
                let (label, group) = *numbers.get(call.kind as usize)?;
                let waits_for_all = kinds[call.kind as usize].waits_for_all();
                let at_ns = i64::try_from(call.created_ns).ok()?;
                Some(Call { label, waits_for_all, group, sequence: call.sequence, at_ns })
            };
            calls.push(dump.calls.calls.iter().filter_map(call).collect::<Vec<Call>>());
        }
        let sizes = case.run.process_groups.iter().map(|group| (key(&group.name), case.ranks.members(group).len()));
        let sizes: HashMap<String, usize> = sizes.collect();
        let mut come: BTreeMap<(u32, u64), Vec<Come>> = BTreeMap::new();
        for (rank, calls) in calls.iter().enumerate() {
            for (index, call) in calls.iter().enumerate() {
                come.entry((call.group, call.sequence)).or_default().push(Come { rank, call: index });
            }
        }
        come.retain(|(group, _), ranks| sizes.get(&groups.0[*group as usize]) == Some(&ranks.len()) && ranks.len() > 1);
        Some(Timeline { ranks, calls, come, labels: labels.0 })
    }

    /// Cuts the calls into steps, where ranks pause longest between two kinds of calls.
    pub fn steps(&self) -> Option<Steps> {
        let mut pauses: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
        for pair in self.calls.iter().flat_map(|calls| calls.windows(2)) {
            let pause = (pair[1].at_ns - pair[0].at_ns) as f64;
            pauses.entry((pair[0].label, pair[1].label)).or_default().push(pause);
        }
        let often = pauses.into_iter().filter(|(_, pauses)| pauses.len() >= FEWEST * self.ranks.len());
        let longest = often.filter_map(|(pair, pauses)| Some((pair, median(pauses.into_iter())?)));
        let ((before, behind), _) = longest.max_by(|(one, a), (other, b)| a.total_cmp(b).then(other.cmp(one)))?;
        let mut steps: BTreeMap<u64, Vec<Span>> = BTreeMap::new();
        for (rank, calls) in self.calls.iter().enumerate() {
            let begins = |index: &usize| calls[index - 1].label == before && calls[*index].label == behind;
            let begins: Vec<usize> = (1..calls.len()).filter(begins).collect();
            for pair in begins.windows(2) {
                let span = Span { first: pair[0], end: pair[1] };
                let spans = steps.entry(calls[span.first].sequence).or_default();
                // Only steps that all ranks before it made, and each once.
                if spans.len() == rank {
                    spans.push(span);
                }
            }
        }
        steps.retain(|_, spans| spans.len() == self.ranks.len());
        Some(Steps(steps))
    }

    /// What ranks did by themselves, by such clocks.
    pub fn own(&self, steps: &Steps, clocks: &Clocks) -> Option<Own> {
        let pauses = self.pauses(steps, clocks);
        let mut found = Vec::new();
        for spans in steps.0.values() {
            let of_rank = |(rank, span): (usize, &Span)| {
                let behind_pause = (span.first..span.end).filter(|at| pauses.contains_key(&self.pair(rank, *at)));
                behind_pause.map(|at| self.alone(rank, at, clocks)).sum::<Option<f64>>()
            };
            if let Some(own_ns) = spans.iter().enumerate().map(of_rank).collect() {
                let began =
                    spans.iter().enumerate().map(|(rank, span)| self.calls[rank][span.first].at_ns.unsigned_abs());
                found.push(Step { own_ns, lasted_ns: self.lasted(spans), began_ns: began.collect() });
            }
        }
        let ((before, behind), _) = pauses.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let place = (self.labels[before as usize].clone(), self.labels[behind as usize].clone());
        Some(Own { steps: found, place })
    }

    /// Kinds of calls, each with the one before it, between which ranks spend a good part of a step by themselves, and how much all together. Where a
    /// collective follows another at once, a rank may be late because the other reached it late: that tells of links, not of ranks.
    fn pauses(&self, steps: &Steps, clocks: &Clocks) -> BTreeMap<(u32, u32), f64> {
        const SHARE: f64 = 0.1;
        let mut own_ns: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut all_ns = 0.0;
        for spans in steps.0.values() {
            all_ns += self.lasted(spans) * spans.len() as f64;
            for (rank, span) in spans.iter().enumerate() {
                for at in span.first..span.end {
                    let own = self.alone(rank, at, clocks).unwrap_or_default();
                    *own_ns.entry(self.pair(rank, at)).or_default() += own;
                }
            }
        }
        own_ns.retain(|_, own| *own >= SHARE * all_ns);
        own_ns
    }

    /// The kind of the call before a call, and its own.
    fn pair(&self, rank: usize, at: usize) -> (u32, u32) {
        (self.calls[rank][at - 1].label, self.calls[rank][at].label)
    }

    /// How long a step lasted.
    fn lasted(&self, spans: &[Span]) -> f64 {
        let lasted = |(rank, span): (usize, &Span)| {
            (self.calls[rank][span.end].at_ns - self.calls[rank][span.first].at_ns) as f64
        };
        median(spans.iter().enumerate().map(lasted)).unwrap_or_default()
    }

    /// How long a rank was by itself before a call: since the last of its group came to the one before it. `None` where not all of that group are
    /// known to have come.
    fn alone(&self, rank: usize, at: usize, clocks: &Clocks) -> Option<f64> {
        let before = self.calls[rank][at - 1];
        let come = self.come.get(&(before.group, before.sequence))?;
        let last = come.iter().map(|one| clocks.right(one.rank, self.at(one))).max()?;
        Some(clocks.right(rank, self.calls[rank][at].at_ns).saturating_sub(last).max(0) as f64)
    }

    /// Whether ranks are all those of a group: what they share may be slow, rather than any of them.
    pub fn is_group(&self, ranks: &[usize]) -> bool {
        self.come.values().any(|come| come.len() == ranks.len() && come.iter().all(|one| ranks.contains(&one.rank)))
    }

    /// When a rank came, by its own clock.
    pub fn at(&self, come: &Come) -> i64 {
        self.calls[come.rank][come.call].at_ns
    }
}

/// The same for a group on all ranks.
fn key(group: &GroupName) -> String {
    group.name.clone().unwrap_or_else(|| group.to_string())
}

/// What ranks call that do the same in groups of their own: these have other names, and one number in each process.
fn label(kind: &FlightKind) -> String {
    let group = GroupName { name: None, ..kind.group.clone() };
    let elements = kind.elements.0.map_or(String::new(), |count| format!(" of {count} elements"));
    format!("{}{elements} in {group}", kind.op)
}

/// Names by number.
#[derive(Default)]
struct Names(Vec<String>, HashMap<String, u32>);

impl Names {
    fn number(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.1.entry(name).or_insert_with_key(|name| {
            self.0.push(name.clone());
            next
        })
    }
}
