//! Lines of a run in which thousands of texts are looked for.

use crate::data::Template;
use std::collections::BTreeSet;
use std::ops::Bound;

#[derive(Debug, Clone, Default)]
pub(super) struct Printed {
    lines: Vec<String>,
    /// Runs of letters and digits in them: a text cuts no word at its beginning.
    words: BTreeSet<String>,
}

impl Printed {
    /// Whether a line has a text.
    pub(super) fn has(&self, text: &Template) -> bool {
        self.may_have(text) && self.lines.iter().any(|line| text.is_in(line))
    }

    fn may_have(&self, text: &Template) -> bool {
        let first = text.pieces().first().and_then(|piece| words(piece).next()).filter(|_| !text.begins_open());
        let begins = |first: &str| {
            let mut from = self.words.range::<str, _>((Bound::Included(first), Bound::Unbounded));
            from.next().is_some_and(|word| word.starts_with(first))
        };
        first.is_none_or(begins)
    }
}

impl Extend<String> for Printed {
    fn extend<T: IntoIterator<Item = String>>(&mut self, lines: T) {
        for line in lines {
            self.words.extend(words(&line).map(str::to_owned));
            self.lines.push(line);
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}
