//! How often each busbw came out over seeds.

use busbw_model::GBps;

/// A range of busbw and the seeds whose result lies in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    /// The least busbw in it.
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

impl Bin {
    /// `48.20`, or `48 to 52`.
    pub fn label(&self) -> String {
        let (low, high) = (format!("{:.2}", self.low), format!("{:.2}", self.high));
        if low == high { low } else { format!("{low} to {high}") }
    }
}

/// At most `most` bins: one per value where there are few values, as when a handful of flows share a handful of links;
/// else of equal width, without the empty ones at either end.
pub(crate) fn bins(values: &[GBps], most: usize) -> Vec<Bin> {
    let mut sorted: Vec<f64> = values.iter().map(|busbw| busbw.0).filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let same = |a: &f64, b: &f64| format!("{a:.2}") == format!("{b:.2}");
    let distinct: Vec<Bin> = sorted
        .chunk_by(same)
        .map(|group| Bin { low: group[0], high: group[group.len() - 1], count: group.len() })
        .collect();
    if distinct.len() <= most {
        return distinct;
    }
    let (first, last) = (distinct[0].low, distinct[distinct.len() - 1].high);
    let width = (last - first) / most as f64;
    let edge = |index: usize| first + width * index as f64;
    let mut bins: Vec<Bin> = (0..most).map(|index| Bin { low: edge(index), high: edge(index + 1), count: 0 }).collect();
    for value in sorted {
        bins[(((value - first) / width) as usize).min(most - 1)].count += 1;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(values: &[f64], most: usize) -> Vec<(String, usize)> {
        let values: Vec<GBps> = values.iter().map(|value| GBps(*value)).collect();
        bins(&values, most).iter().map(|bin| (bin.label(), bin.count)).collect()
    }

    #[test]
    fn few_values_have_a_bin_each() {
        let found = labels(&[50.0, 25.0, 25.0 + 1e-9, 12.5], 8);
        assert_eq!(found, [("12.50".into(), 1), ("25.00".into(), 2), ("50.00".into(), 1)]);
    }

    #[test]
    fn many_values_share_bins_of_equal_width() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        let found = labels(&values, 4);
        assert_eq!(found[0], ("0.00 to 25.00".into(), 25));
        assert_eq!(found[3], ("75.00 to 100.00".into(), 26));
    }

    proptest! {
        #[test]
        fn every_seed_is_in_one_bin(values in proptest::collection::vec(0.0..1e4f64, 0..300), most in 1usize..20) {
            let values: Vec<GBps> = values.into_iter().map(GBps).collect();
            let bins = bins(&values, most);
            prop_assert!(bins.len() <= most);
            prop_assert_eq!(bins.iter().map(|bin| bin.count).sum::<usize>(), values.len());
        }
    }
}
