//! The cluster: nodes, communicators, rings, and where rings leave a node.

use super::page::{Page, paint};
use crate::style::{columns, left, right, widest};
use crate::words::{self, counted};
use busbw_model::{Communicator, Crossing, Run};
use std::collections::BTreeSet;

/// More nodes than this are shown by kind.
const MAX_NODES: usize = 8;
/// Kinds of nodes, kinds of communicators, different rings that are shown at most.
const MAX_KINDS: usize = 8;
/// More ranks than this, and rings are only counted.
const MAX_RING_RANKS: usize = 64;
/// More crossings than this are summed up by pair of nodes.
const MAX_CROSSINGS: usize = 16;
/// Pairs of nodes that are shown at most.
const MAX_NODE_PAIRS: usize = 12;

/// Nodes with their GPUs and NICs; many nodes by kind.
pub(super) fn nodes(page: &mut Page, run: &Run) {
    if run.nodes.is_empty() {
        return;
    }
    page.heading("Cluster");
    let rows: Vec<[String; 3]> = if run.nodes.len() <= MAX_NODES {
        (0u32..)
            .zip(&run.nodes)
            .map(|(index, node)| [words::host(run, index), words::gpus(node), words::nics(node)])
            .collect()
    } else {
        node_kinds(run)
    };
    let width = |cell: usize| widest(rows.iter().map(|row| &row[cell]));
    let (hosts, gpus) = (width(0), width(1));
    for [host, gpu, nic] in rows.iter().take(MAX_KINDS) {
        page.clipped(2, &format!("{}  {}  {nic}", left(host, hosts), left(gpu, gpus)));
    }
    page.more(rows.len(), MAX_KINDS);
}

/// Nodes with equal GPUs and NICs on one row: how many, which, what they have.
fn node_kinds(run: &Run) -> Vec<[String; 3]> {
    let mut kinds: Vec<((String, String), Vec<u32>)> = Vec::new();
    for (index, node) in (0u32..).zip(&run.nodes) {
        let kind = (words::gpus(node), words::nics(node));
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, nodes)) => nodes.push(index),
            None => kinds.push((kind, vec![index])),
        }
    }
    let row = |((gpus, nics), nodes): ((String, String), Vec<u32>)| {
        let hosts = match nodes.as_slice() {
            [first, .., last] => {
                format!("{}: {} … {}", counted(nodes.len(), "node"), words::host(run, *first), words::host(run, *last))
            }
            [only] => words::host(run, *only),
            [] => String::new(),
        };
        [hosts, gpus, nics]
    };
    kinds.into_iter().map(row).collect()
}

/// Communicators by kind, then the rings and crossings of the first that has rings.
pub(super) fn communicators(page: &mut Page, run: &Run) {
    let mut kinds: Vec<(Vec<String>, Vec<&Communicator>)> = Vec::new();
    for comm in &run.communicators {
        let facts = words::communicator(comm);
        match kinds.iter_mut().find(|(known, _)| *known == facts) {
            Some((_, comms)) => comms.push(comm),
            None => kinds.push((facts, vec![comm])),
        }
    }
    if kinds.is_empty() {
        return;
    }
    page.heading(if run.communicators.len() == 1 { "Communicator" } else { "Communicators" });
    for (facts, comms) in kinds.iter().take(MAX_KINDS) {
        let name = match comms.as_slice() {
            [only] => only.id.clone(),
            many => format!("{} ×", many.len()),
        };
        page.indented(2, &format!("{name}: {}", facts.join(", ")));
    }
    page.more(kinds.len(), MAX_KINDS);
    if let Some(comm) = run.communicators.iter().find(|comm| comm.ring_count() > 0) {
        rings(page, comm);
        crossings(page, run, comm);
    }
}

