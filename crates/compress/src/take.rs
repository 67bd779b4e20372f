//! Picking elements out of a tensor.

use crate::Selection;
use crate::count::{Count, counts};
use crate::cut::Cut;
use crate::format::{Bits, Format};
use crate::parts::{Part, over_parts};
use std::num::NonZeroUsize;

/// Elements that are looked at together: where none of them is wanted, which is mostly so, a few instructions say it.
const BLOCK: usize = 32;

/// Takes what a cut selects.
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
fn take<F: Format>(part: Part<'_, F::Bits>, mut cut: Cut<F::Bits>, most: usize, out: &mut Selection<F::Bits>) -> bool {
    for (number, block) in part.elements.chunks(BLOCK).enumerate() {
        let least = if cut.ties > 0 { cut.key } else { cut.key.next() };
        if !block.iter().fold(false, |any, bits| any | (F::key(*bits) >= least)) {
            continue;
        }
        let start = part.start + number * BLOCK;
        for place in places_reaching::<F>(block, least).into_iter() {
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

/// Where in a block elements reach a key. Written without a branch, because which do is what no CPU can predict.
fn places_reaching<F: Format>(block: &[F::Bits], least: F::Bits) -> impl IntoIterator<Item = usize> {
    let mut places = [0u8; BLOCK];
    let mut found = 0;
    for (place, bits) in block.iter().enumerate() {
        places[found % BLOCK] = place as u8;
        found += usize::from(F::key(*bits) >= least);
    }
    places.into_iter().take(found).map(usize::from)
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
