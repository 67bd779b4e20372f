//! What lies in memory, and the number that it is computed as.

use super::float8::{F8E4M3, F8E5M2};
use super::level::Instructions;
use super::narrow::{Binary16, narrow, widen};
use super::operator::Number;

/// An element of a datatype.
pub(super) trait Element: Copy + Default {
    /// What it is computed as: itself, or float for narrower floats.
    type Number: Number;
    /// Whether no CPU has an instruction that converts it.
    const NARROW_BY_HAND: bool = false;
    /// Elements up to which one at a time is faster than a step through a room of its own.
    const FEW: usize = 8;

    fn widen(self) -> Self::Number;
    fn narrow(number: Self::Number) -> Self;

    /// [`Element::widen`] for `STEP` elements.
    ///
    /// # Safety
    /// `STEP` elements are readable at `from`, and the CPU has the instructions.
    #[inline(always)]
    unsafe fn load<I: Instructions, const STEP: usize>(from: *const u8, to: &mut [Self::Number; STEP]) {
        // SAFETY: as the caller promises; an array has the layout of its elements, which every bit pattern is one of.
        let elements = unsafe { from.cast::<[Self; STEP]>().read_unaligned() };
        for (number, element) in to.iter_mut().zip(elements) {
            *number = element.widen();
        }
    }

    /// [`Element::narrow`] for `STEP` numbers.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    unsafe fn store<I: Instructions, const STEP: usize>(from: &[Self::Number; STEP], to: &mut [Self; STEP]) {
        for (element, number) in to.iter_mut().zip(from) {
            *element = Self::narrow(*number);
        }
    }
}

macro_rules! itself {
    ($($number:ty),*) => {$(
        impl Element for $number {
            type Number = $number;

            #[inline(always)]
            fn widen(self) -> $number {
                self
            }

            #[inline(always)]
            fn narrow(number: $number) -> $number {
                number
            }
        }
    )*};
}
itself!(i8, u8, i32, u32, i64, u64, f32, f64);

macro_rules! float8 {
    ($($element:ty),*) => {$(
        impl Element for $element {
            type Number = f32;
            const NARROW_BY_HAND: bool = true;
            const FEW: usize = 2;

            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn narrow(number: f32) -> Self {
                Self::from_f32(number)
            }
        }
    )*};
}
float8!(F8E4M3, F8E5M2);

/// Bits of an IEEE 754 binary16.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Half(u16);

impl Element for Half {
    type Number = f32;
    const FEW: usize = 2;

    #[inline(always)]
    fn widen(self) -> f32 {
        widen::<Binary16>(self.0.into())
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        Half(narrow::<Binary16>(number) as u16)
    }

    #[inline(always)]
    unsafe fn load<I: Instructions, const STEP: usize>(from: *const u8, to: &mut [f32; STEP]) {
        // SAFETY: as the caller promises.
        unsafe { I::load_half(from, to) }
    }

    #[inline(always)]
    unsafe fn store<I: Instructions, const STEP: usize>(from: &[f32; STEP], to: &mut [Self; STEP]) {
        // SAFETY: as the caller promises.
        unsafe { I::store_half(from, to) }
    }
}

/// Bits of a bfloat16: the upper half of a float.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Bfloat16(u16);

impl Element for Bfloat16 {
    type Number = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        let bits = number.to_bits();
        // Ties go to the even code; a NaN must not be rounded to infinity.
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let kept = if number.is_nan() { bits | 0x0040_0000 } else { rounded };
        Bfloat16((kept >> 16) as u16)
    }
}
