//! Floats narrower than 32 bits, to float and back, without branches so that loops over them vectorise.

/// A binary format with a sign, an exponent and a mantissa, subnormals included.
pub(super) trait Format {
    /// Bits of the whole.
    const BITS: u32;
    /// Bits of the mantissa.
    const MANTISSA: u32;
    /// Bias of the exponent.
    const BIAS: u32;
    /// The first code, without sign, that is no finite number.
    const BEYOND: i32;
    /// Whether `BEYOND` is infinity, as IEEE 754 has it; otherwise it is NaN.
    const INFINITY: bool;
    /// Whether numbers out of range become the largest finite one.
    const SATURATE: bool;
    /// The NaN, without sign.
    const NAN: i32;
}

/// IEEE 754 binary16.
pub(super) enum Binary16 {}

impl Format for Binary16 {
    const BITS: u32 = 16;
    const MANTISSA: u32 = 10;
    const BIAS: u32 = 15;
    const BEYOND: i32 = 0x7c00;
    const INFINITY: bool = true;
    const SATURATE: bool = false;
    const NAN: i32 = 0x7e00;
}

/// Infinity, as float's bits; bits above are NaNs.
const FLOAT_INFINITY: i32 = 0x7f80_0000;

/// How far the codes of a format lie to the right of float's bits.
const fn shift<F: Format>() -> u32 {
    23 - F::MANTISSA
}

/// The difference of the biases, in float's bits.
const fn rebias<F: Format>() -> i32 {
    ((127 - F::BIAS) << 23) as i32
}

/// 2 to the power of `exponent`, which is that of a normal float.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// Exponent of the smallest positive number of a format.
const fn smallest<F: Format>() -> i32 {
    1 - F::BIAS as i32 - F::MANTISSA as i32
}

/// The float that a code stands for.
#[inline(always)]
pub(super) fn widen<F: Format>(code: u32) -> f32 {
    let magnitude = (code & ((1 << (F::BITS - 1)) - 1)) as i32;
    let sign = (code >> (F::BITS - 1)) << 31;
    let shifted = magnitude << shift::<F>();
    let subnormal = (magnitude as f32 * power_of_two(smallest::<F>())).to_bits() as i32;
    let finite = if magnitude < 1 << F::MANTISSA { subnormal } else { shifted + rebias::<F>() };
    let beyond = if F::INFINITY { shifted | FLOAT_INFINITY } else { 0x7fc0_0000 };
    let bits = if magnitude < F::BEYOND { finite } else { beyond };
    f32::from_bits(bits as u32 | sign)
}

/// The code nearest to a float, the even one of two.
#[inline(always)]
pub(super) fn narrow<F: Format>(value: f32) -> u32 {
    let magnitude = (value.to_bits() & 0x7fff_ffff) as i32;
    let largest = ((F::BEYOND - 1) << shift::<F>()) + rebias::<F>();
    let held = if F::SATURATE && magnitude > largest { largest } else { magnitude };
    // Half of the last place less one, and one more where the last place is odd: ties go to the even code.
    let rounding = (1 << (shift::<F>() - 1)) - 1 + ((held >> shift::<F>()) & 1);
    let normal = (held.wrapping_add(rounding) >> shift::<F>()) - (rebias::<F>() >> shift::<F>());
    let normal = if normal < F::BEYOND || F::SATURATE { normal } else { F::BEYOND };
    // The sum's last place is the format's smallest number, so that the addition rounds.
    let large = power_of_two(23 + smallest::<F>());
    let subnormal = (f32::from_bits(held as u32) + large).to_bits() as i32 - large.to_bits() as i32;
    let smallest_normal = (1 << 23) + rebias::<F>();
    let number = if held < smallest_normal { subnormal } else { normal };
    let code = if magnitude > FLOAT_INFINITY { F::NAN } else { number };
    code as u32 | (value.to_bits() >> 31) << (F::BITS - 1)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn halves_are_those_of_the_half_crate() {
        for code in 0..=u16::MAX {
            let (ours, theirs) = (widen::<Binary16>(code.into()), f16::from_bits(code).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{code:#x}");
        }
        // Every bit that rounding looks at, and one just below and above each.
        for bits in (0..1_u32 << 20).flat_map(|upper| [(upper << 12).wrapping_sub(1), upper << 12, (upper << 12) + 1]) {
            let float = f32::from_bits(bits);
            let (ours, theirs) = (f16::from_bits(narrow::<Binary16>(float) as u16), f16::from_f32(float));
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{float:e}");
        }
    }
}
