//! Values of flags that several subcommands take.

use busbw_model::{Bytes, Code, Collective, ParseBytesError};
use busbw_predict::WhatIf;
use busbw_tune::space;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Sizes beyond this need more memory than a figure is worth.
const LARGEST: Bytes = Bytes(1 << 30);

/// The size of a message between two ends.
pub fn message_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|e: ParseBytesError| e.to_string())?;
    if (1..=LARGEST.0).contains(&size.0) { Ok(size) } else { Err(format!("give sizes from 1 to {LARGEST}")) }
}

/// How long something may take, or is measured.
pub fn duration(text: &str) -> Result<Duration, String> {
    time_within(text, Duration::from_millis(10)..=Duration::from_secs(3600))
}

/// A time from 10 ms to a day.
pub fn span(text: &str) -> Result<Duration, String> {
    time_within(text, Duration::from_millis(10)..=Duration::from_secs(24 * 3600))
}

/// A time of at least a little and at most a while.
pub fn time_within(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = busbw_model::time(text).map_err(|error| error.to_string())?;
    let (least, most) = (allowed.start(), allowed.end());
    if allowed.contains(&time) { Ok(time) } else { Err(format!("give a time from {least:?} to {most:?}")) }
}

/// Where metrics are served; a port alone is on the loopback interface.
pub fn served(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse()).map_err(|_| "give a port, or ADDRESS:PORT with a numeric address".into())
}

/// Values that shells complete and help lists, of which `read` makes what the flag is.
#[derive(Clone)]
pub struct Known<T> {
    read: fn(&str) -> Result<T, String>,
    names: Vec<&'static str>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Known<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.read.parse_ref(command, flag, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

pub fn collective() -> Known<Collective> {
    let names: Vec<&str> = Collective::ALL.into_iter().map(Collective::name).collect();
    Known { read: read_collective, names }
}

pub fn read_collective(name: &str) -> Result<Collective, String> {
    Collective::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Collective::ALL.into_iter().map(Collective::name).collect();
        format!("choose one of {}", names.join(", "))
    })
}

/// A finding's code, or a part of some.
pub fn code() -> Known<String> {
    Known { read: as_it_is, names: Code::ALL.iter().map(|(_, name, _)| *name).collect() }
}

/// A built-in space, or a file.
pub fn space() -> Known<String> {
    Known { read: as_it_is, names: space::NAMES.to_vec() }
}

/// A collective, or what stands in its place.
pub fn collective_first() -> Known<String> {
    Known { read: as_it_is, names: collective().names }
}

pub fn change() -> Known<WhatIf> {
    let read = |text: &str| text.parse().map_err(|error: busbw_predict::WhatIfError| error.to_string());
    Known { read, names: WhatIf::FORMS.to_vec() }
}

fn as_it_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// A rate in Gbit/s: 200G, 200Gbit/s, 200Gb/s, 200Gbps; 25GB/s is eight times as much.
pub fn gbit_s(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let factor = match unit {
        "G" | "Gbit/s" | "Gb/s" | "Gbps" | "Gbit" => Some(1.0),
        "M" | "Mbit/s" | "Mb/s" | "Mbps" => Some(1e-3),
        "GB/s" => Some(8.0),
        "MB/s" => Some(8e-3),
        _ => None,
    };
    let rate = number.trim().parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    let rate = rate.filter(|rate| (1e-3..=1e5).contains(rate));
    rate.ok_or_else(|| "give a rate with its unit: 200G, 200Gbit/s or 25GB/s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_its_unit() {
        for (text, rate) in
            [("200G", 200.0), ("200 Gbit/s", 200.0), ("25GB/s", 200.0), ("400Mbit/s", 0.4), ("1.5Gbps", 1.5)]
        {
            assert_eq!(gbit_s(text), Ok(rate), "{text}");
        }
        for text in ["200", "G", "-1G", "0G", "nanG", "200X", "1e9G", ""] {
            assert!(gbit_s(text).is_err(), "{text}");
        }
    }
}
