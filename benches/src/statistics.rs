//! The spread of a few measurements.

use serde::Serialize;

/// Smallest, middle and largest of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one; the mean of the two middle ones when their number is even.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; none when there are none.
    ///
    /// ```
    /// use busbw_benches::statistics::Spread;
    /// assert_eq!(Spread::of([3.0, 1.0, 2.0, 9.0]), Some(Spread { min: 1.0, median: 2.5, max: 9.0 }));
    /// assert_eq!(Spread::of([]), None);
    /// ```
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().collect();
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Spread { min, median: median(&values), max })
    }
}

/// The middle one of some numbers; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    busbw_model::median(values.iter().copied()).unwrap_or(0.0)
}
