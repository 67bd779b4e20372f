//! The answer of `busbw profile`.

use busbw_model::Profile;
use std::io;

/// Writes the JSON of what collectives cost, with a closing line feed.
pub fn write_profile(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(profile, out)
}
