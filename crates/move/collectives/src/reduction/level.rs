//! What the CPU can do, found at run time, and the few instructions that have to be asked for by name.

use super::element::{Element, Half};
use super::kernel::{self, Call, Reduction, Step};
use super::operator::Operator;
use crate::{Data, Room};

/// A set of instructions that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What every CPU of the architecture has: SSE2, NEON.
    Baseline,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The highest level that this CPU has. The standard library remembers what it found.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("f16c") {
                let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
                return if wide { Level::Avx512 } else { Level::Avx2 };
            }
        }
        Level::Baseline
    }

    /// Every level that this CPU has, the lowest first.
    #[cfg(test)]
    pub(super) fn all() -> &'static [Level] {
        #[cfg(target_arch = "x86_64")]
        return match Level::detect() {
            Level::Baseline => &[Level::Baseline],
            Level::Avx2 => &[Level::Baseline, Level::Avx2],
            Level::Avx512 => &[Level::Baseline, Level::Avx2, Level::Avx512],
        };
        #[cfg(not(target_arch = "x86_64"))]
        &[Level::Baseline]
    }
}

/// Calls a function of [`Instructions`] on a level.
macro_rules! dispatch {
    ($level:expr, $($call:tt)*) => {
        match $level {
            $crate::reduction::level::Level::Baseline => {
                <$crate::reduction::level::Baseline as $crate::reduction::level::Instructions>::$($call)*
            }
            #[cfg(target_arch = "x86_64")]
            $crate::reduction::level::Level::Avx2 => {
                <$crate::reduction::level::Avx2 as $crate::reduction::level::Instructions>::$($call)*
            }
            #[cfg(target_arch = "x86_64")]
            $crate::reduction::level::Level::Avx512 => {
                <$crate::reduction::level::Avx512 as $crate::reduction::level::Instructions>::$($call)*
            }
        }
    };
}
pub(super) use dispatch;

/// The kernels compiled for a level, and what the compiler does not find by itself.
///
/// # Safety
/// Every function asks for a CPU that has the level, and for what the kernel that it names asks for.
pub(super) trait Instructions {
    /// [`kernel::reduce`], compiled for the level.
    unsafe fn reduce<E: Element, O: Operator, const STEP: usize>(reduction: &Reduction<'_>);

    /// [`Call::part`], compiled for the level.
    unsafe fn part<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, elements: usize);

    /// [`Call::edge`], compiled for the level.
    unsafe fn edge<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, at: usize) -> Step<E, STEP>;

    /// [`kernel::copy_streaming`], compiled for the level.
    unsafe fn copy(to: &[Room], from: Data);

    /// Writes `bytes` bytes, a multiple of 64, past the caches. `to` is aligned to 64 bytes, `from` to anything.
    unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize);

    /// `STEP` halves, a multiple of 16, as floats.
    #[inline(always)]
    unsafe fn load_half<const STEP: usize>(from: *const u8, to: &mut [f32; STEP]) {
        // SAFETY: as the caller promises; every bit pattern is a half.
        let elements = unsafe { from.cast::<[Half; STEP]>().read_unaligned() };
        for (number, element) in to.iter_mut().zip(elements) {
            *number = element.widen();
        }
    }

    /// `STEP` floats, a multiple of 16, as halves.
    #[inline(always)]
    unsafe fn store_half<const STEP: usize>(from: &[f32; STEP], to: &mut [Half; STEP]) {
        for (element, number) in to.iter_mut().zip(from) {
            *element = Half::narrow(*number);
        }
    }
}

/// [`Level::Baseline`].
pub(super) enum Baseline {}

impl Instructions for Baseline {
    unsafe fn reduce<E: Element, O: Operator, const STEP: usize>(reduction: &Reduction<'_>) {
        // SAFETY: as the caller promises.
        unsafe { kernel::reduce::<Self, E, O, STEP>(reduction) }
    }

