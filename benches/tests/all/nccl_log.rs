//! The generated log read back as text: rings, trees and connections agree with each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use busbw_benches::nccl_log::{Prefix, Shape, write_log};
use busbw_model::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Channel, from, to.
type Edge = (u32, u32, u32);

/// What the lines of one communicator say.
#[derive(Debug, Default)]
struct Read {
    rings: BTreeMap<u32, Vec<u32>>,
    /// Channel and rank to the children and the parent.
    trees: BTreeMap<(u32, u32), (Vec<u32>, Option<u32>)>,
    p2p: Vec<Edge>,
    sends: Vec<Edge>,
    receives: Vec<Edge>,
    /// Ranks that printed `Init COMPLETE`.
    complete: BTreeSet<u32>,
    comm_ids: BTreeSet<String>,
    pointers: BTreeSet<String>,
}

fn shape(ranks: u32, gpus_per_node: u32, channels: u32) -> Shape {
    Shape { ranks, gpus_per_node, channels, bytes: None, seed: 1, prefix: Prefix::None, cut: false }
}

fn generate(shape: &Shape) -> String {
    let mut log = Vec::new();
    write_log(shape, &mut log).unwrap();
    String::from_utf8(log).unwrap()
}

fn word_after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(key)?.1.split_whitespace().next()
}

fn read(log: &str) -> Read {
    let mut read = Read::default();
    for message in log.lines().filter_map(|line| Some(line.split_once(" NCCL INFO ")?.1)) {
        if let Some((edge, via)) = message.split_once(" via ") {
            let edge_numbers: Vec<u32> = edge
                .split(|c: char| !c.is_ascii_digit())
                .filter(|n| !n.is_empty())
                .map(|n| n.parse().unwrap())
                .collect();
            // Channel, connection, from, its device, to, its device.
            let edge_ends = (edge_numbers[0], edge_numbers[2], edge_numbers[4]);
            match (via.starts_with("P2P"), edge.contains("[send]")) {
                (true, _) => read.p2p.push(edge_ends),
                (false, true) => read.sends.push(edge_ends),
                (false, false) => read.receives.push(edge_ends),
            }
        } else if let Some((channel, order)) = message.strip_prefix("Channel ").and_then(|m| m.split_once(" :")) {
            let channel = channel.split('/').next().unwrap().parse().unwrap();
            read.rings.insert(channel, order.split_whitespace().map(|rank| rank.parse().unwrap()).collect());
        } else if let Some(trees) = message.strip_prefix("Trees ") {
            let words: Vec<&str> = trees.split_whitespace().collect();
            for pair in words.chunks(2) {
                let channel = pair[0].trim_matches(['[', ']']).parse().unwrap();
                let [down, rank, up] = pair[1].split("->").collect::<Vec<_>>()[..] else { panic!("{message}") };
                let down = down.split('/').filter(|&d| d != "-1").map(|d| d.parse().unwrap()).collect();
                read.trees.insert((channel, rank.parse().unwrap()), (down, up.parse().ok()));
            }
        } else if message.ends_with("Init COMPLETE") {
            read.complete.insert(word_after(message, " rank ").unwrap().parse().unwrap());
            read.comm_ids.insert(word_after(message, "commId ").unwrap().to_string());
            read.pointers.insert(word_after(message, "comm ").unwrap().to_string());
        }
    }
    read
}

/// Every pair that a ring or a tree connects.
fn wanted(read: &Read) -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for (&channel, order) in &read.rings {
        for (at, &from) in order.iter().enumerate() {
            edges.insert((channel, from, order[(at + 1) % order.len()]));
        }
    }
    for (&(channel, rank), (down, up)) in &read.trees {
        for &peer in down.iter().chain(up) {
            edges.extend([(channel, rank, peer), (channel, peer, rank)]);
        }
    }
    edges.retain(|(_, from, to)| from != to);
    edges
}

