//! Picking elements out of a tensor.

use crate::Selection;
use crate::count::{Count, counts};
use crate::cut::Cut;
use crate::format::{Bits, Format};
use crate::parts::{Part, over_parts};
use std::num::NonZeroUsize;

/// Elements that are looked at together: where none of them is wanted, which is mostly so, a few instructions say it.
const BLOCK: usize = 32;

pub(crate) fn at_cut<F: Format>(bits: &[F::Bits], cut: Cut<F::Bits>, threads: NonZeroUsize) -> Selection<F::Bits> {
    let counts = if cut.ties > 0 { counts::<F>(bits, cut.key, threads) } else { Vec::new() };
    let taken = over_parts(bits, threads, |part| {
        let mut out = Selection::default();
        take::<F>(part, Cut { ties: ties_of(part.number, &counts, cut.ties), ..cut }, usize::MAX, &mut out);
        out
    });
    joined(taken)
}

/// How many of the tied elements fall to a part: those of earlier parts come first.
fn ties_of(part: usize, counts: &[Count], ties: usize) -> usize {
    let before: usize = counts.iter().take(part).map(|count| count.equal).sum();
    ties.saturating_sub(before)
}

/// Takes all elements that reach a key; `None` if there are more than `most` in a part.
pub(crate) fn reaching<F: Format>(
    bits: &[F::Bits],
    key: F::Bits,
    most: usize,
    threads: NonZeroUsize,
) -> Option<Selection<F::Bits>> {
    let taken = over_parts(bits, threads, |part| {
        let mut out = Selection::default();
        take::<F>(part, Cut { key, ties: usize::MAX }, most, &mut out).then_some(out)
    });
    taken.into_iter().collect::<Option<Vec<_>>>().map(joined)
}

/// Takes what a cut selects of candidates.
pub(crate) fn of_candidates<F: Format>(
    candidates: &Selection<F::Bits>,
    cut: Cut<F::Bits>,
    k: usize,
) -> Selection<F::Bits> {
    let mut taken = Selection { indices: Vec::with_capacity(k), values: Vec::with_capacity(k) };
    let mut ties = cut.ties;
    for (index, value) in candidates.indices.iter().zip(&candidates.values) {
        let key = F::key(*value);
        if key > cut.key || (key == cut.key && ties > 0) {
            ties -= usize::from(key == cut.key);
            taken.indices.push(*index);
            taken.values.push(*value);
        }
    }
    taken
}

/// Takes what a cut selects of a part. Stops, and returns false, when more than `most` were taken.
fn take<F: Format>(part: Part<'_, F::Bits>, cut: Cut<F::Bits>, most: usize, out: &mut Selection<F::Bits>) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { take_by_avx2::<F>(part, cut, most, out) };
    }
    take_by_any::<F>(part, cut, most, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn take_by_avx2<F: Format>(
    part: Part<'_, F::Bits>,
    cut: Cut<F::Bits>,
    most: usize,
    out: &mut Selection<F::Bits>,
) -> bool {
    take_by_any::<F>(part, cut, most, out)
}

#[inline(always)]
fn take_by_any<F: Format>(
    part: Part<'_, F::Bits>,
    mut cut: Cut<F::Bits>,
    most: usize,
    out: &mut Selection<F::Bits>,
) -> bool {
    for (number, block) in part.elements.chunks(BLOCK).enumerate() {
        let least = if cut.ties > 0 { cut.key } else { cut.key.next() };
        if least > F::NAN {
            return true;
        }
        let start = part.start + number * BLOCK;
        // A block of known length is compared without a loop.
        let found = match <&[F::Bits; BLOCK]>::try_from(block) {
            Ok(whole) => reaching_in(whole, least),
            Err(_) => reaching_in(block, least),
        };
        for place in places(found) {
            let bits = block[place];
            if F::key(bits) == cut.key {
                if cut.ties == 0 {
                    continue;
                }
                cut.ties -= 1;
            }
            out.indices.push((start + place) as i64);
            out.values.push(bits);
        }
        if out.values.len() > most {
            return false;
        }
    }
    true
}

/// The elements of a block that reach a key, a bit each. The key is NaN's at most, so that NaN reaches it by any payload.
#[inline(always)]
fn reaching_in<B: Bits>(block: &[B], least: B) -> u32 {
    let reaches = |bits: &B| u32::from(bits.magnitude() >= least);
    block.iter().enumerate().fold(0, |found, (place, bits)| found | reaches(bits) << place)
}

/// The places of set bits, the lowest first.
#[inline(always)]
fn places(mut found: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (found != 0).then(|| found.trailing_zeros() as usize);
        found &= found.wrapping_sub(1);
        place
    })
}

fn joined<B: Bits>(mut selections: Vec<Selection<B>>) -> Selection<B> {
    if selections.len() == 1 {
        return selections.pop().unwrap_or_default();
    }
    let total = selections.iter().map(|selection| selection.values.len()).sum();
    let mut all = Selection { indices: Vec::with_capacity(total), values: Vec::with_capacity(total) };
    for selection in selections {
        all.indices.extend(selection.indices);
        all.values.extend(selection.values);
    }
    all
}