    #[inline(never)]
    unsafe fn part<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, elements: usize) {
        // SAFETY: as the caller promises.
        unsafe { call.part::<Self, E, O, STEP>(elements) }
    }

    #[inline(never)]
    unsafe fn edge<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, at: usize) -> Step<E, STEP> {
        // SAFETY: as the caller promises.
        unsafe { call.edge::<Self, E, O, STEP>(at) }
    }

    unsafe fn copy(to: &[Room], from: Data) {
        // SAFETY: as the caller promises.
        unsafe { kernel::copy_streaming::<Self>(to, from) }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        for at in (0..bytes).step_by(16) {
            // SAFETY: `at` is a multiple of 16 within what the caller promises, and `to` is aligned.
            unsafe { _mm_stream_si128(to.add(at).cast::<__m128i>(), _mm_loadu_si128(from.add(at).cast())) }
        }
    }

    #[cfg(any(not(target_arch = "x86_64"), miri))]
    #[inline(always)]
    unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    unsafe fn load_half<const STEP: usize>(from: *const u8, to: &mut [f32; STEP]) {
        for (part, numbers) in to.chunks_exact_mut(4).enumerate() {
            // SAFETY: four halves of those that the caller promises, four floats of the slice.
            unsafe { arm::load_halves(from.add(8 * part), numbers) }
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    unsafe fn store_half<const STEP: usize>(from: &[f32; STEP], to: &mut [Half; STEP]) {
        for (numbers, elements) in from.chunks_exact(4).zip(to.chunks_exact_mut(4)) {
            // SAFETY: four floats and four halves of the slices.
            unsafe { arm::store_halves(numbers, elements) }
        }
    }
}

/// Waits until other cores see what was streamed.
#[inline(always)]
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every CPU of this architecture has the instruction, which touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}

/// Asks for the line at an address that may be anything.
#[inline(always)]
pub(super) fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every CPU of this architecture has the instruction, which faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = line;
}

