//! The words of a prefix, and their forms.

use crate::clean::without_escapes;
use crate::cursor::lossy;
use crate::logger;

/// Marks in a word behind which the line may begin: `out/train.log:17:`, and the quotation mark of a list of lines.
const MARKS: &[u8] = b":]>|'";

pub(super) const DIGITS: u8 = b'0';
pub(super) const NAME: u8 = b'a';

/// A word of a prefix: its punctuation, with [`DIGITS`] and [`NAME`] for what may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub form: Box<[u8]>,
    pub tells: Tells,
    /// The names in it, where all lines have the same.
    pub always: Option<Vec<u8>>,
}

/// Whether a word distinguishes streams: it has names in it, and differs between lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    Nothing,
    /// Its numbers count lines: `out/train.log:17:`.
    ByNames,
    /// Its numbers belong to the name: `train[4242]:`.
    Whole,
}

impl Word {
    pub fn of(form: Box<[u8]>) -> Self {
        Word { form, tells: Tells::Nothing, always: None }
    }

    /// Whether it is a rank in brackets: `[3]`.
    pub fn is_rank(&self) -> bool {
        matches!(*self.form, [b'[', DIGITS, b']'] | [b'[', DIGITS, b']', b':'])
    }

    pub fn is_name(&self) -> bool {
        self.form.contains(&NAME)
    }

    /// How much of a text, with more behind it, has this form.
    pub fn length_in(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        for &piece in &self.form {
            let run = |is_of: fn(&u8) -> bool| text[at..].iter().take_while(|b| is_of(b)).count();
            let length = match piece {
                DIGITS | NAME => run(is_of_name),
                other => usize::from(text.get(at) == Some(&other)),
            };
            if length == 0 {
                return None;
            }
            at += length;
        }
        Some(at)
    }
}

/// A word with what may differ between lines taken out: numbers, and names with letters in them.
pub(super) fn form_of(word: &[u8]) -> Box<[u8]> {
    pieces(word).collect()
}

pub(super) fn pieces(word: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let length = rest.iter().take_while(|b| is_of_name(b)).count();
        let (run, behind) = rest.split_at(length.max(1));
        rest = behind;
        Some(match length {
            0 => first,
            _ if is_number(run) => DIGITS,
            _ => NAME,
        })
    })
}

/// The names in a word, without its numbers and marks.
pub(super) fn names_in(word: &[u8]) -> Vec<u8> {
    let runs = word.split(|b| !is_of_name(b)).filter(|run| !run.is_empty() && !is_number(run));
    runs.collect::<Vec<_>>().join(&b' ')
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./@".contains(byte) || *byte >= 0x80
}

/// A number, an address, or a part of a time as ISO 8601 writes it.
fn is_number(run: &[u8]) -> bool {
    run[0].is_ascii_digit() && run.iter().all(|b| b.is_ascii_digit() || b"-./TZ".contains(b))
}

/// Whether a word says how bad the line is.
pub(super) fn is_level(word: &[u8]) -> bool {
    logger::level_of(&lossy(&without_escapes(word))).is_some()
}

/// Whether a word is a level and a date as glog writes them, `E1125`: who speaks so is known by it.
pub(super) fn is_of_glog(word: &[u8]) -> bool {
    matches!(word, [b'D' | b'I' | b'W' | b'E' | b'F' | b'C', date @ ..] if date.len() == 4 && date.iter().all(u8::is_ascii_digit))
}

/// The first word of a text, and what stands behind it.
pub(super) fn part_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    text.split_at(text.iter().position(|b| is_blank(*b)).unwrap_or(text.len()))
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A word up to a mark in it, by the mark's number.
pub(super) fn up_to_mark(word: &[u8], number: usize) -> Option<&[u8]> {
    let mark = (0..word.len()).filter(|at| MARKS.contains(&word[*at])).nth(number)?;
    Some(&word[..=mark])
}
