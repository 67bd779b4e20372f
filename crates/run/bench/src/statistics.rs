//! Statistics of repeated measurements.

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Of the iterations of one half of a row (`-I`), in microseconds (`computeIterStats` of nccl-tests' `src/util.cu`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Iterations {
    /// Fastest.
    pub min_us: f64,
    /// Slowest.
    pub max_us: f64,
    /// Mean.
    pub avg_us: f64,
    /// The middle one; of an even number the upper of the two.
    pub p50_us: f64,
    /// 95th percentile, by nearest rank.
    pub p95_us: f64,
    /// 99th percentile, by nearest rank: below 100 iterations the slowest.
    pub p99_us: f64,
    /// Standard deviation of the population.
    pub stdev_us: f64,
    /// The standard deviation in percent of the mean.
    pub cv_pct: f64,
}

impl Iterations {
    /// Of times in microseconds; `None` of none.
    pub fn of(times_us: &[f64]) -> Option<Self> {
        let mut sorted = times_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min_us, max_us) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let percentile = |percent: usize| sorted[(n - 1).min((n * percent).div_ceil(100) - 1)];
        let avg_us = sorted.iter().sum::<f64>() / n as f64;
        let stdev_us = (sorted.iter().map(|time| (time - avg_us).powi(2)).sum::<f64>() / n as f64).sqrt();
        let cv_pct = if avg_us > 0.0 { stdev_us / avg_us * 100.0 } else { 0.0 };
        let (p50_us, p95_us, p99_us) = (sorted[n / 2], percentile(95), percentile(99));
        Some(Iterations { min_us, max_us, avg_us, p50_us, p95_us, p99_us, stdev_us, cv_pct })
    }
}

/// Of one value over whole repetitions (`--repeat`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Half the width of the 95% confidence interval of the mean, by Student's t with one degree of freedom less than
    /// there are repetitions; 0 of a single one.
    pub ci95: f64,
}

impl Spread {
    /// Of values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let ci95 = if values.len() > 1 { student_t_975(values.len() - 1) * (variance / n).sqrt() } else { 0.0 };
        Some(Spread { mean, min, max, ci95 })
    }
}

/// The 97.5% quantile of Student's t distribution.
fn student_t_975(degrees: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees as f64).map_or(f64::NAN, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let stats = Iterations::of(&times).unwrap();
        assert_eq!((stats.min_us, stats.max_us, stats.avg_us), (1.0, 20.0, 10.5));
        assert_eq!((stats.p50_us, stats.p95_us, stats.p99_us), (11.0, 19.0, 20.0));
        assert!((stats.stdev_us - 5.766_281).abs() < 1e-6 && (stats.cv_pct - 54.916_965).abs() < 1e-6);
        let one = Iterations::of(&[5.0]).unwrap();
        assert_eq!((one.p50_us, one.p95_us, one.stdev_us), (5.0, 5.0, 0.0));
        assert_eq!(Iterations::of(&[]), None);
    }

    #[test]
    fn the_interval_is_students() {
        let spread = Spread::of(&[10.0, 12.0, 11.0, 9.0, 13.0]).unwrap();
        assert_eq!((spread.mean, spread.min, spread.max), (11.0, 9.0, 13.0));
        assert!((spread.ci95 - 2.7764 * (2.5f64 / 5.0).sqrt()).abs() < 1e-4);
        assert_eq!(Spread::of(&[3.0]).unwrap().ci95, 0.0);
    }
}
