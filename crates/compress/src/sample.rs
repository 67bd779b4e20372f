//! What a sample of the elements shows about the cut.

use crate::format::Format;

/// Elements in a sample. Of 1% of all elements it says the least magnitude with a standard deviation of 6% in rank.
const SIZE: usize = 1 << 15;
/// With fewer elements per sampled one, looking at all of them is as fast.
const LEAST_STRIDE: usize = 4;
/// The floor lies so many standard deviations below where the sample puts the cut: it is missed once in 30,000 times.
const DEVIATIONS: f64 = 4.0;
/// Picking out more than this share of the elements takes longer than finding the cut without.
const LARGEST_SHARE: f64 = 0.3;

/// A sample's view of the cut.
#[derive(Debug)]
pub(crate) struct Sample<B> {
    /// The key that most likely is the cut's.
    pub guess: B,
    /// What almost surely lies a little below the cut; `None` where ties leave nothing between there and everything.
    pub floor: Option<Floor<B>>,
}

/// A key that few elements reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor<B> {
    pub key: B,
    /// About how many elements reach it.
    pub elements: usize,
}

impl<B: Copy + Ord> Sample<B> {
    /// Samples the elements; `None` where there are too few for it to pay. `k` is at least 1 and at most their number.
    pub fn of<F: Format<Bits = B>>(bits: &[B], k: usize) -> Option<Self> {
        if bits.len() < SIZE * LEAST_STRIDE {
            return None;
        }
        let mut keys: Vec<B> = places(bits.len()).map(|place| F::key(bits[place])).collect();
        let rank = k as f64 / bits.len() as f64 * SIZE as f64;
        // The standard deviation of a count is the square root of its mean; add one, because the mean may be near zero.
        let below = (rank + DEVIATIONS * (rank.sqrt() + 1.0)) as usize;
        let floor = floor(&mut keys, below, bits.len() as f64 / SIZE as f64);
        let (_, guess, _) = keys.select_nth_unstable(SIZE - 1 - (rank as usize).min(SIZE - 1));
        Some(Sample { guess: *guess, floor })
    }
}

/// The key of a rank in the sample, from 0 for the largest, if it is one that few elements reach: not where ties with it
/// go on far below the rank.
fn floor<B: Copy + Ord>(keys: &mut [B], rank: usize, stride: f64) -> Option<Floor<B>> {
    let place = SIZE.checked_sub(rank + 1)?;
    let (lower, key, _) = keys.select_nth_unstable(place);
    let reaching = rank + 1 + lower.iter().filter(|other| *other == key).count();
    let few = reaching <= 2 * (rank + 1) && reaching as f64 <= LARGEST_SHARE * SIZE as f64;
    few.then_some(Floor { key: *key, elements: (reaching as f64 * stride) as usize })
}

/// Places spread over all elements, each anywhere in its stretch, so that what repeats in the tensor does not deceive.
pub(crate) fn places(elements: usize) -> impl Iterator<Item = usize> {
    let stride = elements / SIZE;
    (0..SIZE).map(move |number| {
        let start = (number as u128 * elements as u128 / SIZE as u128) as usize;
        start + scrambled(number as u64) as usize % stride
    })
}

/// A number that looks random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), so that equal tensors give equal samples.
fn scrambled(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::F32;

    fn sample(keys: impl Fn(usize) -> u32, elements: usize, k: usize) -> Sample<u32> {
        let bits: Vec<u32> = (0..elements).map(keys).collect();
        Sample::of::<F32>(&bits, k).expect("enough elements")
    }

    #[test]
    fn places_are_spread_over_all_elements() {
        for elements in [SIZE * LEAST_STRIDE, 200_000, 1_000_003] {
            let places: Vec<usize> = places(elements).collect();
            assert!(places.is_sorted_by(|a, b| a < b), "each once");
            assert!(places[0] < elements / SIZE && places[SIZE - 1] >= elements - 2 * elements / SIZE);
            assert!(places[SIZE - 1] < elements);
        }
    }

    #[test]
    fn a_floor_is_reached_by_k_elements_and_a_few_more() {
        let elements = 1_000_000;
        for k in [1, 1000, 10_000, 100_000] {
            let floor = sample(|place| place as u32, elements, k).floor.expect("no ties");
            let reaching = elements - floor.key as usize;
            assert!(reaching >= k, "{k}: {reaching}");
            assert!(reaching <= 2 * k + elements / 1000, "{k}: {reaching}");
            assert!(
                floor.elements.abs_diff(reaching) <= reaching / 2 + 100,
                "{k}: {reaching}, said {}",
                floor.elements
            );
        }
    }

    #[test]
    fn ties_leave_no_floor_and_a_guess() {
        let constant = sample(|_| 7, 200_000, 2000);
        assert!(constant.floor.is_none());
        assert_eq!(constant.guess, 7);
        assert!(sample(|place| place as u32, 200_000, 150_000).floor.is_none(), "too many for candidates");
    }

    #[test]
    fn few_elements_are_not_sampled() {
        assert!(Sample::of::<F32>(&vec![0; SIZE * LEAST_STRIDE - 1], 1).is_none());
    }
}
