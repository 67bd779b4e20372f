//! From a raw line to text: colour codes, carriage returns, JSON strings.

use memchr::{memchr, memchr2, memmem};
use std::borrow::Cow;

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

/// The blanks that all lines of a text begin with: those who paste a log into a mail or a page indent it.
pub(crate) fn indent(text: &[u8]) -> &[u8] {
    let mut lines = text.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let Some(first) = lines.next() else { return &[] };
    let blanks = first.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let common = |blanks: usize, line: &[u8]| first[..blanks].iter().zip(line).take_while(|(a, b)| a == b).count();
    let whole = lines.try_fold(blanks, |blanks, line| Some(common(blanks, line)).filter(|left| *left > 0));
    &first[..whole.unwrap_or(0)]
}

/// Whether a line may be a JSON string or object that wraps log text. Cheap: looks at the first byte that is no space.
pub(crate) fn may_be_json(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().first(), Some(b'"' | b'{'))
}

/// Unwraps log text from JSON: a string of a notebook (`"host:1:2 [0] NCCL INFO …\n",`), a string member
/// (`"text": "…\n…"`), a record of docker's json-file driver (`{"log":"…\n","stream":"stdout"}`).
/// The text may hold several lines. `None` when the line is no such JSON.
pub(crate) fn from_json(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    let line = line.strip_suffix(b",").unwrap_or(line);
    if line.first() == Some(&b'{') {
        let record: serde_json::Value = serde_json::from_slice(line).ok()?;
        return ["log", "message", "msg", "text"].iter().find_map(|key| Some(record.get(key)?.as_str()?.to_string()));
    }
    memchr(b'\\', line)?;
    if let Ok(text) = serde_json::from_slice::<String>(line) {
        return Some(text);
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

    proptest! {
        #[test]
        fn any_bytes_are_cleaned_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(!without_escapes(&bytes).contains(&0x1b));
            let _ = from_json(&bytes);
        }
    }
}
