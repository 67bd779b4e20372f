//! Records of a document of JSON that lays one out over several lines, or puts several into one.

use super::Envelope;
use memchr::{memchr_iter, memmem};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Lists in lists of more levels nobody writes.
const MOST_DEPTHS: usize = 6;

/// Where an object stands in the document, and how deep.
struct Span {
    start: usize,
    end: usize,
    depth: usize,
}

/// A text of records with one in each line, the oldest first; whether it was turned round.
pub(crate) fn in_order(whole: Vec<u8>) -> (Vec<u8>, bool) {
    let text = of_streams(&whole).or_else(|| laid_out(&whole)).unwrap_or(whole);
    let Some(envelope) = Envelope::of(&text).filter(Envelope::is_newest_first) else { return (text, false) };
    let mut lines: Vec<&[u8]> = text.trim_ascii_end().split(|b| *b == b'\n').collect();
    // The head of a table stays.
    let head = lines.iter().take_while(|line| envelope.is_frame(line)).count();
    lines[head..].reverse();
    (lines.join(&b'\n'), true)
}

/// Loki's answer to a query, in which each stream has its labels and pairs of a time and a line: a record in each line, in the order of time.
fn of_streams(whole: &[u8]) -> Option<Vec<u8>> {
    let is_written = |key: &[u8]| memmem::find(whole, key).is_some();
    (is_written(b"\"values\"") && is_written(b"\"stream\"")).then_some(())?;
    let document: Value = serde_json::from_slice(whole).ok()?;
    let mut records: Vec<(u64, String)> = Vec::new();
    for stream in document.pointer("/data/result").or(document.get("streams"))?.as_array()? {
        for pair in stream["values"].as_array()? {
            let (time, line) = (pair[0].as_str()?, pair[1].as_str()?);
            records.push((time.parse().ok()?, json!({ "line": line, "labels": stream["stream"] }).to_string()));
        }
    }
    records.sort_by_key(|(time, _)| *time);
    let lines: Vec<String> = records.into_iter().map(|(_, record)| record).collect();
    Some(lines.join("\n").into_bytes())
}

/// The document with a record in each line: the line of the record's longest text as far as each has lines of its own, so that lines keep
/// their numbers. `None` of what is no such document.
pub(super) fn laid_out(whole: &[u8]) -> Option<Vec<u8>> {
    if is_own(whole) {
        return None;
    }
    let (tops, listed) = spans(whole)?;
    let of_records = |records: &[Span]| {
        let text = one_in_each_line(whole, records);
        Envelope::of(&text).map(|_| text)
    };
    if tops.len() != 1 {
        return of_records(&tops);
    }
    // Those that hold lists of others, as of resources and scopes, tell nothing themselves.
    let depths: BTreeSet<usize> = listed.iter().map(|span| span.depth).collect();
    let mut by_depth = depths
        .into_iter()
        .take(MOST_DEPTHS)
        .map(|depth| listed.iter().filter(|span| span.depth == depth).map(|span| Span { ..*span }).collect::<Vec<_>>());
    by_depth.find_map(|records| of_records(&records))
}

/// Whether it is a document of busbw's: its readers take it as it is, with what programs said of themselves in it.
fn is_own(whole: &[u8]) -> bool {
    const HEAD: usize = 4096;
    let head = &whole[..whole.len().min(HEAD)];
    [b"\"schema\": \"busbw.".as_slice(), b"\"schema\":\"busbw."].iter().any(|key| memmem::find(head, key).is_some())
}

/// The objects that stand alone or hold the rest, and those in arrays. `None` where the text is other than JSON, or has an object in each line.
fn spans(whole: &[u8]) -> Option<(Vec<Span>, Vec<Span>)> {
    let (mut tops, mut listed) = (Vec::new(), Vec::new());
    let mut open: Vec<(u8, usize)> = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for (at, &byte) in whole.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                b'\n' => return None,
                _ => {}
            }
            continue;
        }
        match byte {
            b'{' | b'[' => open.push((byte, at)),
            b'}' | b']' => {
                let (kind, start) = open.pop()?;
                (kind + 2 == byte).then_some(())?;
                let span = Span { start, end: at + 1, depth: open.len() };
                match (kind, open.last()) {
                    (_, None) => tops.push(span),
                    (b'{', Some((b'[', _))) => listed.push(span),
                    _ => {}
                }
                let is_of_a_line = |span: &Span| !whole[span.start..span.end].contains(&b'\n');
                if open.is_empty() && tops.len() == 2 && tops.iter().all(is_of_a_line) {
                    return None;
                }
            }
            b'"' if !open.is_empty() => in_string = true,
            b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
            _ if open.is_empty() => return None,
            _ => {}
        }
    }
    // The end of an export may be cut off.
    Some((if tops.is_empty() { vec![Span { start: 0, end: whole.len(), depth: 0 }] } else { tops }, listed))
}

fn one_in_each_line(whole: &[u8], records: &[Span]) -> Vec<u8> {
    let mut text = Vec::with_capacity(whole.len());
    let (mut line, mut passed, mut written) = (0, 0, 0);
    for Span { start, end, .. } in records {
        line += memchr_iter(b'\n', &whole[passed..*start]).count();
        let record = &whole[*start..*end];
        passed = *start;
        let lines = record.split(|b| *b == b'\n').enumerate();
        let longest = line + lines.max_by_key(|(_, line)| line.len()).map_or(0, |(number, _)| number);
        if let Some(empty) = longest.checked_sub(written) {
            text.extend(std::iter::repeat_n(b'\n', empty));
            written = longest;
        }
        text.extend(record.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        text.push(b'\n');
        written += 1;
    }
    text
}
