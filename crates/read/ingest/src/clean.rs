//! From a raw line to text: colour codes, carriage returns, JSON strings.

use crate::cursor::finder;
use crate::quoted::{may_be_quoted, unquoted};
use crate::readers::may_belong;
use crate::record::said_by;
use aho_corasick::{AhoCorasick, Match};
use memchr::{memchr, memchr_iter, memchr2, memchr3, memmem};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Removes ANSI escape sequences (`ESC [ … m`). Borrows when there are none.
pub(crate) fn without_escapes(line: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr(0x1b, line) else { return Cow::Borrowed(line) };
    let mut clean = line[..first].to_vec();
    let mut rest = &line[first..];
    while let Some((&byte, after)) = rest.split_first() {
        if byte == 0x1b {
            rest = behind_escape(after);
        } else {
            clean.push(byte);
            rest = after;
        }
    }
    Cow::Owned(clean)
}

/// Skips what follows an ESC: a control sequence up to its final letter, an operating system command (a title, a link) up to BEL
/// or `ESC \`, or one byte.
fn behind_escape(after: &[u8]) -> &[u8] {
    match after.first() {
        Some(b'[') => {
            let end = after[1..].iter().position(|b| (0x40..=0x7e).contains(b)).map_or(after.len(), |at| at + 2);
            &after[end.min(after.len())..]
        }
        Some(b']') => {
            let rest = &after[memchr2(0x07, 0x1b, after).unwrap_or(after.len())..];
            rest.strip_prefix(b"\x07").or(rest.strip_prefix(b"\x1b\\")).unwrap_or(rest)
        }
        Some(_) => &after[1..],
        None => after,
    }
}

/// The blanks that all lines of a text begin with, or the `>` of a quotation: those who paste a log into a mail or a page indent it.
pub(crate) fn indent(text: &[u8]) -> &[u8] {
    let mut lines = text.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let Some(first) = lines.next() else { return &[] };
    let blanks = first.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'>')).count();
    let common = |blanks: usize, line: &[u8]| first[..blanks].iter().zip(line).take_while(|(a, b)| a == b).count();
    let whole = lines.try_fold(blanks, |blanks, line| Some(common(blanks, line)).filter(|left| *left > 0));
    &first[..whole.unwrap_or(0)]
}

/// A line, with the end of a row that a narrow terminal put on the next one: `| NVIDIA-SMI 535.104.05 …` and `12.2 |`; and how much of `behind`, which
/// follows the line, belongs to it.
pub(crate) fn whole_row<'l>(line: &'l [u8], behind: &[u8]) -> (Cow<'l, [u8]>, usize) {
    const NARROWEST: usize = 40;
    let row = if line.first() == Some(&b'|') { line.trim_ascii_end() } else { b"" };
    if row.len() < NARROWEST {
        return (Cow::Borrowed(line), 0);
    }
    let next = &behind[..memchr(b'\n', behind).unwrap_or(behind.len())];
    let end = next.trim_ascii_end();
    let is_end = end.len() < row.len()
        && memchr(b'|', end).is_some_and(|at| at + 1 == end.len())
        && !matches!(end.trim_ascii_start().first(), Some(b'|' | b'+'));
    if is_end { ([row, end].concat().into(), behind.len().min(next.len() + 1)) } else { (Cow::Borrowed(line), 0) }
}

/// Whether a text has what lines are cleaned of: escape sequences, carriage returns, or what [`has_entities`] finds.
pub(crate) fn is_odd(text: &[u8]) -> bool {
    match memchr3(0x1b, b'\r', b'&', text) {
        Some(at) if text[at] != b'&' => true,
        Some(at) => memchr2(0x1b, b'\r', &text[at..]).is_some() || has_entities(text),
        None => !text.is_ascii() && has_entities(text),
    }
}

/// Whether a text has characters that a page of HTML names, or blanks that only pages have.
fn has_entities(text: &[u8]) -> bool {
    memchr_iter(b'&', text).any(|at| ENTITIES.iter().any(|(name, _)| text[at..].starts_with(name.as_bytes())))
        || !text.is_ascii() && [finder!(NO_BREAK), finder!(NO_WIDTH)].iter().any(|blank| blank.find(text).is_some())
}

/// A blank at which no line breaks, and one without width.
const NO_BREAK: &str = "\u{a0}";
const NO_WIDTH: &str = "\u{200b}";

