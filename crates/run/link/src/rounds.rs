//! Which pairs are measured at the same time: every pair once, in rounds in which no end has two.

/// The rounds of a tournament of `ends` ends by the circle method: one end keeps its position, the others move on by one
/// after each round, and who faces whom is a pair. With an odd number, one end rests in each round.
///
/// ```
/// use busbw_link::rounds;
/// assert_eq!(rounds(4), [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]);
/// assert_eq!(rounds(3), [[(1, 2)], [(0, 2)], [(0, 1)]]);
/// ```
pub fn rounds(ends: usize) -> Vec<Vec<(usize, usize)>> {
    if ends < 2 {
        return Vec::new();
    }
    let positions = ends.next_multiple_of(2);
    let round = |number: usize| {
        // Position 0 never moves; the others are shifted by the number of the round.
        let at = |position: usize| {
            if position == 0 { 0 } else { 1 + (position - 1 + number * (positions - 2)) % (positions - 1) }
        };
        let pairs = (0..positions / 2).map(|position| (at(position), at(positions - 1 - position)));
        // With an odd number of ends, the last place is empty: its partner pauses.
        let mut pairs: Vec<_> =
            pairs.filter(|&(a, b)| a < ends && b < ends).map(|(a, b)| (a.min(b), a.max(b))).collect();
        pairs.sort_unstable();
        pairs
    };
    (0..positions - 1).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn every_pair_once_and_nobody_twice_in_a_round(ends in 0usize..70) {
            let rounds = rounds(ends);
            for round in &rounds {
                let busy: BTreeSet<usize> = round.iter().flat_map(|&(a, b)| [a, b]).collect();
                prop_assert_eq!(busy.len(), 2 * round.len(), "{:?}", round);
            }
            let pairs: Vec<(usize, usize)> = rounds.concat();
            let distinct: BTreeSet<(usize, usize)> = pairs.iter().copied().collect();
            let all: BTreeSet<(usize, usize)> = (0..ends).flat_map(|a| (a + 1..ends).map(move |b| (a, b))).collect();
            prop_assert_eq!(pairs.len(), distinct.len());
            prop_assert_eq!(distinct, all);
            prop_assert_eq!(rounds.len(), if ends < 2 { 0 } else { ends - 1 + ends % 2 });
        }
    }
}
