//! One run against another: the ratio at each size, and the ranges in which one is faster.

use super::CONFIDENCE;
use super::measured::Measured;
use crate::statistics::p_differ;
use busbw_model::{Bytes, Contest, Faster, LargestCompared, SizeRange, SmallMessages};

/// Below this difference, in percent, neither is called faster: two runs of one binary on one machine differ by as much.
pub const EVEN_PCT: f64 = 5.0;
/// Up to this size latency decides, not bandwidth: what tables of nccl-tests over any network show.
const SMALL: Bytes = Bytes(64 << 10);

/// The first against the other, which is number `index` of the runs.
pub fn between(first: &Measured, other: &Measured, index: usize) -> Contest {
    let common: Vec<(Bytes, f64)> =
        first.sizes().filter_map(|size| ratio(first, other, size).map(|ratio| (size, ratio))).collect();
    let outcomes: Vec<(Bytes, Faster, f64)> =
        common.iter().map(|&(size, ratio)| (size, faster(first, other, size, ratio), ratio)).collect();
    let largest = common.last().map(|&(size_bytes, ratio)| LargestCompared { size_bytes, ratio });
    Contest { other: index, ranges: ranges(&outcomes), small: small(first, other), largest }
}

/// busbw of the first over that of the other. It uses the time column, which has more digits: for small sizes tables print
/// a busbw of 0.00. If the tests differ, only the printed busbw can be compared.
pub fn ratio(first: &Measured, other: &Measured, size: Bytes) -> Option<f64> {
    let (a, b) = (first.table(), other.table());
    let ratio = if a.collective == b.collective && a.nranks == b.nranks {
        other.times(size)?.mean / first.times(size)?.mean
    } else {
        first.cell(size)?.busbw.0 / other.cell(size)?.busbw.0
    };
    ratio.is_finite().then_some(ratio)
}

fn faster(first: &Measured, other: &Measured, size: Bytes, ratio: f64) -> Faster {
    let p = first.times(size).zip(other.times(size)).and_then(|(a, b)| p_differ(&a, &b));
    let even = ratio.max(1.0 / ratio) < 1.0 + EVEN_PCT / 100.0;
    match ratio {
        _ if even || p.is_some_and(|p| p > 1.0 - CONFIDENCE) => Faster::Neither,
        ratio if ratio > 1.0 => Faster::First,
        _ => Faster::Other,
    }
}

fn ranges(outcomes: &[(Bytes, Faster, f64)]) -> Vec<SizeRange> {
    let range = |sizes: &[(Bytes, Faster, f64)]| {
        let (from, faster, ratio) = sizes[0];
        let widen =
            |(least, most): (f64, f64), &(.., ratio): &(Bytes, Faster, f64)| (least.min(ratio), most.max(ratio));
        SizeRange { from, to: sizes[sizes.len() - 1].0, faster, ratio: sizes.iter().fold((ratio, ratio), widen) }
    };
    outcomes.chunk_by(|a, b| a.1 == b.1).map(range).collect()
}

fn small(first: &Measured, other: &Measured) -> Option<SmallMessages> {
    let sizes: Vec<Bytes> =
        first.sizes().filter(|size| *size <= SMALL && size.0 > 0 && other.at(*size).is_some()).collect();
    let ratios = sizes.iter().filter_map(|size| Some(other.times(*size)?.mean / first.times(*size)?.mean));
    let (least, most) = ratios.fold((f64::INFINITY, 0.0f64), |(least, most), r| (least.min(r), most.max(r)));
    let up_to = *sizes.last()?;
    least.is_finite().then_some(SmallMessages { up_to, time_ratio: (least, most) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_sizes_of_one_outcome_are_a_range() {
        let sizes = [(8, Faster::Neither, 1.0), (16, Faster::First, 1.5), (32, Faster::First, 3.0)];
        let found = ranges(&sizes.map(|(size, faster, ratio)| (Bytes(size), faster, ratio)));
        let first = SizeRange { from: Bytes(16), to: Bytes(32), faster: Faster::First, ratio: (1.5, 3.0) };
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], first);
    }
}
