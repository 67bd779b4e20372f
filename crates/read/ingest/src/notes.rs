//! Which of the lines that nobody knows are worth keeping: the first few of each wording.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;

/// Lines of one wording that are kept: enough for a list of node pairs, which differ in numbers only.
const OF_A_WORDING: u8 = 96;
/// Different wordings that a worker remembers; what is new after that is not kept.
const MOST_WORDINGS: usize = 1 << 15;

/// Whether a count is that of a line worth keeping.
pub(crate) fn is_news(count: u8) -> bool {
    (1..=OF_A_WORDING).contains(&count)
}

/// Counts lines by wording.
#[derive(Default)]
pub(crate) struct Notes {
    seen: FxHashMap<u64, u8>,
}

impl Notes {
    /// How many lines of the wording there were (lines differ in wording when they differ in more than digits), this one included; 0 where there is no room to remember it.
    pub fn count(&mut self, line: &[u8]) -> u8 {
        let mut hasher = FxHasher::default();
        let mut in_number = false;
        for byte in line.trim_ascii() {
            let digit = byte.is_ascii_digit();
            if !digit || !in_number {
                hasher.write_u8(if digit { b'0' } else { *byte });
            }
            in_number = digit;
        }
        let full = self.seen.len() >= MOST_WORDINGS;
        let Some(count) = (match full {
            true => self.seen.get_mut(&hasher.finish()),
            false => Some(self.seen.entry(hasher.finish()).or_default()),
        }) else {
            return 0;
        };
        *count = count.saturating_add(1);
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_a_wording_are_news() {
        let mut notes = Notes::default();
        let of_a_wording = (0..1000).filter(|i| is_news(notes.count(format!("step {i} of 1000").as_bytes()))).count();
        assert_eq!(of_a_wording, usize::from(OF_A_WORDING));
        assert_eq!(notes.count(b"something else"), 1);
    }
}