#[test]
fn rings_trees_and_connections_agree() {
    for (ranks, gpus, channels) in [(16, 8, 16), (24, 8, 32), (8, 8, 12), (20, 4, 4), (6, 1, 2), (2, 1, 1), (9, 3, 5)] {
        let read = read(&generate(&shape(ranks, gpus, channels)));
        let everyone: Vec<u32> = (0..ranks).collect();
        assert_eq!(read.rings.keys().copied().collect::<Vec<u32>>(), (0..channels).collect::<Vec<u32>>());
        for (channel, order) in &read.rings {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, everyone, "{ranks} ranks, channel {channel}");
        }
        assert_eq!(read.trees.len() as u32, ranks * channels);
        for (&(channel, rank), (down, _)) in &read.trees {
            for &child in down {
                assert_eq!(read.trees[&(channel, child)].1, Some(rank), "channel {channel}: {rank} -> {child}");
            }
        }

        let is_local = |&(_, from, to): &Edge| from / gpus == to / gpus;
        let (local, remote): (BTreeSet<Edge>, BTreeSet<Edge>) = wanted(&read).into_iter().partition(is_local);
        for (printed, expected) in [(&read.p2p, &local), (&read.sends, &remote), (&read.receives, &remote)] {
            assert_eq!(&printed.iter().copied().collect::<BTreeSet<_>>(), expected, "{ranks} ranks");
            assert_eq!(printed.len(), expected.len(), "{ranks} ranks: a connection is printed twice");
        }
        assert_eq!(read.complete.into_iter().collect::<Vec<_>>(), everyone);
        assert_eq!((read.comm_ids.len(), read.pointers.len() as u32), (1, ranks));
    }
}

#[test]
fn a_seed_gives_one_log() {
    let first = generate(&shape(16, 8, 4));
    assert_eq!(first, generate(&shape(16, 8, 4)));
    assert_ne!(first, generate(&Shape { seed: 2, ..shape(16, 8, 4) }));
}

#[test]
fn further_communicators_have_processes_and_ids_of_their_own() {
    let one = generate(&shape(16, 8, 4)).len() as u64;
    let log = generate(&Shape { bytes: Some(Bytes(one * 2 + 1)), ..shape(16, 8, 4) });
    let all = read(&log);
    assert_eq!((all.comm_ids.len(), all.pointers.len()), (3, 48));
    let pids: BTreeSet<&str> = log.lines().filter_map(|line| word_after(line, " Pid ")).collect();
    assert!(pids.len() > 16, "{pids:?}");
    assert_eq!(log.matches("# Avg bus bandwidth").count(), 3);
}

#[test]
fn every_line_has_the_launchers_label() {
    let bare = generate(&shape(16, 8, 4));
    for (prefix, of_rank_3) in [(Prefix::Mpirun, "[1,3]<stdout>:"), (Prefix::Srun, " 3: ")] {
        let log = generate(&Shape { prefix, ..shape(16, 8, 4) });
        let without: Vec<&str> = log
            .lines()
            .map(|line| match prefix {
                Prefix::Mpirun => line.split_once("<stdout>:").unwrap().1,
                _ => line.split_once(": ").unwrap().1,
            })
            .collect();
        assert_eq!(without, bare.lines().collect::<Vec<_>>());
        let line = log.lines().find(|line| line.contains(" rank 3 nranks 16 ")).unwrap();
        assert!(line.starts_with(of_rank_3), "{line}");
    }
}

#[test]
fn cut_lines_end_as_nccl_ends_them() {
    let log = generate(&Shape { cut: true, ..shape(512, 8, 64) });
    let messages: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once(" NCCL INFO ")?.1)).collect();
    let order = messages.iter().find(|m| m.starts_with("Channel 00/64 :")).unwrap();
    assert_eq!((order.len(), order.ends_with("...")), (127, true));
    assert_eq!(log.lines().filter(|line| line.contains(" NCCL INFO ")).map(str::len).max(), Some(1023));
}

#[test]
fn impossible_shapes_are_refused() {
    let cases = [(0, 8, 4, "--ranks is 0"), (16, 8, 65, "--channels is 65"), (20, 8, 4, "choose a multiple of 8")];
    for (ranks, gpus, channels, message) in cases {
        let error = write_log(&shape(ranks, gpus, channels), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
