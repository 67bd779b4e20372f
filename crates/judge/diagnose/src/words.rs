//! Words that programs are known by (`rules/words.toml`), and how texts of findings and checks speak of several things.

use crate::data::built_in;
use busbw_model::Words;
use std::fmt::Display;
use std::sync::LazyLock;

pub(crate) static KNOWN: LazyLock<Words> =
    LazyLock::new(|| built_in("words.toml", include_str!("../../../../rules/words.toml")));

/// What Gloo says of a wait that was too long (`gloo/transport/tcp/unbound_buffer.cc`).
pub(crate) const TIMED_OUT: &str = "Timed out waiting ";

/// A text as a sentence begins with it: it begins with an ASCII letter.
pub(crate) fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// `a, b, c and 5 more`, with at most so many named.
pub(crate) fn listed(things: impl ExactSizeIterator<Item = impl Display>, most: usize) -> String {
    let more = things.len().saturating_sub(most);
    let named = things.take(most).map(|thing| thing.to_string()).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_counted() {
        for (most, text) in [(1, "3 and 2 more"), (2, "3, 4 and 1 more"), (3, "3, 4, 9"), (8, "3, 4, 9")] {
            assert_eq!(listed([3, 4, 9].iter(), most), text);
        }
        assert_eq!(listed([0; 0].iter(), 4), "");
    }
}
