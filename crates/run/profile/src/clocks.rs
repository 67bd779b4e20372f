//! How far the clocks of hosts are apart, by what their ranks did together.
//!
//! No rank ends an all-reduce before the last has begun it, whose data it needs. So each operation bounds the difference of two hosts' clocks
//! from both sides, as messages in both directions do. Clocks that these bounds allow are left as they are.

use crate::ledger::Operation;
use busbw_model::Collective;
use rustc_hash::FxHashMap;

/// No bound.
const FAR: i64 = i64::MAX / 4;

/// What is added to the times of each host, and by how much they may be wrong beside each other then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clocks {
    pub ahead_ns: Vec<i64>,
    /// `None` where hosts have nothing in common that tells.
    pub error_ns: Option<i64>,
}

/// An operation on one host: the last begin and the first end there.
#[derive(Clone, Copy)]
struct OnHost {
    ranks: u32,
    begin_ns: u64,
    end_ns: u64,
}

/// An operation's ranks, and what each host did of it.
type Together = (u32, Vec<Option<OnHost>>);

/// From operations whose times are nanoseconds since 1970, each with the number of its host.
pub(crate) fn clocks<'a>(operations: impl Iterator<Item = (usize, &'a Operation)>, hosts: usize) -> Clocks {
    let mut together: FxHashMap<(u64, u64), Together> = FxHashMap::default();
    for (host, operation) in operations.filter(|(_, operation)| needs_all(operation)) {
        let Some(end_ns) = operation.end_ns else { continue };
        let key = (operation.communicator.hash, operation.of.1);
        let (_, all) = together.entry(key).or_insert_with(|| (operation.communicator.ranks, vec![None; hosts]));
        let own = all[host].get_or_insert(OnHost { ranks: 0, begin_ns: 0, end_ns });
        own.ranks += 1;
        own.begin_ns = own.begin_ns.max(operation.begin_ns);
        own.end_ns = own.end_ns.min(end_ns);
    }
    // By how much one host's times can be moved up beside another's at most.
    let mut most = vec![vec![FAR; hosts]; hosts];
    for (ranks, all) in together.into_values() {
        // Two operations with one number are none that belong together.
        if all.iter().flatten().map(|own| own.ranks).sum::<u32>() > ranks {
            continue;
        }
        let there = || all.iter().enumerate().filter_map(|(host, own)| Some((host, (*own)?)));
        for (ends, first) in there() {
            for (begins, last) in there().filter(|(begins, _)| *begins != ends) {
                let room = first.end_ns.wrapping_sub(last.begin_ns).cast_signed();
                most[ends][begins] = most[ends][begins].min(room);
            }
        }
    }
    (0..hosts).for_each(|host| most[host][host] = 0);
    // What follows from bounds of others (Floyd and Warshall).
    for by in 0..hosts {
        for from in 0..hosts {
            for to in 0..hosts {
                most[from][to] = most[from][to].min(most[from][by].saturating_add(most[by][to]));
            }
        }
    }
    let ahead_ns: Vec<i64> = (0..hosts).map(|host| nearest(-most[host][0], most[0][host])).collect();
    let error = |from: usize, to: usize| most[from][to].saturating_sub(ahead_ns[to] - ahead_ns[from]).saturating_abs();
    let error =
        (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))).map(|(from, to)| error(from, to)).max();
    match error.unwrap_or(0) {
        error if error < FAR / 4 => Clocks { ahead_ns, error_ns: Some(error) },
        _ => Clocks { ahead_ns: vec![0; hosts], error_ns: None },
    }
}

/// Nothing where the bounds allow it, else their middle; bounds that exclude each other are wrong by as much.
fn nearest(low: i64, high: i64) -> i64 {
    if low <= 0 && high >= 0 { 0 } else { low / 2 + high / 2 }
}

/// Whether no rank can end it before all have begun.
fn needs_all(operation: &Operation) -> bool {
    let all = matches!(
        operation.collective,
        Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll
    );
    all && operation.bytes > 0 && operation.communicator.hash != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Communicator;
    use busbw_events::Source;

    /// An all-reduce of two ranks on two hosts, as each sees it.
    fn both(number: u64, begin: [u64; 2], end: [u64; 2]) -> impl Iterator<Item = (usize, Operation)> {
        (0..2).map(move |host| {
            let communicator = Communicator { hash: 7, ranks: 2, nodes: 2, rank: host as u32, source: Source::Engine };
            (host, Operation::of_rank(communicator, number, begin[host], end[host]))
        })
    }

    fn found(all: &[(usize, Operation)]) -> Clocks {
        clocks(all.iter().map(|(host, operation)| (*host, operation)), 2)
    }

    #[test]
    fn operations_bound_clocks_from_both_sides() {
        // Either host is the last to begin once, by 90 of 100.
        let all = |ahead: u64| -> Vec<_> {
            let first = both(0, [1000, 1090 + ahead], [1100, 1100 + ahead]);
            first.chain(both(1, [2090, 2000 + ahead], [2100, 2100 + ahead])).collect()
        };
        assert_eq!(found(&all(0)), Clocks { ahead_ns: vec![0, 0], error_ns: Some(10) });
        // Within the bounds: as it is.
        assert_eq!(found(&all(8)), Clocks { ahead_ns: vec![0, 0], error_ns: Some(18) });
        assert_eq!(found(&all(5000)), Clocks { ahead_ns: vec![0, -5000], error_ns: Some(10) });
    }

    #[test]
    fn hosts_without_anything_in_common_are_not_known() {
        let mut all: Vec<_> = both(0, [1000, 1000], [1100, 1100]).collect();
        all[1].1.communicator.hash = 8;
        assert_eq!(found(&all).error_ns, None);
        // Two jobs whose numbers are the same.
        let doubled: Vec<_> = both(0, [0, 0], [10, 10]).chain(both(0, [50, 50], [60, 60])).collect();
        assert_eq!(found(&doubled).error_ns, None);
    }
}
