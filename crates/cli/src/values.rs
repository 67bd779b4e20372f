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

/// How long something may take, or is measured.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds from 0.01 to 3600".into())
}
