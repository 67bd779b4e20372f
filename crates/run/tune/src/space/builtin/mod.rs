//! The spaces that come with busbw, a file each.

use super::{Limits, Space, toml};

pub const NAMES: [&str; 4] = ["sockets", "ib", "algo", "channels"];

const TEXTS: [&str; 4] =
    [include_str!("sockets.toml"), include_str!("ib.toml"), include_str!("algo.toml"), include_str!("channels.toml")];

pub fn open(name: &str) -> Option<Space> {
    let index = NAMES.iter().position(|known| *known == name)?;
    toml::parse(name, TEXTS[index]).ok()
}

/// What values a variable may have, where a built-in space says so.
pub fn limits(name: &str) -> Limits {
    let variables = NAMES.iter().filter_map(|space| open(space)).flat_map(|space| space.variables);
    let mut of_name = variables.filter(|variable| variable.name == name).map(|variable| variable.limits);
    of_name.next().unwrap_or_default()
}
