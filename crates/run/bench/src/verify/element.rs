//! The values that ranks give, chosen so that what comes of them is known exactly.
//!
//! An element is handled as its bits in the low bytes of a `u64`.

use busbw_collectives::reduction::float8::{F8E4M3, F8E5M2};
use busbw_model::{Datatype, RedOp};
use half::{bf16, f16};

/// How many bits the significand of a floating-point type has, the leading 1 included, and its smallest and largest
/// exponent at which every significand is finite.
#[derive(Debug, Clone, Copy)]
struct Float {
    precision: u32,
    exponents: (i32, i32),
    /// The exponent of its smallest number.
    smallest: i32,
}

impl Float {
    fn of(datatype: Datatype) -> Option<Self> {
        let (precision, exponents) = match datatype {
            Datatype::F8e4m3 => (4, (-6, 7)),
            Datatype::F8e5m2 => (3, (-14, 15)),
            Datatype::Half => (11, (-14, 15)),
            Datatype::Bfloat16 => (8, (-126, 127)),
            Datatype::Float => (24, (-126, 127)),
            Datatype::Double => (53, (-1022, 1023)),
            _ => return None,
        };
        Some(Float { precision, exponents, smallest: exponents.0 - (precision as i32 - 1) })
    }

    /// Integers up to this are exact, and so are their sums.
    fn exact_integers(self) -> u64 {
        1 << self.precision
    }

    /// Half the distance of neighbours, relative to them: the error of one rounding.
    fn unit_roundoff(self) -> f64 {
        (-f64::from(self.precision)).exp2()
    }

    /// A significand in 1..2.
    fn significand(self, random: u64) -> f64 {
        let fraction = random & ((1 << (self.precision - 1)) - 1);
        1.0 + fraction as f64 / (1u64 << (self.precision - 1)) as f64
    }

    fn any(self, random: u64) -> f64 {
        let (low, high) = (self.exponents.0.max(-14), self.exponents.1.min(14));
        let exponent = low + ((random >> 54) % (high - low + 1) as u64) as i32;
        sign(random >> 53) * self.significand(random) * f64::from(exponent).exp2()
    }
}

fn sign(random: u64) -> f64 {
    if random & 1 == 0 { 1.0 } else { -1.0 }
}

/// What one element is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    pub datatype: Datatype,
    pub redop: RedOp,
    pub nranks: usize,
}

/// What must come of an element: its bits, and how far a floating-point number may be from them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reduced {
    pub bits: u64,
    pub bound: f64,
}

impl Recipe {
    /// Element `index` of what is only copied: any bits of an integer, any finite number.
    pub fn copied(self, index: usize) -> u64 {
        let random = mix(index as u64);
        match Float::of(self.datatype) {
            Some(float) => encode(self.datatype, float.any(random)),
            None => random & mask(self.datatype),
        }
    }

    /// Element `index` of what `rank` gives to a reduction.
    pub fn given(self, rank: usize, index: usize) -> u64 {
        match Float::of(self.datatype) {
            Some(float) => encode(self.datatype, self.given_float(float, rank, index)),
            None => self.given_integer(rank, index),
        }
    }

    /// Any integer; odd factors, so that a product keeps all its bits.
    fn given_integer(self, rank: usize, index: usize) -> u64 {
        let odd = u64::from(self.redop == RedOp::Prod);
        (random(rank, index) | odd) & mask(self.datatype)
    }

    /// Sums: integers so small that every partial sum is exact in any order. Where the type is too small for all
    /// ranks to give something, some give 0; which, changes from element to element. Products: powers of two, but for
    /// one rank whose significand the product keeps.
    fn given_float(self, float: Float, rank: usize, index: usize) -> f64 {
        let random = random(rank, index);
        let turn = (rank + mix(index as u64) as usize % self.nranks) % self.nranks;
        match self.redop {
            RedOp::Max | RedOp::Min => float.any(random),
            RedOp::Prod => {
                let room = -float.exponents.0.max(-float.exponents.1 + 1);
                let exponent = if turn < room as usize { ((random >> 32) % 3) as i32 - 1 } else { 0 };
                let significand = if turn == 0 { float.significand(random) } else { 1.0 };
                sign(random >> 60) * significand * f64::from(exponent).exp2()
            }
            RedOp::Sum | RedOp::Avg | RedOp::MulSum => {
                let factor = if self.redop == RedOp::MulSum { 2 } else { 1 };
                let total = float.exact_integers() / factor;
                let givers = total.min(self.nranks as u64);
                let largest = (total / givers).min(1 << 20);
                let number = if (turn as u64) < givers { 1 + (random >> 8) % largest } else { 0 };
                if number == 0 { 0.0 } else { sign(random) * number as f64 }
            }
        }
    }

