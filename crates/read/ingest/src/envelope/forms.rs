//! How records are written: JSON, `key=value`, tables of separated fields.

use super::behind_labels;
use crate::record::{SAID, is_one_of};
use serde_json::{Map, Value};

/// How the records of an input are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// An object in each line, in an array or alone.
    Json,
    /// `time="…" level=info msg="…"`
    Pairs,
    /// Fields between separators, with the names in the table's head: numbers where it has none.
    Table { separator: char, names: Vec<String> },
}

const SEPARATORS: [char; 3] = [',', '\t', ';'];
/// More pairs or fields no record has.
const MOST_FIELDS: usize = 64;

impl Form {
    /// The form that a line shows.
    pub fn of(line: &str) -> Option<Self> {
        if Form::Json.read(line).is_some() {
            return Some(Form::Json);
        }
        if Form::Pairs.read(line).is_some() {
            return Some(Form::Pairs);
        }
        SEPARATORS.iter().find_map(|separator| Self::table(line, *separator))
    }

    /// A table, by its head, or by a row of which a field in quotes begins as lines of programs do.
    fn table(line: &str, separator: char) -> Option<Self> {
        let fields = fields(line, separator, MOST_FIELDS)?;
        let is_name = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || "@_".contains(c))
                && name.len() < 40
                && !name.contains(": ")
        };
        let is_head =
            fields.len() > 1 && fields.iter().all(is_name) && fields.iter().any(|name| is_one_of(name, &SAID));
        let is_row =
            || fields.len() > 1 && line.contains('"') && line.starts_with(|c: char| c == '"' || c.is_ascii_digit());
        if is_head {
            return Some(Form::Table { separator, names: fields });
        }
        let names = || (0..fields.len()).map(|number| number.to_string()).collect();
        is_row().then(|| Form::Table { separator, names: names() })
    }

    /// Whether a line holds no record, but what stands around them.
    pub fn is_frame(&self, line: &str) -> bool {
        match self {
            Form::Json => line.bytes().all(|byte| matches!(byte, b'[' | b']' | b',' | b' ' | b'\t' | b'\r')),
            Form::Pairs => false,
            Form::Table { separator, names } => {
                fields(line, *separator, names.len()).is_some_and(|fields| fields == *names)
            }
        }
    }

    /// The record of a line, and the label in front of it.
    pub fn read<'l>(&self, line: &'l str) -> Option<(&'l str, Value)> {
        match self {
            Form::Json => json(line),
            Form::Pairs => {
                let (label, text) = behind_labels(line);
                pairs(text).or_else(|| pairs(line.trim())).map(|record| (label, record))
            }
            Form::Table { separator, names } => {
                let fields = fields(line.trim_end_matches('\r'), *separator, names.len())?;
                let members = names.iter().cloned().zip(fields.into_iter().map(Value::String));
                Some(("", Value::Object(members.collect::<Map<_, _>>())))
            }
        }
    }
}

/// An object that is all of a line but for labels, and the brackets and commas of the array that it stands in.
fn json(line: &str) -> Option<(&str, Value)> {
    let own = line.trim();
    let (label, text) = if own.starts_with(['{', '[']) { ("", own) } else { behind_labels(line) };
    let start = text.trim_start_matches(['[', ',', ' ']);
    if !start.starts_with('{') {
        return None;
    }
    let end = start.trim_end_matches([']', ',', ' ']);
    let record: Value = serde_json::from_str(end).ok()?;
    Some((label, record))
}

/// Pairs of names and values, of which a line consists.
fn pairs(line: &str) -> Option<Value> {
    let mut members = Map::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=')?;
        let is_key =
            |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.@/-".contains(&b));
        if !is_key(key) || members.len() == MOST_FIELDS {
            return None;
        }
        let length = match behind.strip_prefix('"') {
            Some(text) => 2 + quoted_length(text)?,
            None => behind.find([' ', '\t']).unwrap_or(behind.len()),
        };
        let (value, behind) = behind.split_at(length);
        let value = serde_json::from_str::<String>(value).unwrap_or_else(|_| value.trim_matches('"').to_string());
        members.insert(key.to_string(), Value::String(value));
        rest = behind.trim_start();
    }
    (members.len() > 1).then_some(Value::Object(members))
}

/// How long a text is up to the quote that ends it.
fn quoted_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// The fields of a row; the last of `most` holds what is left, as where a text with separators in it has no quotes.
fn fields(line: &str, separator: char, most: usize) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let field = match rest.strip_prefix('"') {
            Some(text) => {
                let length = table_quote(text)?;
                let (field, behind) = text.split_at(length);
                rest = &behind[1..];
                field.replace("\"\"", "\"")
            }
            None => {
                let is_last = found.len() + 1 == most;
                let end = rest.find(separator).filter(|_| !is_last).unwrap_or(rest.len());
                let (field, behind) = rest.split_at(end);
                rest = behind;
                field.to_string()
            }
        };
        found.push(field);
        if rest.is_empty() {
            let is_row = most == MOST_FIELDS || found.len() == most;
            return is_row.then_some(found);
        }
        rest = rest.strip_prefix(separator)?;
        if found.len() >= most {
            return None;
        }
    }
}

/// How long a field is up to the quote that ends it: two of them stand for one in it.
fn table_quote(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find('"')?;
        if !text[at + 1..].starts_with('"') {
            return Some(at);
        }
        from = at + 2;
    }
}
