//! Texts that tell their cause: the files of `signatures/` say which text means what.
//!
//! A signature is looked for in NCCL's WARN lines and in what programs, launchers and people say. The first WARN of the
//! rank that failed first is the cause; what others say after it follows from it.

use crate::case::Case;
use crate::lines::{Line, Voice};
use aho_corasick::AhoCorasick;
use busbw_model::{Code, Evidence, Finding, Severity};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The files, one for each part of the field.
const FILES: [&str; 9] = [
    include_str!("signatures/figures.toml"),
    include_str!("signatures/gpu.toml"),
    include_str!("signatures/hang.toml"),
    include_str!("signatures/launch.toml"),
    include_str!("signatures/limits.toml"),
    include_str!("signatures/network.toml"),
    include_str!("signatures/pcie.toml"),
    include_str!("signatures/rdma.toml"),
    include_str!("signatures/versions.toml"),
];

static BOOK: LazyLock<Book> = LazyLock::new(Book::new);

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    signature: Vec<Signature>,
}

/// Texts and what they mean. Upper and lower case are alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    code: Code,
    /// Any of these texts; a text with ` & ` asks for all of its parts in one line.
    text: Vec<String>,
    /// None of these in the line.
    #[serde(default)]
    unless: Vec<String>,
    /// Any of these in some line of the input.
    #[serde(default)]
    with: Vec<String>,
    /// None of these in any line of the input.
    #[serde(default)]
    not_with: Vec<String>,
    /// Whether the text may stand in a question; else a question says nothing.
    #[serde(default)]
    asked: bool,
    /// Who says it: anybody where absent.
    #[serde(default)]
    from: Option<From>,
    confidence: f64,
    #[serde(default = "error")]
    severity: Severity,
    title: String,
    explanation: String,
    remedy: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum From {
    /// NCCL.
    Nccl,
    /// A program, a launcher, the kernel, a person.
    Others,
}

fn error() -> Severity {
    Severity::Error
}

/// Every signature, and an automaton that finds all their texts in one pass over a line.
struct Book {
    signatures: Vec<(Signature, Wanted)>,
    automaton: Option<AhoCorasick>,
}

/// The texts of a signature by the numbers of their parts.
struct Wanted {
    text: Vec<Vec<usize>>,
    unless: Vec<Vec<usize>>,
    with: Vec<Vec<usize>>,
    not_with: Vec<Vec<usize>>,
}

/// The numbers of the parts that a line holds.
type Parts = Vec<usize>;

impl Book {
    fn new() -> Self {
        let read = |text: &&str| toml::from_str::<File>(text).map(|file| file.signature).unwrap_or_default();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut number = |part: &str| {
            let next = numbers.len();
            *numbers.entry(part.to_string()).or_insert(next)
        };
        let mut compile = |texts: &[String]| -> Vec<Vec<usize>> {
            texts.iter().map(|text| text.split(" & ").map(&mut number).collect()).collect()
        };
        let signatures: Vec<(Signature, Wanted)> = FILES
            .iter()
            .flat_map(read)
            .map(|signature| {
                let (text, unless) = (compile(&signature.text), compile(&signature.unless));
                let (with, not_with) = (compile(&signature.with), compile(&signature.not_with));
                (signature, Wanted { text, unless, with, not_with })
            })
            .collect();
        let mut words: Vec<&str> = vec![""; numbers.len()];
        numbers.iter().for_each(|(part, index)| words[*index] = part);
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok();
        Book { signatures, automaton }
    }

    fn parts_of(&self, text: &str) -> Parts {
        let found = self.automaton.iter().flat_map(|automaton| automaton.find_overlapping_iter(text));
        let whole = found.filter(|found| stands_alone(text.as_bytes(), found.start(), found.end()));
        whole.map(|found| found.pattern().as_usize()).collect()
    }
}

/// Whether a line holds all parts of any text.
fn any(held: &Parts, texts: &[Vec<usize>]) -> bool {
    texts.iter().any(|parts| parts.iter().all(|part| held.contains(part)))
}

impl Signature {
    fn matches(&self, wanted: &Wanted, held: &Parts, voice: Voice) -> bool {
        let said_by = match self.from {
            None => true,
            Some(From::Nccl) => voice != Voice::Other,
            Some(From::Others) => voice == Voice::Other,
        };
        said_by && any(held, &wanted.text) && !any(held, &wanted.unless)
    }
}

