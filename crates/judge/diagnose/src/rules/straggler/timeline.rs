//! When ranks called the collectives that all ranks of their group called.

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
    pub labels: Vec<String>,
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
pub(super) struct Span {
    pub first: usize,
    pub end: usize,
}

/// The steps that all ranks made, by the number of the collective that begins each.
pub(super) struct Steps(pub BTreeMap<u64, Vec<Span>>);

impl Steps {
    /// How many the job has made since it began, as the numbers of its collectives show.
    pub fn made(&self) -> f64 {
        let firsts: Vec<u64> = self.0.keys().copied().collect();
        let each = median(firsts.windows(2).map(|pair| (pair[1] - pair[0]) as f64));
        firsts.last().zip(each).map_or(0.0, |(last, each)| *last as f64 / each)
    }
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
