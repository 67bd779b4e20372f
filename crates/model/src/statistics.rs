//! Statistics that several rooms need.

/// The middle one of the finite values, or of two the mean.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = in_order(values);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// The lowest of the highest quarter of the finite values: what good ones reach, even where half of all are bad.
pub fn upper_quartile(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = in_order(values);
    values.get(values.len() * 3 / 4).copied()
}

fn in_order(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_lie_on_either_side() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[4.0, 1.0, f64::INFINITY, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_quarter_lies_at_the_upper_quartile_or_above() {
        let of = |values: &[f64]| upper_quartile(values.iter().copied());
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[1.0]), Some(1.0));
        assert_eq!(of(&[9.0, 1.0, 1.0, 9.5, 1.0, 1.0]), Some(9.0));
    }
}
