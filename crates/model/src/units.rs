//! Units as types: bytes, microseconds and gigabytes per second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes. Printed with binary suffixes (`256 MiB`), read with or without them (`256M`, `18G`, `512`),
/// as nccl-tests reads `-b` and `-e` (`parsesize` in its `src/common.cu`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Bytes(pub u64);

/// A duration in microseconds, the unit of the time columns of nccl-tests. Printed with the unit that suits it: `12.3 µs`, `1.25 ms`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Micros(pub f64);

/// A bandwidth in GB/s, 10^9 bytes per second: the unit of algbw and busbw.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct GBps(pub f64);

const SUFFIXES: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match SUFFIXES.iter().find(|(unit, _)| self.0 >= *unit) {
            None => format!("{} B", self.0),
            Some((unit, suffix)) if self.0.is_multiple_of(*unit) => format!("{} {suffix}", self.0 / unit),
            Some((unit, suffix)) => format!("{:.1} {suffix}", self.0 as f64 / *unit as f64),
        };
        f.pad(&text)
    }
}

/// The text is no size: an unsigned number and at most one of the suffixes K, M, G, T (or KiB, MB …) is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size; write a number of bytes with an optional K, M, G or T, for example 512, 8M or 16G")]
pub struct ParseBytesError(pub String);

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Suffixes are binary: `1K` is 1024 bytes.
    ///
    /// ```
    /// use busbw_model::Bytes;
    /// assert_eq!("16G".parse(), Ok(Bytes(16 << 30)));
    /// assert_eq!("1.5 MiB".parse(), Ok(Bytes(3 << 19)));
    /// assert!("fast".parse::<Bytes>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseBytesError(text.to_string());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(digits);
        let shift = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(fail()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Bytes).ok_or_else(fail);
        }
        let scaled = number.parse::<f64>().map_err(|_| fail())? * (1u64 << shift) as f64;
        if scaled < u64::MAX as f64 { Ok(Bytes(scaled as u64)) } else { Err(fail()) }
    }
}

/// The text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time; write seconds, or a number with ms, s, min, h or d: 5, 500ms, 2min")]
pub struct ParseTimeError(pub String);

/// A time as flags take it: a number with its unit, seconds without one.
///
/// ```
/// use std::time::Duration;
/// let times = ["5", "5s", "500ms", "2min", "1.5m"].map(|text| busbw_model::time(text).unwrap().as_millis());
/// assert_eq!(times, [5_000, 5_000, 500, 120_000, 90_000]);
/// assert!(["", "soon", "3w", "-1s", "1e300h"].iter().all(|text| busbw_model::time(text).is_err()));
/// ```
///
/// # Errors
/// The text, and how times are written.
pub fn time(text: &str) -> Result<Duration, ParseTimeError> {
    let fail = || ParseTimeError(text.to_owned());
    let trimmed = text.trim();
    let (number, unit) = trimmed.split_at(trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(fail()),
    };
    let number: f64 = number.trim().parse().map_err(|_| fail())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| fail())
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            us if us < 1e3 => format!("{} µs", gbit(us)),
            us if us < 1e6 => format!("{} ms", gbit(us / 1e3)),
            us => format!("{} s", gbit(us / 1e6)),
        };
        f.pad(&text)
    }
}

impl fmt::Display for GBps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2} GB/s", self.0))
    }
}

impl GBps {
    /// The bandwidth of `bytes` moved in `time`; zero when no time passed.
    pub fn from_transfer(bytes: Bytes, time: Micros) -> Self {
        if time.0 > 0.0 { GBps(bytes.0 as f64 / time.0 / 1e3) } else { GBps(0.0) }
    }

    /// The same bandwidth in Gbit/s, the unit in which network ports are sold.
    pub fn gbit_per_s(self) -> f64 {
        self.0 * 8.0
    }
}

/// A figure as prose and matrices write it, those in Gbit/s above all: two or three digits that count.
///
/// ```
/// assert_eq!([0.1234, 3.049, 98.34, 411.7].map(busbw_model::gbit), ["0.12", "3.05", "98.3", "412"]);
/// assert_eq!([0.0, 0.0431, 0.0004].map(busbw_model::gbit), ["0.00", "0.043", "0.00"]);
/// ```
pub fn gbit(value: f64) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if (0.0005..0.1).contains(&v) => 3,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// `1 rank`, `2 ranks`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_print_as_people_say_them() {
        let cases = [(0, "0 B"), (512, "512 B"), (1 << 28, "256 MiB"), (17_179_869_184, "16 GiB"), (1536, "1.5 KiB")];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let cases = [(0.5, "0.50 µs"), (12.34, "12.3 µs"), (1250.0, "1.25 ms"), (42_271_710.0, "42.3 s")];
        for (us, text) in cases {
            assert_eq!(Micros(us).to_string(), text);
        }
    }

    #[test]
    fn an_overflowing_size_is_refused() {
        assert!("99999999999999999999T".parse::<Bytes>().is_err());
        assert!("18446744073709551615K".parse::<Bytes>().is_err());
    }

    #[test]
    fn bandwidth_follows_from_bytes_and_time() {
        // 16 GiB in 949191 us: the last row of the first field report prints 18.10 GB/s.
        let algbw = GBps::from_transfer(Bytes(17_179_869_184), Micros(949_191.0));
        assert!((algbw.0 - 18.10).abs() < 0.005);
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_an_error(text in ".{0,24}") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn whole_sizes_survive_printing(count in 1u64..1024, shift in 0u32..5) {
            let size = Bytes(count << (10 * shift));
            prop_assert_eq!(size.to_string().parse::<Bytes>(), Ok(size));
        }
    }
}
