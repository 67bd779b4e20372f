//! Floating-point formats by their bits: without the sign, they are ordered as the magnitudes that they stand for
//! (IEEE 754-2019, 3.4), and what lies above infinity is NaN.

/// An unsigned integer that holds the bits of an element.
pub trait Bits: Copy + Default + Ord + Send + Sync + std::fmt::Debug + Into<u64> {
    /// Bits below the sign.
    const MAGNITUDE_BITS: u32;

    /// The bits without the sign.
    fn magnitude(self) -> Self;

    /// The next larger key. No key is the largest number: NaN's is just above infinity's.
    fn next(self) -> Self;

    /// The key that is this number.
    fn from_key(key: u64) -> Self;
}

/// A format of elements, which shows which bits are NaN.
pub trait Format {
    /// What holds an element.
    type Bits: Bits;
    /// The least bits, without the sign, that are NaN.
    const NAN: Self::Bits;

    /// What elements are ordered by: the magnitude, and all NaN alike.
    #[inline(always)]
    fn key(bits: Self::Bits) -> Self::Bits {
        bits.magnitude().min(Self::NAN)
    }

    /// The number that bits stand for.
    fn number(bits: Self::Bits) -> f64;

    /// The bits of the largest number that is not above `magnitude`, which is 0 or more. A number of this format is larger
    /// than the one exactly if it is larger than the other.
    fn floor(magnitude: f64) -> Self::Bits {
        let (mut low, mut high) = (0u64, Self::NAN.into());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if Self::number(Self::Bits::from_key(middle)) <= magnitude { low = middle } else { high = middle }
        }
        Self::Bits::from_key(low)
    }
}

macro_rules! bits {
    ($type:ty) => {
        impl Bits for $type {
            const MAGNITUDE_BITS: u32 = <$type>::BITS - 1;

            #[inline(always)]
            fn magnitude(self) -> Self {
                self & (<$type>::MAX >> 1)
            }

            #[inline(always)]
            fn next(self) -> Self {
                self + 1
            }

            fn from_key(key: u64) -> Self {
                key as $type
            }
        }
    };
}

bits!(u16);
bits!(u32);
bits!(u64);

macro_rules! format {
    ($name:ident, $bits:ty, $infinity:literal, $number:expr, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Format for $name {
            type Bits = $bits;
            const NAN: $bits = $infinity + 1;

            fn number(bits: $bits) -> f64 {
                $number(bits)
            }
        }
    };
}

format!(F64, u64, 0x7ff0_0000_0000_0000, f64::from_bits, "`float64`, IEEE 754's binary64.");
format!(F32, u32, 0x7f80_0000, |bits| f32::from_bits(bits).into(), "`float32`, IEEE 754's binary32.");
format!(F16, u16, 0x7c00, |bits| half::f16::from_bits(bits).into(), "`float16`, IEEE 754's binary16.");
format!(Bf16, u16, 0x7f80, |bits| half::bf16::from_bits(bits).into(), "`bfloat16`, the upper half of a `float32`.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_the_largest_number_that_is_not_above() {
        assert_eq!(F32::floor(0.1), 0.1f32.to_bits() - 1, "0.1 as float32 is above 0.1");
        assert_eq!(F32::floor(0.3), 0.3f32.to_bits() - 1);
        assert_eq!(F32::floor(0.7), 0.7f32.to_bits(), "0.7 as float32 is below 0.7");
        assert_eq!(F64::floor(0.1), 0.1f64.to_bits());
        assert_eq!(F16::floor(1.0 / 3.0), half::f16::from_f64(1.0 / 3.0).to_bits());
        assert_eq!(Bf16::floor(1e-45), 0);
        assert_eq!(F16::floor(1e9), F16::NAN - 2, "the largest finite number");
        assert_eq!(F16::floor(f64::INFINITY), F16::NAN - 1);
        assert_eq!(F32::floor(0.0), 0);
    }
}