/// NEON's conversions of halves, which every CPU of the architecture has and the standard library does not yet name.
#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::{float32x4_t, uint16x4_t, vld1q_f32, vst1_u16, vst1q_f32};
    use std::arch::asm;

    use super::Half;

    /// Four halves as floats.
    ///
    /// # Safety
    /// Four halves are readable at `from`, and `to` holds four floats.
    #[inline(always)]
    pub(super) unsafe fn load_halves(from: *const u8, to: &mut [f32]) {
        // SAFETY: as the caller promises; the instruction touches registers only.
        unsafe {
            let halves: uint16x4_t = from.cast::<uint16x4_t>().read_unaligned();
            let floats: float32x4_t;
            asm!("fcvtl {floats:v}.4s, {halves:v}.4h", halves = in(vreg) halves, floats = lateout(vreg) floats,
                options(pure, nomem, nostack, preserves_flags));
            vst1q_f32(to.as_mut_ptr(), floats);
        }
    }

    /// Four floats as halves, rounded to the nearest.
    ///
    /// # Safety
    /// `from` and `to` hold four numbers each.
    #[inline(always)]
    pub(super) unsafe fn store_halves(from: &[f32], to: &mut [Half]) {
        // SAFETY: as the caller promises; the instruction touches registers only.
        unsafe {
            let floats: float32x4_t = vld1q_f32(from.as_ptr());
            let halves: uint16x4_t;
            asm!("fcvtn {halves:v}.4h, {floats:v}.4s", floats = in(vreg) floats, halves = lateout(vreg) halves,
                options(pure, nomem, nostack, preserves_flags));
            vst1_u16(to.as_mut_ptr().cast(), halves);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Call, Data, Element, Half, Instructions, Operator, Reduction, Room, Step, kernel};

    /// The kernels compiled with the instructions of a level: none may be inlined into code that is compiled without.
    macro_rules! compiled {
        ($level:ty, $features:literal) => {
            unsafe fn reduce<E: Element, O: Operator, const STEP: usize>(reduction: &Reduction<'_>) {
                #[target_feature(enable = $features)]
                fn compiled<E: Element, O: Operator, const STEP: usize>(reduction: &Reduction<'_>) {
                    // SAFETY: as the caller promises, here and below.
                    unsafe { kernel::reduce::<$level, E, O, STEP>(reduction) }
                }
                // SAFETY: as above.
                unsafe { compiled::<E, O, STEP>(reduction) }
            }

            #[inline(always)]
            unsafe fn part<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, elements: usize) {
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn compiled<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, elements: usize) {
                    // SAFETY: as above.
                    unsafe { call.part::<$level, E, O, STEP>(elements) }
                }
                // SAFETY: as above.
                unsafe { compiled::<E, O, STEP>(call, elements) }
            }

            #[inline(always)]
            unsafe fn edge<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, at: usize) -> Step<E, STEP> {
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn compiled<E: Element, O: Operator, const STEP: usize>(call: Call<'_>, at: usize) -> Step<E, STEP> {
                    // SAFETY: as above.
                    unsafe { call.edge::<$level, E, O, STEP>(at) }
                }
                // SAFETY: as above.
                unsafe { compiled::<E, O, STEP>(call, at) }
            }

            unsafe fn copy(to: &[Room], from: Data) {
                #[target_feature(enable = $features)]
                fn compiled(to: &[Room], from: Data) {
                    // SAFETY: as above.
                    unsafe { kernel::copy_streaming::<$level>(to, from) }
                }
                // SAFETY: as above.
                unsafe { compiled(to, from) }
            }
        };
    }

    /// [`super::Level::Avx2`].
    pub(crate) enum Avx2 {}

    impl Instructions for Avx2 {
        compiled!(Avx2, "avx2,f16c");

        #[inline(always)]
        unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
            for at in (0..bytes).step_by(32) {
                // SAFETY: `at` is a multiple of 32 within what the caller promises, and `to` is aligned.
                unsafe { _mm256_stream_si256(to.add(at).cast::<__m256i>(), _mm256_loadu_si256(from.add(at).cast())) }
            }
        }

        #[inline(always)]
        unsafe fn load_half<const STEP: usize>(from: *const u8, to: &mut [f32; STEP]) {
            for (part, numbers) in to.chunks_exact_mut(8).enumerate() {
                // SAFETY: eight halves of those that the caller promises, eight floats of the slice.
                unsafe {
                    let halves = _mm_loadu_si128(from.add(16 * part).cast());
                    _mm256_storeu_ps(numbers.as_mut_ptr(), _mm256_cvtph_ps(halves));
                }
            }
        }

        #[inline(always)]
        unsafe fn store_half<const STEP: usize>(from: &[f32; STEP], to: &mut [Half; STEP]) {
            for (numbers, elements) in from.chunks_exact(8).zip(to.chunks_exact_mut(8)) {
                // SAFETY: eight floats and eight halves of the slices.
                unsafe {
                    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(numbers.as_ptr()));
                    _mm_storeu_si128(elements.as_mut_ptr().cast(), halves);
                }
            }
        }
    }

    /// [`super::Level::Avx512`].
    pub(crate) enum Avx512 {}

    impl Instructions for Avx512 {
        compiled!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl,f16c");

        #[inline(always)]
        unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
            for at in (0..bytes).step_by(64) {
                // SAFETY: `at` is a multiple of 64 within what the caller promises, and `to` is aligned.
                unsafe { _mm512_stream_si512(to.add(at).cast::<__m512i>(), _mm512_loadu_si512(from.add(at).cast())) }
            }
        }

        #[inline(always)]
        unsafe fn load_half<const STEP: usize>(from: *const u8, to: &mut [f32; STEP]) {
            for (part, numbers) in to.chunks_exact_mut(16).enumerate() {
                // SAFETY: sixteen halves of those that the caller promises, sixteen floats of the slice.
                unsafe {
                    let halves = _mm256_loadu_si256(from.add(32 * part).cast());
                    _mm512_storeu_ps(numbers.as_mut_ptr(), _mm512_cvtph_ps(halves));
                }
            }
        }

        #[inline(always)]
        unsafe fn store_half<const STEP: usize>(from: &[f32; STEP], to: &mut [Half; STEP]) {
            for (numbers, elements) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
                // SAFETY: sixteen floats and sixteen halves of the slices.
                unsafe {
                    let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(numbers.as_ptr()));
                    _mm256_storeu_si256(elements.as_mut_ptr().cast(), halves);
                }
            }
        }
    }
}
