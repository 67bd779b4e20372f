//! Nodes and communicators as tables.

use super::markup::{escape, more, section, table};
use crate::words::{self, counted};
use busbw_model::{Communicator, Crossing, Run};
use std::collections::BTreeSet;

/// Rows of each table at most.
const MAX_ROWS: usize = 200;
/// More ranks than this, and rings are only counted.
const MAX_RING_RANKS: usize = 64;
/// More crossings than this are summed up by pair of nodes.
const MAX_CROSSINGS: usize = 64;

/// Nodes with their GPUs and NICs.
pub(super) fn nodes(run: &Run) -> String {
    if run.nodes.is_empty() {
        return String::new();
    }
    let rows = (0u32..).zip(&run.nodes).take(MAX_ROWS);
    let rows = rows.map(|(index, node)| vec![words::host(run, index), words::gpus(node), words::nics(node)]);
    let known = if run.nodes.iter().any(|node| !node.nics.is_empty()) { 3 } else { 2 };
    let rows = rows.map(|row| row.into_iter().take(known).collect());
    table(&["node", "GPUs", "NICs"][..known], rows) + &more(run.nodes.len(), MAX_ROWS)
}

/// Communicators, then the rings and crossings of the first that has rings.
pub(super) fn communicators(run: &Run) -> String {
    if run.communicators.is_empty() {
        return String::new();
    }
    let rows = run.communicators.iter().take(MAX_ROWS);
    let rows = rows.map(|comm| vec![comm.id.clone(), words::communicator(comm).join(", ")]);
    let heading = if run.communicators.len() == 1 { "Communicator" } else { "Communicators" };
    let list = table(&["id", "what it is"], rows) + &more(run.communicators.len(), MAX_ROWS);
    let rings = run.communicators.iter().find(|comm| comm.ring_count() > 0);
    section(heading, &list) + &rings.map(|comm| paths(run, comm)).unwrap_or_default()
}

fn paths(run: &Run, comm: &Communicator) -> String {
    let crossings = comm.crossings();
    if crossings.is_empty() {
        return section("Rings", &rings(comm));
    }
    let pairs = counted(crossings.len(), "ordered rank pair");
    let caption = format!("<p class=\"muted\">Rings leave a node over {pairs}.</p>\n");
    let list = if crossings.len() <= MAX_CROSSINGS {
        rank_pairs(run, comm, &crossings)
    } else {
        node_pairs(run, comm, &crossings)
    };
    section("Where rings leave a node", &(caption + &list)) + &section("Rings", &rings(comm))
}

fn rings(comm: &Communicator) -> String {
    let rings = words::distinct_rings(comm);
    let count = format!("{}, {} different", counted(comm.ring_count(), "ring"), rings.len());
    let caption = format!("<p class=\"muted\">{}; ▶ goes to another node.</p>\n", escape(&count));
    if rings.iter().any(|(_, ranks)| ranks.len() > MAX_RING_RANKS) {
        return format!("<p class=\"muted\">{}.</p>\n", escape(&count));
    }
    let rows = rings.iter().take(MAX_ROWS).map(|(ids, ranks)| vec![words::channel_ids(ids), words::ring(comm, ranks)]);
    caption + &table(&["channels", "ranks in order; the last sends to the first"], rows) + &more(rings.len(), MAX_ROWS)
}

fn rank_pairs(run: &Run, comm: &Communicator, crossings: &[Crossing]) -> String {
    let wanted: BTreeSet<(u32, u32)> = crossings.iter().map(|c| (c.from, c.to)).collect();
    let nics = words::pair_nics(run, comm, &wanted);
    let row = |c: &Crossing| {
        let names: Vec<&str> = nics.get(&(c.from, c.to)).into_iter().flatten().map(String::as_str).collect();
        let end = |rank: u32| format!("{} rank {rank}", words::host_of(run, comm, rank));
        vec![end(c.from), end(c.to), words::channel_ids(&c.channels), names.join(", ")]
    };
    let body = table(&["from", "to", "channels", "sender's NIC"], crossings.iter().map(row));
    format!("<details><summary>{} rank pairs</summary>\n{body}</details>\n", crossings.len())
}

fn node_pairs(run: &Run, comm: &Communicator, crossings: &[Crossing]) -> String {
    let sums = words::node_crossings(comm, crossings);
    let row = |((from, to), (pairs, channels)): (&(u32, u32), &(usize, usize))| {
        vec![words::host(run, *from), words::host(run, *to), pairs.to_string(), channels.to_string()]
    };
    let rows = sums.iter().take(MAX_ROWS).map(row);
    table(&["from", "to", "rank pairs", "times a channel crosses"], rows) + &more(sums.len(), MAX_ROWS)
}