    /// Element `index` of the reduction of what all ranks give.
    ///
    /// The bound is 0 but for an average of floating-point numbers: dividing before or after summing rounds
    /// differently. A number of ranks that is a power of two divides exactly. For others every number goes through at
    /// most n + 2 roundings, so that |result - exact| <= ((1 + u)^(n + 2) - 1) * sum|x| / n + n * s, with u the
    /// type's unit roundoff and s half its smallest number (Higham, Accuracy and Stability of Numerical Algorithms,
    /// 2002, section 4.2).
    pub fn reduced(self, index: usize) -> Reduced {
        let Some(float) = Float::of(self.datatype) else {
            return Reduced { bits: self.reduced_integer(index), bound: 0.0 };
        };
        let given = (0..self.nranks).map(|rank| self.given_float(float, rank, index));
        let scaled = |scale: fn(usize) -> f64| {
            (0..self.nranks).map(|rank| scale(rank) * self.given_float(float, rank, index)).sum::<f64>()
        };
        let n = self.nranks as f64;
        let exact = match self.redop {
            RedOp::Max => given.fold(f64::NEG_INFINITY, f64::max),
            RedOp::Min => given.fold(f64::INFINITY, f64::min),
            RedOp::Prod => given.product(),
            RedOp::Sum => scaled(|_| 1.0),
            RedOp::MulSum => scaled(premul_scalar),
            RedOp::Avg => scaled(|_| 1.0) / n,
        };
        let divides_exactly = self.nranks.is_power_of_two() && self.nranks <= 512;
        let bound = if self.redop != RedOp::Avg || divides_exactly {
            0.0
        } else {
            let sum: f64 = (0..self.nranks).map(|rank| self.given_float(float, rank, index).abs()).sum();
            let growth = (n + 2.0) * float.unit_roundoff().ln_1p();
            growth.exp_m1() * sum / n + n * f64::from(float.smallest - 1).exp2()
        };
        Reduced { bits: encode(self.datatype, exact), bound }
    }

    /// Wrapping as the type wraps; an average divides the wrapped sum and drops the fraction.
    fn reduced_integer(self, index: usize) -> u64 {
        let (datatype, signed) = (self.datatype, is_signed(self.datatype));
        let given = (0..self.nranks).map(|rank| self.given_integer(rank, index));
        let widened = |bits: u64| sign_extended(datatype, bits);
        let bits = match self.redop {
            RedOp::Sum => given.fold(0, u64::wrapping_add),
            RedOp::MulSum => (0..self.nranks).fold(0, |sum: u64, rank| {
                sum.wrapping_add(self.given_integer(rank, index).wrapping_mul(premul_scalar(rank) as u64))
            }),
            RedOp::Prod => given.fold(1, u64::wrapping_mul),
            RedOp::Max if signed => given.map(widened).max().unwrap_or(0) as u64,
            RedOp::Min if signed => given.map(widened).min().unwrap_or(0) as u64,
            RedOp::Max => given.max().unwrap_or(0),
            RedOp::Min => given.min().unwrap_or(0),
            RedOp::Avg => {
                let sum = given.fold(0, u64::wrapping_add) & mask(datatype);
                if signed { (widened(sum) / self.nranks as i64) as u64 } else { sum / self.nranks as u64 }
            }
        };
        bits & mask(datatype)
    }
}

/// What `mulsum` multiplies a rank's elements with before it sums (`ncclVerifiablePremulScalar` of nccl-tests'
/// `verifiable/verifiable.h`).
pub(super) fn premul_scalar(rank: usize) -> f64 {
    if rank.is_multiple_of(2) { 1.0 } else { 2.0 }
}

/// The number that bits are; `None` for integers, which are compared bit by bit.
pub(super) fn decode(datatype: Datatype, bits: u64) -> Option<f64> {
    Some(match datatype {
        Datatype::F8e4m3 => f64::from(F8E4M3(bits as u8).to_f32()),
        Datatype::F8e5m2 => f64::from(F8E5M2(bits as u8).to_f32()),
        Datatype::Half => f16::from_bits(bits as u16).to_f64(),
        Datatype::Bfloat16 => bf16::from_bits(bits as u16).to_f64(),
        Datatype::Float => f64::from(f32::from_bits(bits as u32)),
        Datatype::Double => f64::from_bits(bits),
        _ => return None,
    })
}

/// The bits of a number, rounded to nearest where the type does not hold it.
pub(super) fn encode(datatype: Datatype, value: f64) -> u64 {
    match datatype {
        Datatype::F8e4m3 => u64::from(F8E4M3::from_f32(value as f32).0),
        Datatype::F8e5m2 => u64::from(F8E5M2::from_f32(value as f32).0),
        Datatype::Half => u64::from(f16::from_f64(value).to_bits()),
        Datatype::Bfloat16 => u64::from(bf16::from_f64(value).to_bits()),
        Datatype::Float => u64::from((value as f32).to_bits()),
        Datatype::Double => value.to_bits(),
        _ => value as i64 as u64 & mask(datatype),
    }
}

fn mask(datatype: Datatype) -> u64 {
    u64::MAX >> (64 - 8 * datatype.size())
}

fn is_signed(datatype: Datatype) -> bool {
    matches!(datatype, Datatype::Int8 | Datatype::Int32 | Datatype::Int64)
}

fn sign_extended(datatype: Datatype, bits: u64) -> i64 {
    let unused = 64 - 8 * datatype.size();
    (bits << unused) as i64 >> unused
}

fn random(rank: usize, index: usize) -> u64 {
    mix(mix(index as u64).wrapping_add(rank as u64))
}

/// A number that looks like any other: the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom
/// number generators, 2014).
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
