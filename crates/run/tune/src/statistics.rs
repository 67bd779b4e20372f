//! Means, intervals and tests of repeated measurements. The distribution is statrs'.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The name of the interval that [`Sample::half_width`] gives.
pub const INTERVAL: &str = "Student's t interval";
/// The name of the test that [`p_greater`] and [`p_differ`] make.
pub const TEST: &str = "Welch's t-test";

/// What repeated measurements of one thing come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub n: usize,
    pub mean: f64,
    /// Their standard deviation, with n - 1 in the denominator; `None` of a single one.
    pub stddev: Option<f64>,
}

impl Sample {
    /// Of values; `None` of none.
    ///
    /// ```
    /// let sample = busbw_tune::statistics::Sample::of(&[10.0, 12.0, 11.0]).expect("values");
    /// assert_eq!((sample.n, sample.mean, sample.stddev), (3, 11.0, Some(1.0)));
    /// ```
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Sample { n, mean, stddev: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()) })
    }

    /// Half the width of the confidence interval of the mean by Student's t; `None` of a single measurement.
    pub fn half_width(&self, confidence: f64) -> Option<f64> {
        let quantile = students_t((self.n - 1) as f64)?.inverse_cdf(0.5 + confidence / 2.0);
        Some(quantile * self.stddev? / (self.n as f64).sqrt())
    }

    /// The square of the standard error of the mean.
    fn squared_error(&self) -> Option<f64> {
        Some(self.stddev?.powi(2) / self.n as f64)
    }
}

/// The probability of means this far apart in this direction, or farther, if `a` were not greater than `b` in truth: small
/// where `a` is greater. One-sided Welch's t-test, which does not take the deviations to be equal. `None` where one of them was
/// measured once.
pub fn p_greater(a: &Sample, b: &Sample) -> Option<f64> {
    let (va, vb) = (a.squared_error()?, b.squared_error()?);
    if va + vb == 0.0 {
        // Without spread, any difference is significant.
        return Some(match a.mean.total_cmp(&b.mean) {
            std::cmp::Ordering::Greater => 0.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 1.0,
        });
    }
    let t = (a.mean - b.mean) / (va + vb).sqrt();
    Some(1.0 - students_t(degrees(va, a.n, vb, b.n))?.cdf(t))
}

/// The same for a difference in either direction (two-sided).
pub fn p_differ(a: &Sample, b: &Sample) -> Option<f64> {
    p_greater(a, b).map(|p| 2.0 * p.min(1.0 - p))
}

/// The confidence interval of the difference of the means, a - b, by Welch; `None` where one of them was measured once.
pub fn difference(a: &Sample, b: &Sample, confidence: f64) -> Option<[f64; 2]> {
    let (va, vb) = (a.squared_error()?, b.squared_error()?);
    let difference = a.mean - b.mean;
    if va + vb == 0.0 {
        return Some([difference; 2]);
    }
    let half = students_t(degrees(va, a.n, vb, b.n))?.inverse_cdf(0.5 + confidence / 2.0) * (va + vb).sqrt();
    Some([difference - half, difference + half])
}

/// The degrees of freedom by Welch and Satterthwaite.
fn degrees(va: f64, na: usize, vb: f64, nb: usize) -> f64 {
    (va + vb).powi(2) / (va.powi(2) / (na - 1) as f64 + vb.powi(2) / (nb - 1) as f64)
}

fn students_t(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // The 97.5% quantile with 4 degrees of freedom is 2.7764 in the usual table.
        let sample = Sample::of(&[10.0, 12.0, 11.0, 9.0, 13.0]).unwrap();
        let half = sample.half_width(0.95).unwrap();
        assert!((half - 2.7764 * (2.5f64 / 5.0).sqrt()).abs() < 1e-4, "{half}");
        assert_eq!(Sample::of(&[3.0]).unwrap().half_width(0.95), None);
        assert_eq!(Sample::of(&[]), None);
    }

    /// The expected value was integrated numerically from the density of Student's t: t = 3.740 with 5.982 degrees of freedom.
    #[test]
    fn welchs_test_is_that_of_others() {
        let a = Sample { n: 4, mean: 307.91, stddev: Some(3.21) };
        let b = Sample { n: 4, mean: 316.64, stddev: Some(3.39) };
        let p = p_differ(&a, &b).unwrap();
        assert!((p - 0.009_677).abs() < 1e-5, "{p}");
        assert!(p_greater(&b, &a).unwrap() < 0.005 && p_greater(&a, &b).unwrap() > 0.99);
        // An interval as sure as the test says ends at zero.
        let [least, most] = difference(&b, &a, 1.0 - p).unwrap();
        assert!(least.abs() < 1e-6 && (most - 2.0 * (b.mean - a.mean)).abs() < 1e-6, "{least} {most}");
    }

    #[test]
    fn measurements_without_spread_are_compared_by_their_means() {
        let sample = |mean| Sample { n: 2, mean, stddev: Some(0.0) };
        assert_eq!(p_differ(&sample(1.0), &sample(2.0)), Some(0.0));
        assert_eq!(p_differ(&sample(2.0), &sample(2.0)), Some(1.0));
    }
}
