//! How many elements lie above a key and on it.

use crate::format::Format;
use crate::parts::over_parts;
use std::iter::Sum;
use std::num::NonZeroUsize;

/// How elements stand to a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Those with a larger key.
    pub above: usize,
    /// Those with this key.
    pub equal: usize,
}

/// So many elements are counted in counters of 16 bits, which the CPU adds many at a time.
const BLOCK: usize = 4096;

/// Counts in every part of the elements.
pub(crate) fn counts<F: Format>(bits: &[F::Bits], key: F::Bits, threads: NonZeroUsize) -> Vec<Count> {
    over_parts(bits, threads, |part| part.elements.chunks(BLOCK).map(|block| count::<F>(block, key)).sum())
}

fn count<F: Format>(block: &[F::Bits], key: F::Bits) -> Count {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { count_by_avx2::<F>(block, key) };
    }
    count_by_any::<F>(block, key)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn count_by_avx2<F: Format>(block: &[F::Bits], key: F::Bits) -> Count {
    count_by_any::<F>(block, key)
}

#[inline(always)]
fn count_by_any<F: Format>(block: &[F::Bits], key: F::Bits) -> Count {
    let (mut above, mut equal) = (0u16, 0u16);
    for bits in block {
        let other = F::key(*bits);
        above += u16::from(other > key);
        equal += u16::from(other == key);
    }
    Count { above: above.into(), equal: equal.into() }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Self {
        counts.fold(Count::default(), |a, b| Count { above: a.above + b.above, equal: a.equal + b.equal })
    }
}
