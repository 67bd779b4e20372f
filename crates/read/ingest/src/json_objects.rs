//! Finds JSON objects among lines, on one line or laid out over many, and knows those of NCCL's and PyTorch's tools.

use crate::TextLine;
use busbw_model::{Place, SourceLine};
use memchr::memmem;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// A longer object is given up.
const LONGEST: usize = 256 << 20;

/// Keys of which each object that anybody reads has one. A log of other JSON need not be parsed.
const KEYS: [&[u8]; 11] = [
    b"\"coll_perf\"",
    b"\"p2p_perf\"",
    b"\"communicators\"",
    b"\"pg_config\"",
    b"\"PEER_",
    b"\"busbw.facts/",
    b"\"exitCode\"",
    b"\"ExitCode\"",
    b"\"statusReason\"",
    b"\"phase\"",
    b"\"conditions\"",
];

/// An object, and where it stands.
#[derive(Debug)]
pub(crate) struct JsonObject {
    pub value: Value,
    /// As it stands in the input, line by line.
    pub text: String,
    pub place: Place,
}

impl JsonObject {
    pub fn source(&self) -> SourceLine {
        SourceLine::new(self.place, self.text.lines().next().unwrap_or_default())
    }
}

/// Collects objects from lines. Lines are never claimed: what looks like JSON may be a table of another kind.
#[derive(Debug, Default)]
pub(crate) struct JsonReader {
    open: FxHashMap<Box<str>, Open>,
}

/// An object whose end has not come.
#[derive(Debug, Default)]
struct Open {
    text: String,
    place: Place,
    depth: usize,
}

impl JsonReader {
    /// Whether a line may belong to an object, by its first character.
    pub fn may_belong(text: &[u8]) -> bool {
        matches!(text.trim_ascii_start().first(), Some(b'{' | b'}' | b'[' | b']' | b'"'))
    }

    /// Whether a line is nothing but brackets and commas, of which no reader makes anything.
    pub fn is_punctuation(text: &str) -> bool {
        text.bytes().all(|byte| matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b' ' | b'\t'))
    }

    /// Takes a line; gives the object that ends with it.
    pub fn feed(&mut self, line: &TextLine) -> Option<JsonObject> {
        if !self.open.contains_key(line.stream) {
            if !begins_object(line.text) {
                return None;
            }
            self.open.insert(line.stream.into(), Open { place: line.place, ..Open::default() });
        }
        let open = self.open.get_mut(line.stream)?;
        open.text.push_str(line.text);
        open.text.push('\n');
        open.depth = depth_after(line.text.as_bytes(), open.depth);
        if open.depth > 0 && open.text.len() < LONGEST {
            return None;
        }
        let Open { text, place, depth } = self.open.remove(line.stream)?;
        let known = depth == 0 && KEYS.iter().any(|key| memmem::find(text.as_bytes(), key).is_some());
        let value = known.then(|| serde_json::from_str(&text).ok()).flatten()?;
        Some(JsonObject { value, text, place })
    }
}

/// Whether a line may begin an object: behind the brace stands a name, or nothing yet. Of a Python dictionary, whose end may never
/// come, the rest of the log would be taken for a part.
fn begins_object(text: &str) -> bool {
    let behind = text.trim_start().strip_prefix('{').map(str::trim_start);
    behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(['"', '}']))
}

/// How many brackets are open after a line. Brackets in strings do not count, and no string goes on over a line's end.
fn depth_after(line: &[u8], mut depth: usize) -> usize {
    let mut in_string = false;
    let mut escaped = false;
    for byte in line {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    depth
}

/// How far a member may be from the one before, in bytes. Where one is not found, as it is written otherwise, the rest of the
/// text is not searched for it.
const FAR: usize = 256 << 10;

/// Walks through an object's text to find the line that a member stands on: members are read in the order printed.
pub(crate) struct Lines<'a> {
    rest: &'a str,
    place: Place,
}

impl<'a> Lines<'a> {
    pub fn of(object: &'a JsonObject) -> Self {
        Lines { rest: &object.text, place: object.place }
    }

    /// The line of the next occurrence; the current line when there is none.
    pub fn next(&mut self, words: &str) -> SourceLine {
        let near = &self.rest.as_bytes()[..self.rest.len().min(FAR)];
        if let Some(at) = memmem::find(near, words.as_bytes()) {
            let passed = &self.rest[..at];
            self.place.line += memchr::memchr_iter(b'\n', passed.as_bytes()).count() as u64;
            let line_start = passed.rfind('\n').map_or(0, |end| end + 1);
            // The whole object may stand on one line.
            let line_end = self.rest.floor_char_boundary(line_start + 2 * SourceLine::MAX_TEXT);
            let line = self.rest[line_start..line_end].lines().next().unwrap_or_default();
            self.rest = &self.rest[at + words.len()..];
            return SourceLine::new(self.place, line.trim());
        }
        SourceLine::new(self.place, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(text: &str) -> Vec<JsonObject> {
        let mut reader = JsonReader::default();
        let line = |(i, text)| TextLine { place: Place { input: 0, line: i as u64 + 1 }, stream: "", text };
        text.lines().enumerate().filter_map(|numbered| reader.feed(&line(numbered))).collect()
    }

    #[test]
    fn objects_are_found_on_one_line_and_over_many() {
        let text = "{'loss': [0.3,\n$ ncclras -f json\n{\n  \"communicators\": [\n    {\"hash\": \"0x1}\"}\n  ]\n}\n{\"communicators\": []}\n{\"other\": 1}\n}";
        let found = objects(text);
        let short: Vec<_> =
            found.iter().map(|o| (o.place.line, o.value["communicators"].as_array().map(Vec::len))).collect();
        assert_eq!(short, [(3, Some(1)), (8, Some(0))]);
        let mut lines = Lines::of(&found[0]);
        assert_eq!((lines.next("\"hash\"").place.line, &*lines.next("\"hash\"").text), (5, "\"hash\""));
    }
}
