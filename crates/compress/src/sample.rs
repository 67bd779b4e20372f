//! What a sample of the elements tells of the cut.

use crate::format::Format;

/// Elements in a sample. One percent of them says where one percent of all ends to within 6% (one standard deviation).
const SIZE: usize = 1 << 15;
/// With fewer elements per sampled one, looking at all of them is as fast.
const LEAST_STRIDE: usize = 4;
/// The floor lies so many standard deviations below where the sample puts the cut: it is missed once in 30,000 times.
const DEVIATIONS: f64 = 4.0;
/// Candidates are worth copying as long as they are at most this share of all elements.
const LARGEST_SHARE: f64 = 0.3;

/// A sample's view of the cut.
#[derive(Debug)]
pub(crate) struct Sample<B> {
    /// The key that most likely is the cut's.
    pub guess: B,
    /// A key that at least k elements reach, almost surely, and not many more; `None` where ties leave no such key.
    pub floor: Option<B>,
}

impl<B: Copy + Ord> Sample<B> {
    /// Samples the elements; `None` where there are too few for it to pay. `k` is at least 1 and at most their number.
    pub fn of<F: Format<Bits = B>>(bits: &[B], k: usize) -> Option<Self> {
        if bits.len() < SIZE * LEAST_STRIDE {
            return None;
        }
        let mut keys: Vec<B> = places(bits.len()).map(|place| F::key(bits[place])).collect();
        let expected = SIZE as f64 * (k as f64 / bits.len() as f64);
        let rank = (expected as usize).min(SIZE - 1);
        // One more deviation's worth of a single element, for samples in which a handful reach the cut.
        let lower = (expected + DEVIATIONS * (expected.sqrt() + 1.0)).ceil() as usize;
        let floor = (lower < SIZE).then(|| {
            let (below, floor, _) = keys.select_nth_unstable(SIZE - 1 - lower);
            let reach = lower + 1 + below.iter().filter(|key| *key == floor).count();
            // Ties at the floor become candidates too; k.max(…) is what is asked for anyway.
            let few = reach as f64 <= LARGEST_SHARE * SIZE as f64 && reach <= 2 * lower;
            few.then_some(*floor)
        });
        let (_, guess, _) = keys.select_nth_unstable(SIZE - 1 - rank);
        Some(Sample { guess: *guess, floor: floor.flatten() })
    }
}

/// Places spread over all elements, each anywhere in its stretch, so that what repeats in the tensor does not deceive.
fn places(elements: usize) -> impl Iterator<Item = usize> {
    let stride = elements / SIZE;
    (0..SIZE).map(move |number| number * stride + scrambled(number as u64) as usize % stride)
}

/// A number that looks random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), so that equal tensors give equal samples.
fn scrambled(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
