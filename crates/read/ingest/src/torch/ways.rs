//! Whose program went another way: ranks whose last operation nobody, and they themselves, ever called behind the ones before it.
//!
//! All ranks of a job run one program, so what one calls behind some operations another has called before, or the rank itself a step ago.
//! Where a recorder is too short to hold a step, the other ranks' show the way.

use super::Recording;
use busbw_model::{FlightDump, FlightEntry};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// How many operations before the last are compared, at most.
const MOST_BEFORE: usize = 6;

/// The operations of each dump in the order of the run's dumps, up to where the rank is.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    of_dumps: Vec<Vec<u64>>,
}

impl Ways {
    /// Takes the operations of the next dump.
    pub fn take(&mut self, recording: &Recording) {
        let at = recording.entries.iter().position(|entry| recording.dump.at.as_ref() == Some(entry));
        let until = at.map_or(recording.entries.len(), |at| at + 1);
        self.of_dumps.push(recording.entries[..until].iter().map(what).collect());
    }

    /// Marks the dumps of ranks that went another way. Dumps that are left out show no way.
    pub fn finish(self, dumps: &mut [FlightDump]) {
        let ways: Vec<&[u64]> = self
            .of_dumps
            .iter()
            .zip(dumps.iter())
            .map(|(way, dump)| if dump.cut { &[][..] } else { way.as_slice() })
            .collect();
        let mut followers: FxHashMap<u64, FxHashMap<u64, u32>> = FxHashMap::default();
        for (_, before) in ways.iter().filter_map(|way| way.split_last()) {
            followers.extend(ends_of(before).map(|end| (hash(end), FxHashMap::default())));
        }
        for way in &ways {
            for (index, operation) in way.iter().enumerate() {
                for end in ends_of(&way[..index]) {
                    if let Some(known) = followers.get_mut(&hash(end)) {
                        *known.entry(*operation).or_default() += 1;
                    }
                }
            }
        }
        for (dump, way) in dumps.iter_mut().zip(&ways) {
            dump.unusual = way.split_last().is_some_and(|(last, before)| is_unusual(*last, before, &followers));
        }
    }
}

/// Whether others followed the operations before the last one, and none did so with the last one. Two operations before it that are alike
/// are enough to make it usual: one may stand in several places of a program.
fn is_unusual(last: u64, before: &[u64], followers: &FxHashMap<u64, FxHashMap<u64, u32>>) -> bool {
    let mut unusual = false;
    for end in ends_of(before).rev() {
        let Some(known) = followers.get(&hash(end)) else { continue };
        // Its own last operation is one of them.
        let alike = known.get(&last).copied().unwrap_or(0).saturating_sub(1);
        if alike > 0 && (end.len() > 1 || !unusual) {
            return false;
        }
        unusual |= known.keys().any(|operation| *operation != last);
    }
    unusual
}

/// The last operation, the last two, and so on.
fn ends_of(way: &[u64]) -> impl DoubleEndedIterator<Item = &[u64]> {
    (1..=MOST_BEFORE.min(way.len())).map(|count| &way[way.len() - count..])
}

/// An operation as all ranks call it: groups by what the program calls them, sends and receives without the peer.
fn what(entry: &FlightEntry) -> u64 {
    let described = entry.group.description.as_deref().filter(|description| *description != "undefined");
    let group = described.or(entry.group.name.as_deref());
    let operation = entry.work.op.split(' ').next();
    hash((group, operation, entry.work.numel_in, &entry.work.datatype, &entry.called_at))
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusual(ways: &[&str]) -> Vec<bool> {
        let of_dumps = ways.iter().map(|way| way.bytes().map(u64::from).collect()).collect();
        let mut dumps = vec![FlightDump::default(); ways.len()];
        Ways { of_dumps }.finish(&mut dumps);
        dumps.iter().map(|dump| dump.unusual).collect()
    }

    #[test]
    fn who_calls_what_nobody_calls_there_went_another_way() {
        let cases: [(&[&str], &[bool]); 6] = [
            // Rank 2 calls `c` where all call `b`.
            (&["abcabcab", "abcabcab", "abcabcac"], &[false, false, true]),
            // Recorders that hold less than a step: the others show the way.
            (&["cab", "abc", "bcb"], &[false, false, true]),
            // Behind the others, on the same way.
            (&["abcabc", "abcab"], &[false, false]),
            // Nobody was there before.
            (&["abcd", "abcd"], &[false, false]),
            (&["a", ""], &[false, false]),
            // An operation that stands twice in a step has two followers.
            (&["aabaab", "aabaa"], &[false, false]),
        ];
        for (ways, expected) in cases {
            assert_eq!(unusual(ways), expected, "{ways:?}");
        }
    }
}
