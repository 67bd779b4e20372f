//! The answer of `busbw advise`.

use busbw_model::Advised;
use std::io;

/// Writes the JSON of known faults, with a closing line feed.
pub fn write_advise(advised: &Advised, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(advised, out)
}
