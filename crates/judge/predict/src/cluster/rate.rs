//! Bandwidths as text with a unit: `400 Gbit/s`, `50 GB/s`.

use busbw_model::GBps;

/// The unit in which people state a bandwidth: bits for networks, bytes for what is inside a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bits,
    Bytes,
}

impl Unit {
    /// How to write a number that lacked its unit.
    pub(super) fn remedy(self, number: f64) -> String {
        match self {
            Unit::Bits => format!("write \"{number} Gbit/s\" or \"{} GB/s\"", number / 8.0),
            Unit::Bytes => format!("write \"{number} GB/s\" or \"{} Gbit/s\"", number * 8.0),
        }
    }

    pub(super) fn example(self) -> &'static str {
        match self {
            Unit::Bits => "\"400 Gbit/s\" or \"50 GB/s\"",
            Unit::Bytes => "\"450 GB/s\"",
        }
    }
}

/// What is wrong with a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RateProblem {
    NoNumber,
    NoUnit(f64),
    NotPositive,
}

impl RateProblem {
    /// What is wrong with a number that stands alone.
    pub(super) fn of_bare(number: f64) -> Self {
        if number > 0.0 { RateProblem::NoUnit(number) } else { RateProblem::NotPositive }
    }
}

/// Units and what one of them is in GB/s. A small b is a bit, a capital B a byte.
const UNITS: [(&str, f64); 18] = [
    ("Gb/s", 0.125),
    ("Gbit/s", 0.125),
    ("gbit/s", 0.125),
    ("Gbps", 0.125),
    ("gbps", 0.125),
    ("Mb/s", 0.000_125),
    ("Mbit/s", 0.000_125),
    ("Mbps", 0.000_125),
    ("Tb/s", 125.0),
    ("Tbit/s", 125.0),
    ("Tbps", 125.0),
    ("GB/s", 1.0),
    ("GBps", 1.0),
    ("MB/s", 0.001),
    ("MBps", 0.001),
    ("TB/s", 1000.0),
    ("TBps", 1000.0),
    ("GiB/s", 1.073_741_824),
];

pub(crate) fn parse(text: &str) -> Result<GBps, RateProblem> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| RateProblem::NoNumber)?;
    let factor = UNITS.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
    let rate = number * factor.ok_or(RateProblem::of_bare(number))?;
    if rate > 0.0 && rate.is_finite() { Ok(GBps(rate)) } else { Err(RateProblem::NotPositive) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_have_a_number_and_a_unit() {
        for (text, rate) in crate::cases::<(String, String)>("rates") {
            assert_eq!(format!("{:?}", parse(&text)), rate, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_positive_rate_or_a_problem(text in ".{0,16}") {
            prop_assert!(parse(&text).is_ok_and(|rate| rate.0 > 0.0) || parse(&text).is_err());
        }
    }
}
