//! The answer of `busbw advise`.

use busbw_model::Advised;
use std::io;

/// Writes the JSON of known faults, with a closing line feed.
///
/// # Errors
/// What the writer returns.
pub fn write_advise(advised: &Advised, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(advised, out)
}
