//! Evidence as a compiler shows source: the place, the line, a mark under what the note speaks of.

use super::page::{Page, paint};
use crate::style::{self, clean_line, clip, clip_around, columns, right, widest, wrap};
use crate::words;
use busbw_model::{Evidence, Run};
use std::borrow::Cow;
use std::ops::Range;

/// Lines of evidence that a finding shows at most.
const MAX_LINES: usize = 8;
/// What NCCL writes in front of a warning.
const NCCL_WARN: &str = " NCCL WARN ";
/// Rows of the screen that a long warning takes at most.
const MOST_ROWS: usize = 4;

/// The lines that show a finding; those of one file that follow each other stand together.
pub(super) fn evidence(page: &mut Page, run: &Run, lines: &[Evidence]) {
    let shown = &lines[..lines.len().min(MAX_LINES)];
    let gutter = shown.iter().map(|e| e.source.place.line.to_string().len()).max().unwrap_or(1);
    for group in shown.chunk_by(|a, b| a.source.place.input == b.source.place.input) {
        page.text(&" ".repeat(gutter));
        page.styled(paint::GUTTER, "--> ");
        page.text(&clean_line(&words::location(run, group[0].source.place)));
        page.end_line();
        if !page.is_brief() {
            rule(page, gutter, "");
            page.end_line();
        }
        let texts: Vec<Cow<'_, str>> = group.iter().map(|line| clean_line(&line.source.text)).collect();
        // Columns stay aligned as long as every line fits.
        let squeezed = texts.iter().any(|text| columns(text) > page.width() - gutter - 3);
        for (line, text) in group.iter().zip(&texts) {
            let text = if squeezed { style::words(text).join(" ") } else { text.to_string() };
            source_line(page, gutter, line, &text);
        }
    }
    if let Some(more) = super::more(lines.len(), MAX_LINES) {
        rule(page, gutter, "");
        page.styled_line(paint::DIM, &format!(" {more}"));
    }
}

fn source_line(page: &mut Page, gutter: usize, evidence: &Evidence, text: &str) {
    let width = page.width() - gutter - 3;
    let note = evidence.note.as_deref().map(clean_line).unwrap_or_default();
    if note.is_empty() && text.contains(NCCL_WARN) && columns(text) > width {
        return whole_line(page, gutter, evidence, text);
    }
    let (shown, marked) = clip_around(text, focus(text, &note), width);
    rule(page, gutter, &number(evidence));
    page.text(" ");
    page.text(&shown);
    page.end_line();
    if !note.is_empty() {
        mark(page, gutter, marked, &note);
    }
}

/// A long warning over several rows: its reason stands at its end.
fn whole_line(page: &mut Page, gutter: usize, evidence: &Evidence, text: &str) {
    let width = page.width() - gutter - 3;
    let mut rows = wrap(text, width);
    if rows.len() > MOST_ROWS {
        let rest = rows.split_off(MOST_ROWS - 1).join(" ");
        rows.push(rest);
    }
    for (at, row) in rows.iter().enumerate() {
        rule(page, gutter, &if at == 0 { number(evidence) } else { String::new() });
        page.text(" ");
        page.text(&clip(row, width));
        page.end_line();
    }
}

fn number(evidence: &Evidence) -> String {
    match evidence.source.place.line {
        0 => String::new(),
        line => line.to_string(),
    }
}

/// The mark and the note beside it; below it when there is no room to the right.
fn mark(page: &mut Page, gutter: usize, marked: Range<usize>, note: &str) {
    let width = page.width() - gutter - 3;
    let carets = "^".repeat(marked.len().max(1));
    let beside = marked.start + carets.len() + 1;
    rule(page, gutter, "");
    page.text(&" ".repeat(marked.start + 1));
    page.styled(paint::WARNING, &carets);
    if beside + columns(note) <= width {
        return page.styled_line(paint::WARNING, &format!(" {note}"));
    }
    page.end_line();
    let lines = wrap(note, width);
    let longest = widest(lines.iter());
    let indent = marked.start.min(width.saturating_sub(longest));
    for line in lines {
        rule(page, gutter, "");
        page.text(&" ".repeat(indent + 1));
        page.styled_line(paint::WARNING, &line);
    }
}

/// A line number and the rule beside it.
fn rule(page: &mut Page, gutter: usize, number: &str) {
    page.styled(paint::GUTTER, &format!("{} |", right(number, gutter)));
}

/// The part of a line that its note speaks of: the longest word of the note that stands in the line and is a figure or
/// a name with a sign in it; else the line's first character.
fn focus(text: &str, note: &str) -> Range<usize> {
    let is_telling = |word: &&str| word.len() > 2 && word.contains(|c: char| c.is_ascii_digit() || "_=/".contains(c));
    let words = note.split_whitespace().map(|word| word.trim_matches(|c| "`'\"(),;:.".contains(c)));
    let found = words.filter(is_telling).filter_map(|word| find_word(text, word)).max_by_key(|range| range.len());
    found.unwrap_or_else(|| {
        let start = text.len() - text.trim_start().len();
        start..start + text[start..].chars().next().map_or(0, char::len_utf8)
    })
}

/// Where a word stands in a text with no letter or digit beside it.
fn find_word(text: &str, word: &str) -> Option<Range<usize>> {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '.');
    let stands_alone =
        |at: &usize| !joins(text[..*at].chars().next_back()) && !joins(text[at + word.len()..].chars().next());
    text.match_indices(word).map(|(at, _)| at).find(stands_alone).map(|at| at..at + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_under_what_the_note_names() {
        let cases = [
            ("  268435456 25.72 48.23 0", "the peak: 48.23 GB/s", "48.23"),
            ("status=12 opcode=0 vendor err 129 (Recv)", "status=12 is a timeout", "status=12"),
            ("vendor err 1290 129", "129 is a timeout", "129"),
            ("NCCL_ALGO set by environment to ring", "`NCCL_ALGO` is forced", "NCCL_ALGO"),
            ("   no word of it", "nothing in common", "n"),
            ("", "an empty line", ""),
        ];
        for (text, note, marked) in cases {
            assert_eq!(&text[focus(text, note)], marked, "{note}");
        }
    }
}