/// Whether a text that begins with a letter or digit begins a word, and one that ends in a digit ends a number.
fn stands_alone(text: &[u8], start: usize, end: usize) -> bool {
    let before = start.checked_sub(1).and_then(|at| text.get(at));
    let begins = !text[start].is_ascii_alphanumeric() || before.is_none_or(|b| !b.is_ascii_alphanumeric());
    let ends = !text[end - 1].is_ascii_digit() || text.get(end).is_none_or(|b| !b.is_ascii_digit());
    begins && ends
}

/// The parts that a line holds.
struct Held {
    all: Parts,
    /// Those outside of questions, where it asks any: "Is ACS enabled?" says nothing of ACS.
    stated: Option<Parts>,
}

impl Held {
    fn of(book: &Book, line: &Line) -> Self {
        let all = book.parts_of(&line.text);
        let asks = line.voice == Voice::Other && line.text.contains('?') && !all.is_empty();
        let stated = asks.then(|| {
            let sentences = line.text.split_inclusive(['.', '?', '!']);
            book.parts_of(&sentences.filter(|sentence| !sentence.ends_with('?')).collect::<String>())
        });
        Held { all, stated }
    }

    fn stated(&self) -> &Parts {
        self.stated.as_ref().unwrap_or(&self.all)
    }
}

/// A finding per code whose signatures match, with the first lines that show it.
pub fn rule(case: &Case) -> Vec<Finding> {
    let book = &*BOOK;
    let looked_at = case.lines.iter().map(|line| (line, Held::of(book, line)));
    let telling: Vec<(&Line, Held)> = looked_at.filter(|(_, held)| !held.all.is_empty()).collect();
    let anywhere = |texts: &[Vec<usize>]| telling.iter().any(|(_, held)| any(&held.all, texts));
    let mut findings: Vec<Finding> = Vec::new();
    for (signature, wanted) in &book.signatures {
        let fits = |(line, held): &&(&Line, Held)| {
            let held = if signature.asked { &held.all } else { held.stated() };
            signature.matches(wanted, held, line.voice)
        };
        let matching: Vec<&Line> = telling.iter().filter(fits).map(|(line, _)| *line).collect();
        let goes_with_the_rest = (wanted.with.is_empty() || anywhere(&wanted.with)) && !anywhere(&wanted.not_with);
        if let Some(finding) = goes_with_the_rest.then(|| signature.finding(&matching)).flatten() {
            add(&mut findings, finding);
        }
    }
    findings
}

/// Adds a finding; of several with one code the surest stays, with the lines of the others as further evidence.
fn add(findings: &mut Vec<Finding>, new: Finding) {
    let Some(old) = findings.iter_mut().find(|f| f.code == new.code) else { return findings.push(new) };
    let weight = |f: &Finding| (f.severity, f.confidence);
    let (mut first, second) = if weight(&new) > weight(old) {
        (new, std::mem::replace(old, placeholder(old.code)))
    } else {
        (std::mem::replace(old, placeholder(old.code)), new)
    };
    for evidence in second.evidence {
        if first.evidence.len() < 6 && !first.evidence.iter().any(|e| e.source.place == evidence.source.place) {
            first.evidence.push(evidence);
        }
    }
    *old = first;
}

fn placeholder(code: Code) -> Finding {
    Finding {
        code,
        severity: Severity::Info,
        confidence: 0.0,
        title: String::new(),
        explanation: String::new(),
        evidence: Vec::new(),
        remedy: Vec::new(),
        expected_gain: None,
    }
}

impl Signature {
    fn finding(&self, matching: &[&Line]) -> Option<Finding> {
        let first = matching.first()?;
        let evidence = matching.iter().take(4).map(|l| Evidence::new(l.source.clone())).collect();
        Some(Finding {
            code: self.code,
            severity: self.severity,
            confidence: self.confidence,
            title: format!("{}{}", self.title, first.host.map_or(String::new(), |host| format!(" (first on {host})"))),
            explanation: format!("{}{}", self.explanation, repeated(matching)),
            evidence,
            remedy: self.remedy.clone(),
            expected_gain: None,
        })
    }
}

fn repeated(matching: &[&Line]) -> String {
    let total: u64 = matching.iter().map(|l| l.count).sum();
    if total > 1 { format!(" The input has {total} such lines.") } else { String::new() }
}

#[cfg(test)]
#[path = "signatures_tests.rs"]
mod tests;
