//! A line on its way to the readers of line-based formats, and how they read numbers at the start of a text.

use busbw_model::Place;
use memchr::memmem::Finder;
use std::str::FromStr;

/// A line, or the part of a line that is no NCCL log line, with launcher prefixes, colour codes and time stamps peeled off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLine<'a> {
    pub place: Place,
    /// Who printed it, as the launcher labels it (`1,0`, `rank3`, `12`); empty without a launcher. Two streams never
    /// share a table row.
    pub stream: &'a str,
    /// The text. It is a piece when NCCL log lines landed inside the line: the next piece of the stream continues it.
    pub text: &'a str,
}

/// Whether a text is digits and nothing else.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a text is an age as kubectl prints it: `41s`, `3m12s`, `2d3h`.
pub(crate) fn is_age(text: &str) -> bool {
    let (digits, rest) = part_digits(text);
    let behind = rest.strip_prefix(['s', 'm', 'h', 'd', 'y']);
    !digits.is_empty() && behind.is_some_and(|rest| rest.is_empty() || is_age(rest))
}

/// A text parted behind the digits that it begins with.
pub(crate) fn part_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A text parted where another stands in it first, as [`str::split_once`] does: for what is looked for in many long lines.
pub(crate) fn parted<'t>(text: &'t str, at: &Finder) -> Option<(&'t str, &'t str)> {
    let start = at.find(text.as_bytes())?;
    Some((&text[..start], &text[start + at.needle().len()..]))
}

/// The whole number that a text begins with: `600017 milliseconds` is 600017. `None` without digits, and where it does not fit.
pub(crate) fn leading<T: FromStr>(text: &str) -> Option<T> {
    part_digits(text).0.parse().ok()
}

/// Cases of a test, from `tests/data/cases.toml`.
#[cfg(test)]
pub(crate) fn cases<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    let mut lists: toml::Table = toml::from_str(include_str!("../tests/data/cases.toml")).expect("TOML");
    lists.remove(name).expect("a list").try_into().expect("cases")
}
