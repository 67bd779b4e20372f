//! What is done with two numbers: sum, product, maximum, minimum.

/// A number that reductions are computed in.
pub(super) trait Number: Copy + Default {
    /// What a division by the ranks needs, worked out once.
    type Divisor: Copy;

    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn divisor(ranks: usize) -> Self::Divisor;
    fn divide(self, divisor: Self::Divisor) -> Self;
}

/// One of the four operations.
pub(super) trait Operator {
    fn apply<N: Number>(first: N, second: N) -> N;
}

macro_rules! operator {
    ($($name:ident $function:ident),*) => {$(
        pub(super) enum $name {}

        impl Operator for $name {
            #[inline(always)]
            fn apply<N: Number>(first: N, second: N) -> N {
                first.$function(second)
            }
        }
    )*};
}
operator!(Sum sum, Prod product, Max maximum, Min minimum);

macro_rules! float {
    ($($float:ty),*) => {$(
        impl Number for $float {
            type Divisor = $float;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }

            // Written out because the standard library leaves open which zero it gives.
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let larger = if other > self { other } else { self };
                if self.is_nan() { other } else { larger }
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let smaller = if other < self { other } else { self };
                if self.is_nan() { other } else { smaller }
            }

            #[inline(always)]
            fn divisor(ranks: usize) -> $float {
                ranks as $float
            }

            #[inline(always)]
            fn divide(self, divisor: $float) -> Self {
                self / divisor
            }
        }
    )*};
}
float!(f32, f64);

/// Division of unsigned integers by multiplication, which vectorises where a division does not.
#[derive(Clone, Copy)]
pub(super) struct Reciprocal<U> {
    /// At most the largest value of the type.
    divisor: U,
    /// The largest value of the type, divided by the divisor.
    reciprocal: U,
    /// Whether the divisor is larger than every value, and quotients are 0.
    vanishes: bool,
}

macro_rules! integer {
    ($($integer:ty, $unsigned:ty, $wide:ty, $magnitude:expr, $signed:expr;)*) => {$(
        impl Number for $integer {
            type Divisor = Reciprocal<$unsigned>;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn divisor(ranks: usize) -> Self::Divisor {
                let divisor = <$unsigned>::try_from(ranks).unwrap_or(<$unsigned>::MAX).max(1);
                let vanishes = ranks as u128 > <$unsigned>::MAX as u128;
                Reciprocal { divisor, reciprocal: <$unsigned>::MAX / divisor, vanishes }
            }

            #[inline(always)]
            fn divide(self, divisor: Self::Divisor) -> Self {
                let magnitude: $unsigned = $magnitude(self);
                // Right, or one too small: the reciprocal is too small by less than one part in the type's range.
                let low = ((magnitude as $wide * divisor.reciprocal as $wide) >> <$unsigned>::BITS) as $unsigned;
                let rest = magnitude.wrapping_sub(low.wrapping_mul(divisor.divisor));
                let exact = low.wrapping_add((rest >= divisor.divisor) as $unsigned);
                $signed(self, if divisor.vanishes { 0 } else { exact })
            }
        }
    )*};
}

macro_rules! signed {
    ($signed:ty) => {
        |value: $signed, quotient| if value < 0 { (quotient as $signed).wrapping_neg() } else { quotient as $signed }
    };
}

integer! {
    u8, u8, u16, |value| value, |_, quotient| quotient;
    u32, u32, u64, |value| value, |_, quotient| quotient;
    u64, u64, u128, |value| value, |_, quotient| quotient;
    i8, u8, u16, i8::unsigned_abs, signed!(i8);
    i32, u32, u64, i32::unsigned_abs, signed!(i32);
    i64, u64, u128, i64::unsigned_abs, signed!(i64);
}
