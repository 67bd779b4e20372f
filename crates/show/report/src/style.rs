//! Laying out text: making log text harmless, wrapping, clipping, measuring. Widths are terminal columns.

use std::borrow::Cow;
use std::ops::Range;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What a cut text ends or begins with.
const ELLIPSIS: &str = "…";
/// Distance of tab stops; `nvidia-smi topo -m` aligns its matrix with them.
const TAB: usize = 8;
/// The longest text in backquotes that wrapping keeps whole, in bytes. A stray backquote must not swallow a paragraph.
const MAX_CODE: usize = 400;

/// The text without what could steer a terminal ([`busbw_model::text::clean`]), and with spaces for tabs.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    match busbw_model::text::clean(text) {
        text if text.contains('\t') => Cow::Owned(without_tabs(&text)),
        text => text,
    }
}

fn without_tabs(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + TAB);
    let mut column = 0;
    for c in text.chars() {
        let width = if c == '\t' { TAB - column % TAB } else { c.width().unwrap_or(0) };
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', width)),
            c => out.push(c),
        }
        column = if c == '\n' { 0 } else { column + width };
    }
    out
}

/// [`clean`], on one line.
pub(crate) fn clean_line(text: &str) -> Cow<'_, str> {
    match clean(text) {
        text if text.contains('\n') => Cow::Owned(text.replace('\n', " ")),
        text => text,
    }
}

/// Columns that the text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Columns that the widest of the texts takes.
pub(crate) fn widest(texts: impl IntoIterator<Item = impl AsRef<str>>) -> usize {
    texts.into_iter().map(|text| columns(text.as_ref())).max().unwrap_or(0)
}

/// The text, cut to a width; a cut text ends in `…`.
pub(crate) fn clip(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    let end = fitting(text, width.saturating_sub(1));
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

/// The text, cut to a width so that `focus`, a range of its bytes, stays in sight, and the columns where it now stands.
pub(crate) fn clip_around(text: &str, focus: Range<usize>, width: usize) -> (String, Range<usize>) {
    let before = columns(&text[..focus.start]);
    let length = columns(&text[focus.clone()]);
    if before + length < width || columns(text) <= width {
        return (clip(text, width).into_owned(), before..before + length);
    }
    // From right to left: the focus and at most a third of the width after it, then as much as fits before it.
    let after = fitting(&text[focus.end..], width / 3);
    let room = width.saturating_sub(2 + length + columns(&text[focus.end..focus.end + after]));
    let start = focus.start - fitting_end(&text[..focus.start], room);
    let (clipped, column) = (clip(&text[start..], width.saturating_sub(1)), 1 + columns(&text[start..focus.start]));
    (format!("{ELLIPSIS}{clipped}"), column..column + length)
}

/// Bytes of the longest beginning that fits a width.
fn fitting(text: &str, width: usize) -> usize {
    take_columns(text.chars(), width)
}

/// Bytes of the longest end that fits a width.
fn fitting_end(text: &str, width: usize) -> usize {
    take_columns(text.chars().rev(), width)
}

fn take_columns(chars: impl Iterator<Item = char>, width: usize) -> usize {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .map(char::len_utf8)
        .sum()
}

/// The text with spaces after it, up to a width.
pub(crate) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// The text with spaces before it, up to a width.
pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Words as wrapping sees them: separated by white space, but a text in backquotes is one word.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = word_end(rest);
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// Where the first word of a text ends.
fn word_end(text: &str) -> usize {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            break;
        }
        at += c.len_utf8();
        if c == '`'
            && let Some(length) = text[at..].find(['`', '\n'])
            && length <= MAX_CODE
            && text[at + length..].starts_with('`')
        {
            at += length + 1;
        }
    }
    at
}

/// The words of a text on lines of at most `width` columns. A word that is longer has a line for itself.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    fill(words(text), 0, width)
}

