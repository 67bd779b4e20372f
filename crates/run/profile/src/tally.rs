//! Times of operations of one kind, in a histogram: millions of them take no more room than a hundred.

use rustc_hash::FxHashMap;

/// A bucket is so much wider than the one before.
const STEP: f64 = 1.01;

/// Times of one kind, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    buckets: FxHashMap<i32, u64>,
    pub count: u64,
    pub total: f64,
    pub most: u64,
}

impl Times {
    pub fn add(&mut self, time_ns: u64) {
        let bucket = ((time_ns.max(1) as f64).ln() / STEP.ln()).floor() as i32;
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
        self.total += time_ns as f64;
        self.most = self.most.max(time_ns);
    }

    /// The time that a share of all do not exceed, to 1%; 0 of none.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut buckets: Vec<_> = self.buckets.iter().map(|(bucket, count)| (*bucket, *count)).collect();
        buckets.sort_unstable();
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = buckets.into_iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        // The middle of the bucket.
        found.map_or(0.0, |(bucket, _)| STEP.powf(f64::from(bucket) + 0.5).min(self.most as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_hundredth() {
        let mut times = Times::default();
        (1..=10_000).for_each(|time| times.add(time * 1000));
        for (share, expected) in [(0.5, 5e6), (0.99, 9.9e6), (1.0, 10e6)] {
            let found = times.quantile(share);
            assert!((found / expected - 1.0).abs() < 0.01, "{share}: {found}");
        }
        assert_eq!((Times::default().quantile(0.5), times.most), (0.0, 10_000_000));
    }
}
