//! Values of flags that several subcommands take.

use busbw_model::{Bytes, ParseBytesError};
use std::time::Duration;

/// Sizes beyond this need more memory than a figure is worth.
const LARGEST: Bytes = Bytes(1 << 30);

/// The size of a message between two ends.
pub fn message_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|e: ParseBytesError| e.to_string())?;
    if (1..=LARGEST.0).contains(&size.0) { Ok(size) } else { Err(format!("give sizes from 1 to {LARGEST}")) }
}

/// A time with its unit: 500ms, 90s, 30m, 2h, 1d; seconds without one.
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * seconds).ok()
}

/// How long something may take, or is measured.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.01 to 3600".into())
}
