//! The spaces that come with busbw, a file each.

use super::{Limits, Space, toml};
use std::cell::Cell;

/// Their names.
pub const NAMES: [&str; 4] = ["sockets", "ib", "algo", "channels"];

const TEXTS: [&str; 4] =
    [include_str!("sockets.toml"), include_str!("ib.toml"), include_str!("algo.toml"), include_str!("channels.toml")];

pub fn open(name: &str) -> Option<Space> {
    let index = NAMES.iter().position(|known| *known == name)?;
    toml::parse(name, TEXTS[index]).ok()
}

/// What values a variable may have, where a built-in space says so.
pub fn limits(name: &str) -> Limits {
    // Reading a built-in space asks for limits of variables that give none: it must not begin again.
    thread_local!(static ASKING: Cell<bool> = const { Cell::new(false) });
    if ASKING.replace(true) {
        return Limits::default();
    }
    let spaces = NAMES.iter().filter_map(|space| open(space));
    let found = spaces.flat_map(|space| space.variables).find(|variable| variable.name == name);
    ASKING.set(false);
    found.map(|variable| variable.limits).unwrap_or_default()
}
