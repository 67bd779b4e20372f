//! NCCL's two 8-bit floats, CUDA's `__nv_fp8_e4m3` and `__nv_fp8_e5m2`: those of the OCP 8-bit floating point
//! specification.

use super::narrow::{Format, narrow, widen};

/// Four bits of exponent, three of mantissa: up to ±448, a NaN, no infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// Five bits of exponent, two of mantissa: up to ±57344, infinities and NaNs as in IEEE 754.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

impl Format for F8E4M3 {
    const BITS: u32 = 8;
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 7;
    const BEYOND: i32 = 0x7f;
    const INFINITY: bool = false;
    const SATURATE: bool = true;
    const NAN: i32 = 0x7f;
}

impl Format for F8E5M2 {
    const BITS: u32 = 8;
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 15;
    const BEYOND: i32 = 0x7c;
    const INFINITY: bool = true;
    const SATURATE: bool = true;
    const NAN: i32 = 0x7e;
}

impl F8E4M3 {
    /// The nearest number, the even one of two; ±448 for all that lies beyond, infinities included (CUDA's
    /// `__NV_SATFINITE`). A NaN stays one.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        F8E4M3(narrow::<Self>(value) as u8)
    }

    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        widen::<Self>(self.0.into())
    }
}

impl F8E5M2 {
    /// The nearest number, the even one of two; ±57344 for all that lies beyond, infinities included (CUDA's
    /// `__NV_SATFINITE`). A NaN stays one.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        F8E5M2(narrow::<Self>(value) as u8)
    }

    /// The same number, or infinity, as a float.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        widen::<Self>(self.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a code stands for, from the words of the specification.
    fn value(code: u8, mantissa_bits: i32, bias: i32) -> f64 {
        let magnitude = i32::from(code & 0x7f);
        let (exponent, mantissa) = (magnitude >> mantissa_bits, f64::from(magnitude & ((1 << mantissa_bits) - 1)));
        let fraction = mantissa / f64::from(1 << mantissa_bits);
        let number = match exponent {
            0 => fraction * 2_f64.powi(1 - bias),
            _ => (1.0 + fraction) * 2_f64.powi(exponent - bias),
        };
        if code >= 0x80 { -number } else { number }
    }

    /// The nearest of the finite codes, the even one of two, by trying them all.
    fn nearest(wanted: f32, largest: u8, value: impl Fn(u8) -> f64) -> u8 {
        let magnitude = f64::from(wanted.abs());
        let sign = if wanted.is_sign_negative() { 0x80 } else { 0 };
        if magnitude >= value(largest) {
            return largest | sign;
        }
        let distance = |code: u8| (value(code) - magnitude).abs();
        let order = |a: &u8, b: &u8| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1)));
        (0..=largest).min_by(order).unwrap() | sign
    }

    #[test]
    fn all_codes_of_e4m3() {
        for code in 0..=255_u8 {
            let float = F8E4M3(code).to_f32();
            match code & 0x7f {
                0x7f => assert!(float.is_nan()),
                _ => assert_eq!(f64::from(float).to_bits(), value(code, 3, 7).to_bits(), "{code:#x}"),
            }
            assert_eq!(F8E4M3::from_f32(float), F8E4M3(code));
        }
        assert_eq!(F8E4M3(0x7e).to_f32(), 448.0);
        assert_eq!(F8E4M3(0x01).to_f32(), 2_f32.powi(-9));
    }

    #[test]
    fn all_codes_of_e5m2() {
        for code in 0..=255_u8 {
            let float = F8E5M2(code).to_f32();
            match code & 0x7f {
                0x7d.. => assert!(float.is_nan() && F8E5M2::from_f32(float).to_f32().is_nan()),
                0x7c => {
                    assert!(float.is_infinite() && float.is_sign_negative() == (code > 0x80));
                    assert_eq!(F8E5M2::from_f32(float), F8E5M2(code - 1));
                }
                _ => {
                    assert_eq!(f64::from(float).to_bits(), value(code, 2, 15).to_bits(), "{code:#x}");
                    assert_eq!(F8E5M2::from_f32(float), F8E5M2(code));
                }
            }
        }
        assert_eq!(F8E5M2(0x7b).to_f32(), 57344.0);
        assert_eq!(F8E5M2(0x01).to_f32(), 2_f32.powi(-16));
    }

    #[test]
    fn floats_become_the_nearest_code() {
        // Every exponent with the upper bits of the mantissa, and just below and above each: all ties.
        for bits in (0..=0xffff_u32).flat_map(|upper| [(upper << 16).wrapping_sub(1), upper << 16, (upper << 16) + 1]) {
            let float = f32::from_bits(bits);
            if float.is_nan() {
                assert!(F8E4M3::from_f32(float).to_f32().is_nan());
                assert!(F8E5M2::from_f32(float).to_f32().is_nan());
                continue;
            }
            assert_eq!(F8E4M3::from_f32(float).0, nearest(float, 0x7e, |code| value(code, 3, 7)), "{float:e}");
            assert_eq!(F8E5M2::from_f32(float).0, nearest(float, 0x7b, |code| value(code, 2, 15)), "{float:e}");
        }
    }
}
