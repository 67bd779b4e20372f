//! A table of a description, read key by key: wrong types and unknown keys are refused with their line.

use super::hardware::Pcie;
use super::rate::{self, RateProblem, Unit};
use busbw_model::GBps;
use std::cell::RefCell;
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// No cluster has more of anything; numbers beyond are typing errors.
const MOST: usize = 1_000_000;

/// What is wrong with a description: the first thing found. It does not name the file, which whoever read it knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}; {remedy}")]
pub struct DescriptionError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong: `nic.rate = 400 has no unit`.
    pub message: String,
    /// What to write instead: `write "400 Gbit/s" or "50 GB/s"`.
    pub remedy: String,
}

impl DescriptionError {
    /// An error at a byte offset of the text.
    pub(super) fn at(text: &str, at: usize, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        DescriptionError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// A table of a description.
#[derive(Debug)]
pub(super) struct Section<'a> {
    text: &'a str,
    /// `nic`, `fabric.uplinks`; empty for the top of the file.
    path: String,
    table: &'a DeTable<'a>,
    at: usize,
    /// The keys that were asked for.
    read: RefCell<BTreeSet<String>>,
}

/// A value and where it stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stated<T> {
    pub(super) value: T,
    /// Byte offset into the text.
    pub(super) at: usize,
}

impl<T> Stated<T> {
    /// Another value at the same place.
    pub(super) fn with<U>(&self, value: U) -> Stated<U> {
        Stated { value, at: self.at }
    }
}

impl<'a> Section<'a> {
    pub(super) fn root(text: &'a str, table: &'a DeTable<'a>) -> Self {
        Section { text, path: String::new(), table, at: 0, read: RefCell::default() }
    }

    /// The full name of a key: `nic.rate`.
    pub(super) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn error(&self, at: usize, message: impl Into<String>, remedy: impl Into<String>) -> DescriptionError {
        DescriptionError::at(self.text, at, message, remedy)
    }

    /// An error that a key is missing from this table.
    pub(super) fn missing(&self, key: &str, remedy: impl Into<String>) -> DescriptionError {
        self.error(self.at, format!("{} is missing", self.name(key)), remedy)
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Whether the key holds a table or a list of tables.
    pub(super) fn has_table(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_table() || value.get_ref().is_array())
    }

