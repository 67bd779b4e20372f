//! Where something was read: the input, the line, the text.

use serde::Serialize;

/// A line of an input. Lines count from 1, as editors and compilers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Place {
    /// Index into [`crate::Run::inputs`].
    pub input: u32,
    /// Line number, from 1; 0 when the whole input is meant.
    pub line: u64,
}

impl Place {
    /// Whether it stands behind another of the same input.
    pub fn is_after(self, other: Place) -> bool {
        self.input == other.input && self.line > other.line
    }
}

/// A line of an input with its text, kept as evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SourceLine {
    /// Where it stands.
    pub place: Place,
    /// The text, launcher prefixes included, cut to [`SourceLine::MAX_TEXT`] bytes.
    pub text: Box<str>,
}

impl SourceLine {
    /// The longest text that is kept of a line, in bytes. A ring line of 16,384 ranks has 100 kB; evidence needs its start.
    pub const MAX_TEXT: usize = 400;

    /// Keeps a line; a text over [`SourceLine::MAX_TEXT`] is cut at a character boundary and ends in `…`.
    pub fn new(place: Place, text: &str) -> Self {
        let text = text.trim_end();
        if text.len() <= Self::MAX_TEXT {
            return SourceLine { place, text: text.into() };
        }
        let cut = text.floor_char_boundary(Self::MAX_TEXT);
        SourceLine { place, text: format!("{}…", &text[..cut]).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_characters() {
        let line = SourceLine::new(Place::default(), &"é".repeat(1000));
        assert!(line.text.len() <= SourceLine::MAX_TEXT + '…'.len_utf8());
        assert!(line.text.ends_with("é…"));
    }
}