/// Characters as HTML names them, the one that names begin with last.
const ENTITIES: [(&str, &str); 7] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&nbsp;", " "), ("&amp;", "&")];

/// A line with the characters that HTML names.
pub(crate) fn without_entities(line: &[u8]) -> Cow<'_, [u8]> {
    if !has_entities(line) {
        return Cow::Borrowed(line);
    }
    let text = String::from_utf8_lossy(line).into_owned();
    let named = ENTITIES.iter().chain(&[(NO_BREAK, " "), (NO_WIDTH, "")]);
    Cow::Owned(named.fold(text, |text, (name, character)| text.replace(name, character)).into_bytes())
}

/// The lines that a line wraps: JSON's, those of a literal, or those that a page has joined.
pub(crate) fn unwrapped(line: &[u8]) -> Option<Vec<String>> {
    if may_be_json(line)
        && let Some(wrapped) = from_json(line)
    {
        return Some(wrapped.split(['\n', '\r']).filter(|line| !line.is_empty()).map(str::to_string).collect());
    }
    unquoted(line).or_else(|| unjoined(line))
}

/// A shorter line is not joined of several.
const SHORTEST_JOINED: usize = 160;

/// What begins a line wherever programs print it: the C++ runtime, results of NCCL's in PyTorch's messages.
const BEGINNINGS: [&str; 8] = [
    "terminate called after throwing an instance of ",
    "what(): ",
    "ncclUnhandledCudaError: ",
    "ncclSystemError: ",
    "ncclInternalError: ",
    "ncclRemoteError: ",
    "ncclInvalidUsage: ",
    "Last error:",
];

/// What vLLM's logger begins a line with, if its date follows.
const LOGGED: &str = "ERROR ";

/// All of these, [`LOGGED`] last: every long line is searched once.
static STARTS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(BEGINNINGS.iter().chain([&LOGGED])).ok());

/// Whether a line may wrap others: so do all lines of its wording, or none.
pub(crate) fn may_be_wrapped(line: &[u8]) -> bool {
    may_be_json(line) || may_be_quoted(line) || STARTS.as_ref().is_some_and(|starts| starts.is_match(line))
}

/// The same of this line alone.
pub(crate) fn may_wrap(line: &[u8]) -> bool {
    may_be_json(line) || line.len() >= SHORTEST_JOINED && may_be_wrapped(line)
}

/// The lines of a line in which several of these stand, as where a page has joined a log.
fn unjoined(line: &[u8]) -> Option<Vec<String>> {
    if line.len() < SHORTEST_JOINED {
        return None;
    }
    let is_date = |at: usize| line.get(at + 8).is_some_and(|dash| *dash == b'-') && line[at + 6].is_ascii_digit();
    let begins = |found: &Match| {
        let at = found.start();
        at > 0 && line[at - 1] == b' ' && (found.pattern().as_usize() < BEGINNINGS.len() || is_date(at))
    };
    let mut cuts: Vec<usize> =
        STARTS.as_ref()?.find_overlapping_iter(line).filter(begins).map(|found| found.start()).collect();
    cuts.sort_unstable();
    if cuts.len() < 2 {
        return None;
    }
    let ends = cuts.iter().copied().chain([line.len()]);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    Some(starts.zip(ends).map(|(start, end)| String::from_utf8_lossy(&line[start..end]).trim().to_string()).collect())
}

/// Whether a line may be a JSON string or object that wraps log text. Cheap: looks at the first byte that is no space.
fn may_be_json(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    matches!(line.first(), Some(b'"' | b'{')) || of_ansible(line).is_some()
}

/// The record behind what Ansible's default output puts in front: `changed: [node1] => {"stdout": "…"}`, `fatal: [node1]: FAILED! => {…}`.
fn of_ansible(line: &[u8]) -> Option<&[u8]> {
    const HEADS: [&[u8]; 3] = [b"ok: [", b"changed: [", b"fatal: ["];
    let rest = HEADS.iter().find_map(|head| line.strip_prefix(*head))?;
    let at = memmem::find(rest, b" => {")?;
    Some(&rest[at + b" => ".len()..])
}