    /// The keys of the table and where they stand.
    pub(super) fn keys(&self) -> impl Iterator<Item = Stated<&'a str>> {
        self.table.iter().map(|(key, _)| Stated { value: key.get_ref().as_ref(), at: key.span().start })
    }

    pub(super) fn text(&self, key: &str, example: &str) -> Result<Option<Stated<&'a str>>, DescriptionError> {
        self.read(key, "a text", example, |value| value.as_str())
    }

    pub(super) fn required_text(&self, key: &str, example: &str) -> Result<Stated<&'a str>, DescriptionError> {
        self.text(key, example)?.ok_or_else(|| self.missing(key, format!("write {key} = {example}")))
    }

    /// A whole number, 0 or more.
    pub(super) fn count(&self, key: &str, example: &str) -> Result<Option<Stated<usize>>, DescriptionError> {
        self.read(key, "a whole number, not negative", example, |value| whole(value))
    }

    /// A whole number, 1 or more.
    pub(super) fn at_least_one(&self, key: &str, example: &str) -> Result<Option<Stated<usize>>, DescriptionError> {
        let count = self.count(key, example)?;
        if let Some(Stated { value: 0, at }) = count {
            let name = self.name(key);
            return Err(self.error(at, format!("{name} = 0 is less than 1"), format!("write {key} = {example}")));
        }
        Ok(count)
    }

    /// A whole number, 1 or more, that must be there.
    pub(super) fn required_count(&self, key: &str, example: &str) -> Result<Stated<usize>, DescriptionError> {
        self.at_least_one(key, example)?.ok_or_else(|| self.missing(key, format!("write {key} = {example}")))
    }

    pub(super) fn number(&self, key: &str, example: &str) -> Result<Option<Stated<f64>>, DescriptionError> {
        self.read(key, "a number", example, number)
    }

    pub(super) fn rate(&self, key: &str, unit: Unit) -> Result<Option<Stated<GBps>>, DescriptionError> {
        let Some((_, value)) = self.entry(key) else { return Ok(None) };
        let at = value.span().start;
        let written = format!("{} = {}", self.name(key), self.written(value));
        let bare = number(value.get_ref());
        let text = value.get_ref().as_str().unwrap_or_default();
        let read = bare.map_or_else(|| rate::parse(text), |number| Err(RateProblem::of_bare(number)));
        let (problem, remedy) = match read {
            Ok(rate) => return Ok(Some(Stated { value: rate, at })),
            Err(RateProblem::NoUnit(number)) => ("has no unit", unit.remedy(number)),
            Err(RateProblem::NotPositive) => {
                ("is not more than zero", format!("write what one direction carries, for example {}", unit.example()))
            }
            Err(RateProblem::NoNumber) => {
                ("is no bandwidth", format!("write a number and a unit, for example {}", unit.example()))
            }
        };
        Err(self.error(at, format!("{written} {problem}"), remedy))
    }

    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<Stated<T>>, DescriptionError> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let Some(text) = self.text(key, &format!("\"{}\"", names.first().unwrap_or(&"")))? else { return Ok(None) };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text.value) {
            return Ok(Some(text.with(*choice)));
        }
        let remedy = match nearest(text.value, &names) {
            Some(near) => format!("write {key} = \"{near}\""),
            None => format!("write one of {}", names.join(", ")),
        };
        Err(self.error(text.at, format!("{} = \"{}\" is not known", self.name(key), text.value), remedy))
    }

    /// A PCIe connection: `5.0 x16`.
    pub(super) fn pcie(&self, key: &str) -> Result<Option<Stated<Pcie>>, DescriptionError> {
        let Some(text) = self.text(key, "\"5.0 x16\"")? else { return Ok(None) };
        let Some(pcie) = Pcie::read(text.value) else {
            let message = format!("{} = \"{}\" is no PCIe connection", self.name(key), text.value);
            return Err(self.error(text.at, message, "write generation and lanes, for example \"5.0 x16\""));
        };
        Ok(Some(text.with(pcie)))
    }

    /// A text or a whole number, as text.
    pub(super) fn plain(&self, key: &str, example: &str) -> Result<Option<Stated<String>>, DescriptionError> {
        let plain = |value: &'a DeValue<'a>| {
            let integer = || value.as_integer().map(|integer| integer.as_str().to_string());
            value.as_str().map(str::to_string).or_else(integer)
        };
        self.read(key, "a text or a whole number", example, plain)
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<Stated<bool>>, DescriptionError> {
        self.read(key, "true or false", "true", |value| value.as_bool())
    }

    pub(super) fn section(&self, key: &str) -> Result<Option<Section<'a>>, DescriptionError> {
        let Some((written, value)) = self.entry(key) else { return Ok(None) };
        match value.get_ref().as_table() {
            Some(table) => Ok(Some(self.below(key, table, written.span().start))),
            None => Err(self.wrong_type(key, value, "a table", &format!("[{}]", self.name(key)))),
        }
    }

    /// A list of tables below this one: `[[fabric.link]]`.
    pub(super) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>, DescriptionError> {
        let Some((_, value)) = self.entry(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong_type(key, value, "a list of tables", &format!("[[{}]]", self.name(key)));
        let list: &DeArray<'a> = value.get_ref().as_array().ok_or_else(wrong)?;
        let section = |item: &'a Spanned<DeValue<'a>>| {
            let table = item.get_ref().as_table().ok_or_else(wrong)?;
            Ok(self.below(key, table, item.span().start))
        };
        list.iter().map(section).collect()
    }

    /// Refuses the first key that nothing has read.
    pub(super) fn finish(&self) -> Result<(), DescriptionError> {
        self.refuse(|_, _| true)
    }

    /// Refuses the first key that is one that was read, misspelt: others tell of things that busbw has no use for.
    pub(super) fn refuse_misspelt(&self) -> Result<(), DescriptionError> {
        /// Shorter words are near each other by chance: `note` and `nodes`.
        const SHORTEST: usize = 6;
        self.refuse(|key, known| key.len() >= SHORTEST && nearest(key, known).is_some())
    }

    fn refuse(&self, is_wrong: impl Fn(&str, &[&str]) -> bool) -> Result<(), DescriptionError> {
        let read = self.read.borrow();
        let known: Vec<&str> = read.iter().map(String::as_str).collect();
        let is_unknown = |key: &Stated<&str>| !read.contains(key.value) && is_wrong(key.value, &known);
        let Some(unknown) = self.keys().filter(is_unknown).min_by_key(|key| key.at) else {
            return Ok(());
        };
        let remedy = match nearest(unknown.value, &known) {
            Some(near) => format!("write {near}"),
            None => format!("delete it, or write one of {}", known.join(", ")),
        };
        let place = if self.path.is_empty() { "here".to_string() } else { format!("in [{}]", self.path) };
        Err(self.error(unknown.at, format!("{} is no key {place}", unknown.value), remedy))
    }

    fn below(&self, key: &str, table: &'a DeTable<'a>, at: usize) -> Section<'a> {
        Section { text: self.text, path: self.name(key), table, at, read: RefCell::default() }
    }

    fn entry(&self, key: &str) -> Option<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
        self.read.borrow_mut().insert(key.to_string());
        self.table.get_key_value(key)
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        example: &str,
        convert: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<Stated<T>>, DescriptionError> {
        let Some((_, value)) = self.entry(key) else { return Ok(None) };
        match convert(value.get_ref()) {
            Some(converted) => Ok(Some(Stated { value: converted, at: value.span().start })),
            None => Err(self.wrong_type(key, value, expected, &format!("{key} = {example}"))),
        }
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue>, expected: &str, example: &str) -> DescriptionError {
        let message = format!("{} = {} is not {expected}", self.name(key), self.written(value));
        self.error(value.span().start, message, format!("write {example}"))
    }

    /// A value as it stands in the file, cut to one short line.
    fn written(&self, value: &Spanned<DeValue>) -> &'a str {
        let line = self.text.get(value.span()).and_then(|text| text.lines().next()).unwrap_or_default();
        let end = line.char_indices().nth(40).map_or(line.len(), |(at, _)| at);
        &line[..end]
    }
}

fn whole(value: &DeValue) -> Option<usize> {
    let integer = value.as_integer()?;
    usize::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|count| *count <= MOST)
}

fn number(value: &DeValue) -> Option<f64> {
    let float = || value.as_float().and_then(|float| float.as_str().parse::<f64>().ok());
    let integer = || value.as_integer().and_then(|integer| integer.as_str().parse::<f64>().ok());
    integer().or_else(float).filter(|number| number.is_finite())
}

/// The known key that the unknown one was probably meant to be: at most two letters differ.
pub(super) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let close = |key: &&'a str| (distance(unknown, key), *key);
    known.iter().map(close).filter(|(letters, key)| *letters <= 2 && *letters < key.len()).min().map(|(_, key)| key)
}

/// How many letters must be changed, added or deleted to make one word of the other. Beyond the first 64 no key goes on.
fn distance(a: &str, b: &str) -> usize {
    let head = |word: &str| word.chars().take(64).collect::<String>();
    strsim::levenshtein(&head(a), &head(b))
}
