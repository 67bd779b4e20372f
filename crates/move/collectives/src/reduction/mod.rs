//! Reductions: every NCCL datatype and operation, vectorised for the CPU at hand.
//!
//! | what | here | NCCL (`src/device/reduce_kernel.h`) |
//! | --- | --- | --- |
//! | half, bfloat16, float8 | computed as float, rounded once per call | rounded after every pair, float8 as half |
//! | float8 beyond its range | the largest finite value | the same |
//! | max and min of a number and a NaN | the number; NaN only where every input is NaN | the same (`fmaxf`, `__hmax`) |
//! | max and min of 0 and -0 | the one that comes first in `ins` | as the GPU's instruction has it |
//! | integers that overflow | wrap | the same |
//! | avg of integers | the wrapped sum, divided towards zero | the same (`FuncSumPostDiv`) |
//! | avg of floats | the sum, divided | a product with 1/ranks, before or after the sum |
//!
//! Nothing here asks for aligned pointers. Results do not depend on the CPU, but for the bits that a NaN carries.

mod element;
pub mod float8;
mod kernel;
mod level;
mod narrow;
mod operator;
#[cfg(test)]
mod tests;

use crate::{Data, Room};
use busbw_model::{Datatype, RedOp};
use element::{Bfloat16, Half};
use float8::{F8E4M3, F8E5M2};
use kernel::Reduction;
use level::Level;
use operator::{Max, Min, Prod, Sum};
use std::sync::OnceLock;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Through the caches: what is written is read again soon.
    Cached,
    /// Past the caches, for totals beyond them: memory is not read before it is overwritten. Other cores see all of it
    /// before anything that is written after the call. Where the CPU has no such stores, the same as `Cached`.
    Streaming,
}

impl Store {
    /// For what is read and written once by an operation whose buffers are of `footprint` bytes in all, where the caches hold `cache`.
    pub fn of(footprint: usize, cache: usize) -> Self {
        if footprint > cache { Store::Streaming } else { Store::Cached }
    }
}

/// Bytes of the last cache that the first core has; a common size where the system does not say.
pub fn cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| last_level_cache().unwrap_or(32 << 20))
}

fn last_level_cache() -> Option<usize> {
    let size = |level| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{level}/size")).ok();
    let text = size(3).or_else(|| size(2))?;
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => 1,
    };
    Some(digits.parse::<usize>().ok()? * unit)
}

/// Writes `op over s of ins[s][i]` to `outs[d][i]`, for every `d` and every `i` below `count`.
///
/// Avg divides the sum by `ranks_for_avg`; 0 leaves it undivided, for a partial sum of a longer chain.
/// MulSum adds up: as in NCCL, its factors belong to the inputs, not to the reduction. Without inputs, nothing is done.
/// One input is copied as it is, NaNs and infinities included.
///
/// An output may be the very same memory as an input; where it overlaps one otherwise, what comes of it is not said.
///
/// # Panics
/// An input or output has fewer than `count` elements.
pub fn combine(
    outs: &[Room],
    ins: &[Data],
    count: usize,
    datatype: Datatype,
    redop: RedOp,
    ranks_for_avg: usize,
    store: Store,
) {
    let ranks = if redop == RedOp::Avg { ranks_for_avg.max(1) } else { 1 };
    let bytes = count * datatype.size() as usize;
    if let ([from], 1) = (ins, ranks) {
        return copy(outs, from.take(bytes), store);
    }
    let held = ins.iter().all(|from| from.len() >= bytes) && outs.iter().all(|to| to.len() >= bytes);
    assert!(held, "a reduction of {count} elements, of which a buffer has fewer");
    let reduction = Reduction { outs, ins, count, ranks, store };
    // SAFETY: every buffer holds `count` elements, and the CPU has what it was found to have.
    unsafe { reduce_at(Level::detect(), datatype, redop, &reduction) }
}

/// Copies `from` to the beginning of each of `to`. A target may be the very same memory; where it overlaps otherwise, what
/// comes of it is not said.
pub fn copy(to: &[Room], from: Data, store: Store) {
    // SAFETY: the CPU has what it was found to have.
    unsafe { copy_at(Level::detect(), to, from, store) }
}

/// [`copy`], with the instructions of a level.
///
/// # Safety
/// The CPU has the level.
unsafe fn copy_at(level: Level, to: &[Room], from: Data, store: Store) {
    assert!(to.iter().all(|target| target.len() >= from.len()), "a copy of {} bytes to fewer", from.len());
    // SAFETY: every target holds the bytes, and the CPU has the level.
    unsafe {
        match store {
            Store::Cached => kernel::copy_cached(to, from),
            Store::Streaming => level::dispatch!(level, copy(to, from)),
        }
    }
}

/// The kernel of a datatype and an operation. The last number is how many elements one step holds in registers: whole
/// cache lines, and four to eight vectors of the widest kind.
///
/// # Safety
/// Every buffer holds the elements, and the CPU has the level.
unsafe fn reduce_at(level: Level, datatype: Datatype, redop: RedOp, reduction: &Reduction<'_>) {
    macro_rules! of {
        ($element:ty, $step:literal) => {
            match redop {
                RedOp::Sum | RedOp::Avg | RedOp::MulSum => of!($element, Sum, $step),
                RedOp::Prod => of!($element, Prod, $step),
                RedOp::Max => of!($element, Max, $step),
                RedOp::Min => of!($element, Min, $step),
            }
        };
        ($element:ty, $operator:ty, $step:literal) => {
            level::dispatch!(level, reduce::<$element, $operator, $step>(reduction))
        };
    }
    // SAFETY: as the caller promises.
    unsafe {
        match datatype {
            Datatype::Int8 => of!(i8, 256),
            Datatype::Uint8 => of!(u8, 256),
            Datatype::Int32 => of!(i32, 64),
            Datatype::Uint32 => of!(u32, 64),
            Datatype::Int64 => of!(i64, 32),
            Datatype::Uint64 => of!(u64, 32),
            Datatype::Half => of!(Half, 64),
            Datatype::Bfloat16 => of!(Bfloat16, 64),
            Datatype::Float => of!(f32, 64),
            Datatype::Double => of!(f64, 32),
            Datatype::F8e4m3 => of!(F8E4M3, 64),
            Datatype::F8e5m2 => of!(F8E5M2, 64),
        }
    }
}
