//! Numbers as C's printf writes them, where Rust's formatter differs.

/// A number in a cell of `width` characters with as many of two decimals as fit; an exponent where even none do
/// (`getFloatStr` of nccl-tests' `src/util.cu`). A number that fits in no way is cut, as there.
pub fn cell(value: f64, width: usize) -> String {
    for decimals in [2, 1, 0] {
        let text = fixed(value, decimals);
        if text.len() <= width {
            return format!("{text:>width$}");
        }
    }
    let mut text = scientific(value, usize::from(width >= 7));
    text.truncate(width);
    format!("{text:>width$}")
}

/// `%.Nf`.
fn fixed(value: f64, decimals: usize) -> String {
    not_finite(value).unwrap_or_else(|| format!("{value:.decimals$}"))
}

/// `%.Ne`: the exponent has a sign and at least two digits.
fn scientific(value: f64, decimals: usize) -> String {
    not_finite(value).unwrap_or_else(|| {
        let text = format!("{value:.decimals$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        format!("{digits}e{sign}{exponent:0>2}")
    })
}

/// `%g`: six significant digits, without trailing zeros.
///
/// ```
/// assert_eq!(busbw_bench::number::general(95.30094), "95.3009");
/// assert_eq!(busbw_bench::number::general(131_072_000.0), "1.31072e+08");
/// ```
pub fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if let Some(text) = not_finite(value) {
        return text;
    }
    let rounded = scientific(value, DIGITS as usize - 1);
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..DIGITS).contains(&exponent) {
        return format!("{}{}", trim_zeros(digits), &rounded[digits.len()..]);
    }
    trim_zeros(&fixed(value, (DIGITS - 1 - exponent).max(0) as usize)).to_string()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn not_finite(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("nan".to_string());
    }
    value.is_infinite().then(|| if value > 0.0 { "inf" } else { "-inf" }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_lose_decimals_and_then_take_an_exponent() {
        let cases = [
            (1.234, 7, "   1.23"),
            (9999.994, 7, "9999.99"),
            (9999.996, 7, "10000.0"),
            (123_456.4, 7, " 123456"),
            (1_234_567.0, 7, "1234567"),
            (12_345_678.0, 7, "1.2e+07"),
            (999.99, 6, "999.99"),
            (9999.94, 6, "9999.9"),
            (123_456.0, 6, "123456"),
            (1_234_567.0, 6, " 1e+06"),
            (0.0, 6, "  0.00"),
            (f64::NAN, 7, "    nan"),
            (f64::INFINITY, 6, "   inf"),
        ];
        for (value, width, text) in cases {
            assert_eq!(cell(value, width), text, "{value}");
        }
    }

    #[test]
    fn general_is_that_of_printf() {
        // Printed by C's printf("%g").
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (95.300_94, "95.3009"),
            (0.000_123_456_7, "0.000123457"),
            (0.000_012_345_67, "1.23457e-05"),
            (999_999.4, "999999"),
            (999_999.6, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (100_000.0, "100000"),
            (1e-10, "1e-10"),
            (-2.5, "-2.5"),
            (1e100, "1e+100"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text, "{value}");
        }
    }
}
