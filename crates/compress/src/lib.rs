//! Which elements of a gradient to send: the k largest by magnitude, or those above a threshold.
//!
//! Elements are bits of a [`Format`], because magnitudes of floating-point numbers are ordered as their bits are. What a
//! selection costs is reading the elements, so they are read once where that is possible: a sample tells a magnitude that a
//! few more than k elements reach, one pass picks these candidates, and only they are looked at again ([`topk`]). Ties,
//! which no sample can tell apart, and samples that deceive are met by slower ways; the result is always exact.

mod count;
mod cut;
mod format;
mod parts;
mod sample;
mod take;

pub use format::{Bf16, Bits, F16, F32, F64, Format};

use cut::Cut;
use sample::Sample;
use std::num::NonZeroUsize;

/// Elements that were selected, in the order in which they stand in the tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection<B> {
    /// Where each element stands, ascending. Signed, as tensors' indices are.
    pub indices: Vec<i64>,
    /// The bits of each element, with its sign.
    pub values: Vec<B>,
}

/// More elements were asked for than there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot take {k} of {elements} elements; ask for {elements} at most")]
pub struct TooMany {
    pub k: usize,
    pub elements: usize,
}

/// Selects the `k` elements of largest magnitude. Of equal magnitudes the ones that come first are taken; NaN counts as
/// larger than infinity, whatever its payload, so that what went wrong in a gradient is never hidden.
///
/// At most `threads` threads work, fewer on small tensors.
///
/// # Errors
/// `k` exceeds the number of elements.
///
/// ```
/// use busbw_compress::{F32, topk};
/// let bits = [0.5f32, -3.0, 2.0, 3.0].map(f32::to_bits);
/// let top = topk::<F32>(&bits, 2, std::num::NonZeroUsize::MIN)?;
/// assert_eq!(top.indices, [1, 3]);
/// assert_eq!(top.values.iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<_>>(), [-3.0, 3.0]);
/// # Ok::<(), busbw_compress::TooMany>(())
/// ```
pub fn topk<F: Format>(bits: &[F::Bits], k: usize, threads: NonZeroUsize) -> Result<Selection<F::Bits>, TooMany> {
    if k > bits.len() {
        return Err(TooMany { k, elements: bits.len() });
    }
    if k == 0 {
        return Ok(Selection::default());
    }
    let Some(sample) = Sample::of::<F>(bits, k) else {
        return Ok(take::at_cut::<F>(bits, Cut::by_partition::<F>(bits, k), threads));
    };
    if let Some(top) = among_candidates::<F>(bits, k, &sample, threads) {
        return Ok(top);
    }
    let cut = Cut::confirmed::<F>(bits, k, sample.guess, threads);
    let cut = cut.unwrap_or_else(|| Cut::by_histogram::<F>(bits, k, threads));
    Ok(take::at_cut::<F>(bits, cut, threads))
}

/// Selects the elements of larger magnitude than that of `threshold`. NaN is larger than any other; nothing is larger than
/// a threshold that is NaN. At most `threads` threads work.
pub fn select_above<F: Format>(bits: &[F::Bits], threshold: F::Bits, threads: NonZeroUsize) -> Selection<F::Bits> {
    take::at_cut::<F>(bits, Cut { key: F::key(threshold), ties: 0 }, threads)
}

/// Selects among the few elements that reach the sample's floor; `None` if they are not few, or fewer than `k`.
fn among_candidates<F: Format>(
    bits: &[F::Bits],
    k: usize,
    sample: &Sample<F::Bits>,
    threads: NonZeroUsize,
) -> Option<Selection<F::Bits>> {
    let floor = sample.floor?;
    // Several times as many in one part: the sample was not representative.
    let most = floor.elements.saturating_mul(4).saturating_add(k);
    let candidates = take::reaching::<F>(bits, floor.key, most, threads)?;
    if candidates.values.len() < k {
        return None;
    }
    let cut = Cut::by_partition::<F>(&candidates.values, k);
    Some(take::of_candidates::<F>(&candidates, cut, k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::places;

    /// 200,000 elements, of which the sample sees only some that are unlike all others.
    fn deceiving(seen: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut bits: Vec<u32> = (0..200_000).map(|place| 1_000_000 + place).collect();
        places(bits.len()).for_each(|place| bits[place] = seen(place as u32));
        bits
    }

    #[test]
    fn a_sample_that_deceives_changes_nothing() {
        let below = deceiving(|place| 2 * place);
        let above = deceiving(|place| 2_000_000 + place);
        for (bits, k) in [(&below, 2000), (&above, 2000), (&above, 40_000)] {
            let mut order: Vec<usize> = (0..bits.len()).collect();
            order.sort_unstable_by_key(|place| std::cmp::Reverse(bits[*place]));
            let mut expected = order[..k].to_vec();
            expected.sort_unstable();
            let top = topk::<F32>(bits, k, NonZeroUsize::MIN).expect("k is in range");
            assert!(top.indices.iter().map(|index| *index as usize).eq(expected));
        }
    }
}