fn rings(page: &mut Page, comm: &Communicator) {
    let rings = words::distinct_rings(comm);
    page.end_line();
    let count = format!("{}, {} different", counted(comm.ring_count(), "ring"), rings.len());
    if rings.iter().any(|(_, ranks)| ranks.len() > MAX_RING_RANKS) {
        return page.indented(2, &count);
    }
    let legend = if comm.crossings().is_empty() { "" } else { " (▶ goes to another node)" };
    page.indented(2, &format!("{count}{legend}"));
    let channels: Vec<String> = rings.iter().map(|(channels, _)| words::channel_ids(channels)).collect();
    let longest = widest(channels.iter());
    for (ids, (_, ranks)) in channels.iter().zip(&rings).take(MAX_KINDS) {
        page.text("    channel ");
        page.text(&left(ids, longest));
        page.hanging(14 + longest, paint::PLAIN, &words::ring(comm, ranks));
    }
    page.more(rings.len(), MAX_KINDS);
}

fn crossings(page: &mut Page, run: &Run, comm: &Communicator) {
    let crossings = comm.crossings();
    if crossings.is_empty() {
        return;
    }
    page.end_line();
    page.indented(2, &format!("Rings leave a node over {}", counted(crossings.len(), "ordered rank pair")));
    if crossings.len() <= MAX_CROSSINGS {
        rank_pairs(page, run, comm, &crossings);
    } else {
        node_pairs(page, run, comm, &crossings);
    }
}

/// `bm-2204kzq  1 ──4ch──▶ 10 bm-2204qhn`, a line per pair.
fn rank_pairs(page: &mut Page, run: &Run, comm: &Communicator, crossings: &[Crossing]) {
    let wanted: BTreeSet<(u32, u32)> = crossings.iter().map(|c| (c.from, c.to)).collect();
    let nics = words::pair_nics(run, comm, &wanted);
    let host = |rank| words::host_of(run, comm, rank);
    let hosts = widest(crossings.iter().flat_map(|c| [host(c.from), host(c.to)]));
    let digits = crossings.iter().map(|c| c.from.max(c.to).to_string().len()).max().unwrap_or(0);
    let channels = crossings.iter().map(|c| c.channels.len().to_string().len()).max().unwrap_or(0);
    for crossing in crossings {
        let (from, to) = (crossing.from.to_string(), crossing.to.to_string());
        let names: Vec<&str> =
            nics.get(&(crossing.from, crossing.to)).into_iter().flatten().map(String::as_str).collect();
        page.text(&format!("    {} {} ", left(&host(crossing.from), hosts), right(&from, digits)));
        let count = format!("{}ch", crossing.channels.len());
        page.styled(paint::BAR, &format!("──{}──▶", rule(&count, channels + 2)));
        page.text(&format!(" {} {}  {}", right(&to, digits), left(&host(crossing.to), hosts), names.join(", ")));
        page.end_line();
    }
}

/// `node0 ──8 pairs, 16ch──▶ node1`, a line per ordered pair of nodes.
fn node_pairs(page: &mut Page, run: &Run, comm: &Communicator, crossings: &[Crossing]) {
    let sums = words::node_crossings(comm, crossings);
    let rows: Vec<(String, String, String)> = sums
        .iter()
        .take(MAX_NODE_PAIRS)
        .map(|((from, to), (pairs, channels))| {
            let sum = format!("{}, {channels}ch", counted(*pairs, "pair"));
            (words::host(run, *from), sum, words::host(run, *to))
        })
        .collect();
    let hosts = widest(rows.iter().map(|(from, ..)| from));
    let longest = widest(rows.iter().map(|(_, sum, _)| sum));
    for (from, sum, to) in &rows {
        page.text(&format!("    {} ", left(from, hosts)));
        page.styled(paint::BAR, &format!("──{}──▶", rule(sum, longest)));
        page.text(&format!(" {to}"));
        page.end_line();
    }
    page.more(sums.len(), MAX_NODE_PAIRS);
}

/// A text with the arrow's rule before it, up to a width.
fn rule(text: &str, width: usize) -> String {
    format!("{}{text}", "─".repeat(width.saturating_sub(columns(text))))
}
