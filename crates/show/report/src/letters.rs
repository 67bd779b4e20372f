//! Short names of runs that are compared: A, B, C …

use crate::words::decimals;

/// The letter of a run; beyond Z its number.
pub(crate) fn letter(index: usize) -> String {
    match u8::try_from(index).ok().filter(|index| *index < 26) {
        Some(index) => char::from(b'A' + index).to_string(),
        None => (index + 1).to_string(),
    }
}

/// `53.1×`, `1.04×`, `0.019×`: three digits.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.*}×", decimals(ratio, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_three_digits() {
        for (ratio, text) in
            [(53.0987, "53.1×"), (1.04, "1.04×"), (0.0188, "0.0188×"), (531.2, "531×"), (5312.0, "5312×"), (0.0, "0×")]
        {
            assert_eq!(times(ratio), text);
        }
    }

    #[test]
    fn runs_have_letters() {
        assert_eq!([0, 25, 26].map(letter), ["A", "Z", "27"]);
    }
}