/// Unwraps log text from JSON: a string of a notebook (`"host:1:2 [0] NCCL INFO …\n",`), a string member
/// (`"text": "…\n…"`), a record of docker's json-file driver (`{"log":"…\n","stream":"stdout"}`).
/// The text may hold several lines. `None` when the line is no such JSON.
fn from_json(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    let line = line.strip_suffix(b",").unwrap_or(line);
    let line = of_ansible(line).unwrap_or(line);
    if line.first() == Some(&b'{') {
        return said_by(&serde_json::from_slice(line).ok()?);
    }
    let has_escapes = memchr(b'\\', line).is_some();
    // A list of lines has those of a table without any.
    let is_of_table = line.first() == Some(&b'"') && matches!(line.get(1), Some(b' ' | b'#'));
    if !has_escapes && !is_of_table {
        return None;
    }
    if let Ok(text) = serde_json::from_slice::<String>(line) {
        return (has_escapes || may_belong(text.as_bytes())).then_some(text);
    }
    let (_, value) = split_member(line)?;
    serde_json::from_slice::<String>(value).ok()
}

/// `"text": "…"` → the raw value.
fn split_member(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memmem::find(line, b"\": \"")
        .map(|at| (at + 1, at + 3))
        .or_else(|| memmem::find(line, b"\":\"").map(|at| (at + 1, at + 2)))?;
    Some((&line[..at.0], &line[at.1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colour_codes_are_removed() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"\x1b[35mhost:1:2\x1b[0m", b"host:1:2"),
            (b"plain", b"plain"),
            (b"a\x1b]0;title\x07b", b"ab"),
            (b"see \x1b]8;;https://host/log\x1b\\the log\x1b]8;;\x1b\\ of it", b"see the log of it"),
            (b"a\x1b]0;cut\x1b[31mb", b"ab"),
            (b"cut \x1b[3", b"cut "),
        ];
        for (raw, clean) in cases {
            assert_eq!(without_escapes(raw).as_ref(), clean);
        }
    }

    #[test]
    fn an_indent_is_that_of_all_lines() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"    a\n\n      b\n    c", b"    "),
            (b"\ta\r\n\r\n\t\tb\r\n", b"\t"),
            (b"    a\nb", b""),
            (b"a\n  b", b""),
            (b"\n \n", b""),
        ];
        for (text, blanks) in cases {
            assert_eq!(indent(text), blanks, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn log_text_is_unwrapped_from_json() {
        let cases = [
            (
                "      \"\\u001b[35m[1,0]<stdout>:a:1:2 [0] NCCL INFO x\\u001b[0m\\n\",",
                Some("\u{1b}[35m[1,0]<stdout>:a:1:2 [0] NCCL INFO x\u{1b}[0m\n"),
            ),
            ("{\"log\":\"a:1:2 [0] NCCL INFO x\\n\",\"stream\":\"stdout\"}", Some("a:1:2 [0] NCCL INFO x\n")),
            ("  \"text\": \"one\\ntwo\"", Some("one\ntwo")),
            ("  \"size\": 512,", None),
            ("{ not json", None),
        ];
        for (line, text) in cases {
            assert_eq!(from_json(line.as_bytes()).as_deref(), text, "{line}");
        }
    }

    #[test]
    fn joined_lines_are_parted() {
        let text = "terminate called after throwing an instance of 'std::runtime_error' what(): NCCL error: remote process exited or there was a \
                    network error, NCCL version 2.14.3 ncclRemoteError: A call failed possibly due to a network error. Last error: NET/IB : x";
        let lines = unjoined(text.as_bytes()).expect("several lines");
        let starts = ["terminate called", "what(): NCCL error", "ncclRemoteError: A", "Last error: NET/IB"];
        assert_eq!(lines.len(), starts.len());
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
        assert_eq!(unjoined(&text.as_bytes()[..150]), None);
        assert_eq!(unjoined("what(): x".repeat(40).as_bytes()), None);
    }

    #[test]
    fn characters_that_html_names_are_read() {
        for (raw, clean) in [
            ("File &quot;a.py&quot;, in &lt;module&gt;", "File \"a.py\", in <module>"),
            ("a &amp;lt; b", "a &lt; b"),
            ("a & b", "a & b"),
            ("\u{200b}a\u{a0}\u{a0}b", "a  b"),
        ] {
            assert_eq!(without_entities(raw.as_bytes()).as_ref(), clean.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_cleaned_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(!without_escapes(&bytes).contains(&0x1b));
            let _ = unwrapped(&bytes);
        }
    }
}
