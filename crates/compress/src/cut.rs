//! Where the k largest end: the k-th largest key, and how many elements of exactly this key belong to the k.

use crate::count::{Count, counts};
use crate::format::{Bits, Format};
use crate::parts::over_parts;
use std::num::NonZeroUsize;

/// What is selected: elements above a key, and the first few of exactly this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut<B> {
    /// The least key that is selected.
    pub key: B,
    /// How many elements of this key are selected: those that come first.
    pub ties: usize,
}

/// A histogram distinguishes keys by so many bits at a time: its counters fit a core's own cache.
const DIGIT_BITS: u32 = 16;

impl<B: Bits> Cut<B> {
    /// The cut of few elements, by partitioning a copy of their keys. `k` is at least 1 and at most their number.
    pub fn by_partition<F: Format<Bits = B>>(bits: &[B], k: usize) -> Self {
        let mut keys: Vec<B> = bits.iter().map(|bits| F::key(*bits)).collect();
        let place = keys.len() - k;
        let (_, key, above) = keys.select_nth_unstable(place);
        let ties = 1 + above.iter().filter(|other| *other == key).count();
        Cut { key: *key, ties }
    }

    /// The cut, if it is at this key: one pass counts what lies above it and on it.
    pub fn confirmed<F: Format<Bits = B>>(bits: &[B], k: usize, key: B, threads: NonZeroUsize) -> Option<Self> {
        let Count { above, equal } = counts::<F>(bits, key, threads).into_iter().sum();
        (above < k && k <= above + equal).then(|| Cut { key, ties: k - above })
    }

    /// The cut of any elements, by a histogram of their keys' upper digits, then of the lower digits of those keys whose
    /// upper digits are the cut's: a pass for every 16 bits. `k` is at least 1 and at most their number.
    pub fn by_histogram<F: Format<Bits = B>>(bits: &[B], k: usize, threads: NonZeroUsize) -> Self {
        let digits = B::MAGNITUDE_BITS.div_ceil(DIGIT_BITS);
        let (mut upper, mut wanted) = (0, k);
        for shift in (0..digits).rev().map(|digit| digit * DIGIT_BITS) {
            let histogram = histogram::<F>(bits, upper, shift, threads);
            let digit = digit_of(&histogram, &mut wanted);
            upper = upper << DIGIT_BITS | digit;
        }
        Cut { key: B::from_key(upper), ties: wanted }
    }
}

/// Counts the digit at `shift` of those keys whose upper digits are `upper`.
fn histogram<F: Format>(bits: &[F::Bits], upper: u64, shift: u32, threads: NonZeroUsize) -> Vec<usize> {
    let digits = 1 << DIGIT_BITS;
    let counted = over_parts(bits, threads, |part| {
        let mut counts = vec![0; digits];
        for bits in part.elements {
            let key: u64 = F::key(*bits).into();
            if key.checked_shr(shift + DIGIT_BITS).unwrap_or(0) == upper {
                counts[(key >> shift) as usize % digits] += 1;
            }
        }
        counts
    });
    let mut total = vec![0; digits];
    for counts in counted {
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    total
}

/// The digit in which the `wanted`-th largest falls; `wanted` becomes its rank among those of this digit.
fn digit_of(histogram: &[usize], wanted: &mut usize) -> u64 {
    let mut digit = histogram.len() - 1;
    while digit > 0 && histogram[digit] < *wanted {
        *wanted -= histogram[digit];
        digit -= 1;
    }
    digit as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Bf16, F16, F32, F64};
    use proptest::prelude::*;

    fn all_ways_agree<F: Format>(bits: &[F::Bits], k: usize) -> Result<(), TestCaseError> {
        let threads = NonZeroUsize::MIN;
        let cut = Cut::by_partition::<F>(bits, k);
        prop_assert_eq!(Cut::by_histogram::<F>(bits, k, threads), cut);
        prop_assert_eq!(Cut::confirmed::<F>(bits, k, cut.key, threads), Some(cut));
        for other in [F::key(bits[0]), cut.key.next()].into_iter().filter(|other| *other != cut.key) {
            prop_assert_eq!(Cut::confirmed::<F>(bits, k, other, threads), None);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_partition_and_a_histogram_give_the_same_cut(
            wide in prop::collection::vec(any::<u64>(), 1..200),
            few in prop::collection::vec(0u64..3, 1..200),
            share in 0.0..1.0,
        ) {
            for bits in [wide, few] {
                let k = 1 + (bits.len() as f64 * share) as usize;
                all_ways_agree::<F64>(&bits, k)?;
                all_ways_agree::<F32>(&bits.iter().map(|bits| *bits as u32).collect::<Vec<_>>(), k)?;
                all_ways_agree::<F16>(&bits.iter().map(|bits| *bits as u16).collect::<Vec<_>>(), k)?;
                all_ways_agree::<Bf16>(&bits.iter().map(|bits| *bits as u16).collect::<Vec<_>>(), k)?;
            }
        }
    }
}