/// Paragraphs, separated by an empty line, on lines of at most `width` columns; lines that begin with `- ` are items of
/// a list and keep to themselves.
pub(crate) fn prose(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in paragraphs(text) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        for block in paragraph {
            let hang = if is_item(&block) { 2 } else { 0 };
            lines.extend(fill(words(&block), hang, width));
        }
    }
    lines
}

/// The paragraphs of a text, each as its blocks: a list item is a block, lines that follow each other are one.
pub(crate) fn paragraphs(text: &str) -> Vec<Vec<String>> {
    let mut paragraphs: Vec<Vec<String>> = Vec::new();
    let mut open = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() {
            open = false;
            continue;
        }
        if !open {
            paragraphs.push(Vec::new());
            open = true;
        }
        let Some(blocks) = paragraphs.last_mut() else { continue };
        match blocks.last_mut() {
            Some(block) if !is_item(line) => {
                block.push(' ');
                block.push_str(line);
            }
            _ => blocks.push(line.to_string()),
        }
    }
    paragraphs
}

/// Whether a block is an item of a list.
pub(crate) fn is_item(block: &str) -> bool {
    block.starts_with("- ")
}

/// Puts words on lines of at most `width` columns; lines after the first begin with `hang` spaces.
fn fill(words: Vec<&str>, hang: usize, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
            Some(_) => lines.push(format!("{}{word}", " ".repeat(hang))),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tabs_become_spaces() {
        for (text, cleaned) in
            [("a\tb", "a       b"), ("12345678\tb", "12345678        b"), ("\x1b[1m漢\tb", "漢      b")]
        {
            assert_eq!(clean(text), cleaned, "{text:?}");
        }
    }

    #[test]
    fn a_word_longer_than_the_line_is_never_broken() {
        assert_eq!(
            wrap("see https://example.org/a/very/long/path now", 12),
            ["see", "https://example.org/a/very/long/path", "now"]
        );
    }

    #[test]
    fn text_in_backquotes_is_one_word_and_a_stray_backquote_is_not() {
        assert_eq!(words("run `a b c`, then"), ["run", "`a b c`,", "then"]);
        assert_eq!(words("it`s a word"), ["it`s", "a", "word"]);
    }

    #[test]
    fn list_items_stand_on_their_own_lines() {
        let text = "Two\ncauses:\n- one is the\n  first\n- two\n\nEnd.";
        assert_eq!(prose(text, 12), ["Two causes:", "- one is the", "  first", "- two", "", "End."]);
    }

    #[test]
    fn clipping_keeps_the_focus_in_sight() {
        let text = format!("{}48.23{}", " ".repeat(90), "x".repeat(60));
        let (shown, at) = clip_around(&text, 90..95, 40);
        assert_eq!(shown.chars().skip(at.start).take(5).collect::<String>(), "48.23");
        assert!(shown.starts_with('…') && shown.ends_with('…') && columns(&shown) <= 40, "{shown}");
    }

    proptest! {
        #[test]
        fn cleaning_leaves_no_control_character_and_is_done_once(text in ".*|[\\x00-\\x7f\\u{80}-\\u{9f}]*") {
            let once = clean(&text).into_owned();
            prop_assert!(!once.chars().any(|c| c.is_control() && c != '\n'));
            prop_assert_eq!(clean(&once), once.as_str());
        }

        #[test]
        fn clipped_text_fits(text in "[a-z 漢é]{0,80}", width in 1usize..60, start in 0usize..80, length in 0usize..9) {
            prop_assert!(columns(&clip(&text, width)) <= width);
            let start = text.floor_char_boundary(start.min(text.len()));
            let end = text.floor_char_boundary((start + length).min(text.len())).max(start);
            if width > 30 {
                prop_assert!(columns(&clip_around(&text, start..end, width).0) <= width);
            }
        }

        #[test]
        fn wrapping_loses_no_word(text in "[a-z `]{0,120}", width in 1usize..60) {
            let wrapped = wrap(&text, width).join(" ");
            prop_assert_eq!(words(&wrapped), words(&text));
        }
    }
}
