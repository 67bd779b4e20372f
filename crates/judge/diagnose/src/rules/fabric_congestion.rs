//! Bandwidth between nodes that falls as messages grow: flows share links of the fabric.
//!
//! Messages that outgrow the buffers of NICs and switches need a steady rate. Where flows are hashed over equal-cost
//! links (ECMP), two large ones on a link get half each, and every ring waits for its slowest connection.

use super::found;
use crate::case::{Case, Network, Test};
use crate::words::listed;
use busbw_model::{Communicator, Crossing, Evidence, Finding, Run};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Finds tables over several nodes whose busbw falls behind its peak.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.tests.iter().filter_map(|test| congestion(case.run, test)).take(1).collect()
}

fn congestion(run: &Run, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref()?;
    if !test.crosses_nodes() || test.network() == Some(Network::Socket) {
        return None;
    }
    if single_flow(run, test) {
        return dropped(run, test);
    }
    let crossings = test.comm.map(Communicator::crossings).unwrap_or_default();
    let paths = Paths::of(test.comm, &crossings);
    let of = |count: fn(&Paths) -> usize| paths.as_ref().map_or(0, count);
    let rail = test.comm.is_some_and(|comm| crossings.iter().all(|c| changes_rail(comm, c)));
    let words: [(&str, &dyn Display); 11] = [
        ("peak", &test.curve.peak),
        ("at", &test.curve.peak_row.size),
        ("last", &fall.last),
        ("last_at", &fall.last_row.size),
        ("halves", &if fall.both_halves { BOTH_HALVES } else { "" }),
        ("channels", &of(|paths| paths.channels)),
        ("crossings", &crossings.len()),
        ("pairs", &listed(crossings.iter().map(|c| format!("{}→{}", c.from, c.to)), 16)),
        ("parallel", &in_words(of(|paths| paths.pairs_per_direction))),
        ("each", &of(|paths| paths.channels_per_pair)),
        ("rail", &if rail { CHANGES_RAIL } else { "" }),
    ];
    let id = if paths.is_some() { "fabric.shared-rings" } else { "fabric.shared" };
    let confidence = confidence(test, &paths);
    Some(Finding { confidence, ..found(id, &words, evidence(run, test)) })
}

/// Whether one flow goes each way: between two hosts of one rank, or of one NIC, nothing is shared.
pub(super) fn single_flow(run: &Run, test: &Test) -> bool {
    let nics = run.nodes.iter().map(|node| node.nics.len()).max().unwrap_or(0);
    test.nodes == Some(2) && (test.table.nranks == Some(2) || nics == 1)
}

/// A fall below this share of the peak is not due to shared links: packets are lost and retransmitted.
const COLLAPSE: f64 = 0.2;

/// RoCE without flow control, where nothing else shares the link (a maintainer's answer in NVIDIA/nccl issue 378).
fn dropped(run: &Run, test: &Test) -> Option<Finding> {
    let fall = test.curve.fall.as_ref().filter(|fall| fall.left < COLLAPSE)?;
    let mut links = run.nodes.iter().flat_map(|node| &node.nics).filter_map(|nic| nic.link.as_deref());
    let words: [(&str, &dyn Display); 2] = [("peak", &test.curve.peak), ("last", &fall.last)];
    links.any(|link| link == "RoCE").then(|| found("fabric.dropped", &words, evidence(run, test)))
}

/// The GPU pairs over which rings leave their node.
struct Paths {
    /// Different pairs of local GPUs in one direction between two nodes: what NICs can work for in parallel.
    pairs_per_direction: usize,
    /// Channels that share one ordered pair, the most of any.
    channels_per_pair: usize,
    channels: usize,
}

impl Paths {
    fn of(comm: Option<&Communicator>, crossings: &[Crossing]) -> Option<Self> {
        let comm = comm?;
        let direction = |c: &Crossing| Some((comm.node_of(c.from)?, comm.node_of(c.to)?));
        let first = crossings.first().and_then(direction)?;
        let pairs_per_direction = crossings.iter().filter(|c| direction(c) == Some(first)).count();
        let channels_per_pair = crossings.iter().map(|c| c.channels.len()).max()?;
        let channels: BTreeSet<u16> = crossings.iter().flat_map(|c| c.channels.iter().copied()).collect();
        Some(Paths { pairs_per_direction, channels_per_pair, channels: channels.len() })
    }

    /// Few pairs that carry several channels each make few, large flows.
    fn few_large_flows(&self) -> bool {
        self.pairs_per_direction <= 16 && self.channels_per_pair > 1
    }
}

/// A fall alone has other causes (a thermal limit, a slow node, other traffic); few large flows speak for the fabric.
fn confidence(test: &Test, paths: &Option<Paths>) -> f64 {
    let mut confidence: f64 = 0.55;
    if test.curve.fall.as_ref().is_some_and(|f| f.both_halves) {
        confidence += 0.1;
    }
    if paths.as_ref().is_some_and(Paths::few_large_flows) {
        confidence += 0.2;
    }
    if test.curve.fall.as_ref().is_some_and(|f| f.left < 0.75) {
        confidence += 0.05;
    }
    confidence
}

const BOTH_HALVES: &str = ", both out of place and in place, so it is not a measurement error";
const CHANGES_RAIL: &str = " None of them connects GPUs of the same index, so with NICs near their GPUs the traffic changes rail and has to pass \
                            from switch to switch.";

/// Whether a crossing leads to a GPU of another index on its node.
fn changes_rail(comm: &Communicator, crossing: &Crossing) -> bool {
    let device = |rank| comm.ranks.get(&rank).and_then(|r| r.device);
    matches!((device(crossing.from), device(crossing.to)), (Some(a), Some(b)) if a != b)
}

fn in_words(count: usize) -> String {
    const WORDS: [&str; 9] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
    WORDS.get(count).map_or_else(|| count.to_string(), ToString::to_string)
}

fn evidence(run: &Run, test: &Test) -> Vec<Evidence> {
    let mut evidence =
        vec![Evidence::noted(test.curve.peak_row.source.clone(), format!("{:.2}: the peak", test.curve.peak.0))];
    if let Some(fall) = &test.curve.fall {
        evidence.push(Evidence::noted(
            fall.last_row.source.clone(),
            format!("{:.2}: {:.0}% of the peak", fall.last.0, 100.0 * fall.last.0 / test.curve.peak.0),
        ));
    }
    let Some(comm) = test.comm else { return evidence };
    let mut seen = BTreeSet::new();
    for channel in comm.channels.values() {
        let Some(ring) = &channel.ring else { continue };
        let leaving: Vec<String> = ring
            .pairs()
            .filter(|(a, b)| comm.node_of(*a) != comm.node_of(*b))
            .map(|(a, b)| format!("{a}→{b}"))
            .collect();
        // Channels repeat a few patterns: one line of each shows them all.
        if seen.len() < 4
            && seen.insert(leaving.clone())
            && let Some(line) = run.line(ring.place)
        {
            evidence.push(Evidence::noted(line, format!("leaves the node at {}", leaving.join(" and "))));
        }
    }
    evidence
}
