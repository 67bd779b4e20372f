//! Cases whose answer is known: folders with `case.toml`, which says the answer, and `input/`, which holds what a user could
//! show; and files of short cases, with the input in them.

use crate::{Book, NicsOfHost, UserFacts, data, diagnose_with};
use busbw_model::{Code, Diagnosis, Finding, Run, Severity, Verdict};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The name and the bytes of an input.
pub type Input = (String, Vec<u8>);

/// A case and its right answer.
#[derive(Debug, Clone)]
pub struct LabelledCase {
    /// The name of its folder, or its file and name in it.
    pub id: String,
    pub label: Label,
    pub inputs: Vec<Input>,
}

/// The right answer, as `case.toml` says it. Other keys are for readers of the case.
#[derive(Debug, Clone, Deserialize)]
pub struct Label {
    /// The code of the first finding; `none` where there is no code for the trouble; left out where only the other keys count.
    #[serde(default, deserialize_with = "code_or_none")]
    pub label: Option<Expected>,
    /// Other codes that may stand first.
    #[serde(default)]
    pub also: Vec<Code>,
    /// Codes that no error or warning may have.
    #[serde(default)]
    pub not: Vec<Code>,
    /// Codes that no finding may have, notes included.
    #[serde(default)]
    pub absent: Vec<Code>,
    pub verdict_is: Option<Verdict>,
    /// Words of the first line.
    pub summary: Option<String>,
    /// The ids of the causes whose texts are in the input, refuted or not; all of them.
    pub causes: Option<BTreeSet<String>>,
    /// The value of `--nics`.
    #[serde(default, deserialize_with = "told_nics")]
    pub nics: Option<NicsOfHost>,
    /// What must be among the findings.
    #[serde(default)]
    pub finds: Vec<Wanted>,
}

/// A finding that must be there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub code: Code,
    /// Its severity, where it counts.
    pub severity: Option<Severity>,
    /// Words of its title, explanation, remedy or lines.
    #[serde(default)]
    pub says: String,
    /// Words that it must not have there.
    pub unsaid: Option<String>,
}

impl Wanted {
    fn is(&self, finding: &Finding) -> bool {
        let lines = finding.evidence.iter().map(|evidence| &*evidence.source.text);
        let steps = finding.remedy.iter().map(String::as_str);
        let texts = [&*finding.title, &*finding.explanation].into_iter().chain(steps).chain(lines);
        let has = |words: &String| texts.clone().any(|text| text.contains(words));
        let told = has(&self.says) && !self.unsaid.as_ref().is_some_and(has);
        self.code == finding.code && self.severity.is_none_or(|severity| severity == finding.severity) && told
    }
}

/// A file of short cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    case: Vec<Spanned<ShortCase>>,
}

#[derive(Deserialize)]
struct ShortCase {
    name: String,
    #[serde(flatten)]
    label: Label,
    #[serde(default)]
    input: Vec<String>,
    /// Inputs of one file, each a case of its own.
    #[serde(default)]
    each: Vec<String>,
}

/// What stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Code(Code),
    Nothing,
}

impl Expected {
    /// The code, or `none`.
    pub fn as_str(self) -> &'static str {
        match self {
            Expected::Code(code) => code.as_str(),
            Expected::Nothing => "none",
        }
    }
}

fn code_or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Expected>, D::Error> {
    let name = String::deserialize(from)?;
    let code = || Code::from_name(&name).map(Expected::Code);
    let unknown = || serde::de::Error::custom(format!("{name} is no code; `busbw explain --code x` lists them"));
    if name == "none" { Ok(Some(Expected::Nothing)) } else { code().ok_or_else(unknown).map(Some) }
}

fn told_nics<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<NicsOfHost>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Reads the case that a folder is, the short cases of a file, or all cases in a folder, in the order of their names.
pub fn load(path: &Path) -> Result<Vec<LabelledCase>, String> {
    if path.join("case.toml").exists() {
        return Ok(vec![of_folder(path)?]);
    }
    if path.is_file() {
        return of_file(path);
    }
    let mut cases = Vec::new();
    for path in sorted(path)? {
        let is_toml = path.extension().is_some_and(|ending| ending == "toml");
        if path.join("case.toml").exists() || is_toml && text(&path)?.contains("[[case]]") {
            cases.extend(load(&path)?);
        }
    }
    let none = || {
        format!(
            "{}: no case is here; a case is a folder with case.toml and input/, or [[case]] in a file",
            path.display()
        )
    };
    if cases.is_empty() { Err(none()) } else { Ok(cases) }
}

fn of_folder(folder: &Path) -> Result<LabelledCase, String> {
    let path = folder.join("case.toml");
    let label = data::parse::<Label>(&path.display().to_string(), &text(&path)?)?.expecting(&path.display())?;
    let inputs = sorted(&folder.join("input"))?;
    let inputs = inputs.iter().map(|path| Ok((name(path), bytes(path)?))).collect::<Result<_, String>>()?;
    Ok(LabelledCase { id: name(folder), label, inputs })
}

fn of_file(path: &Path) -> Result<Vec<LabelledCase>, String> {
    let (shown, text) = (path.display().to_string(), text(path)?);
    let mut cases = Vec::new();
    for spanned in data::parse::<Short>(&shown, &text)?.case {
        let place = data::place(&shown, &text, spanned.span().start);
        let ShortCase { name, label, input, each } = spanned.into_inner();
        let label = label.expecting(&place)?;
        let inputs = each.into_iter().map(|text| vec![text]).chain((!input.is_empty()).then_some(input));
        cases.extend(inputs.map(|texts| LabelledCase {
            id: format!("{place} {name}"),
            label: label.clone(),
            inputs: (1..).zip(texts).map(|(number, text)| (format!("{number}.log"), text.into_bytes())).collect(),
        }));
    }
    Ok(cases)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(path: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

impl Label {
    /// Whether a code may stand first.
    pub fn accepts(&self, code: Code) -> bool {
        self.label == Some(Expected::Code(code)) || self.also.contains(&code)
    }

    /// Itself; an error where it expects nothing.
    fn expecting(self, place: &impl Display) -> Result<Self, String> {
        let lists = self.not.is_empty() && self.absent.is_empty() && self.finds.is_empty() && self.causes.is_none();
        if lists && self.label.is_none() && self.verdict_is.is_none() && self.summary.is_none() {
            return Err(format!(
                "{place}: it expects nothing; give label, not, absent, finds, causes, summary or verdict_is"
            ));
        }
        Ok(self)
    }

    /// The answer to a run by a book, and what it misses, a line each; none where it is right.
    pub fn answer(&self, run: &Run, book: &Book) -> (Diagnosis, Vec<String>) {
        let answer = diagnose_with(run, &UserFacts { book: Some(book), nics: self.nics, ..UserFacts::default() });
        let told = book.told(run);
        let mut misses = self.misses(&answer);
        if let Some(causes) = self.causes.as_ref().filter(|causes| !causes.iter().eq(&told)) {
            misses.push(format!("expected the causes {causes:?}, got {told:?}"));
        }
        (answer, misses)
    }

    fn misses(&self, answer: &Diagnosis) -> Vec<String> {
        let first = answer.findings.first().map(|finding| finding.code);
        let alarms = || answer.findings.iter().filter(|finding| finding.severity >= Severity::Warning);
        let mut misses = Vec::new();
        let quiet = matches!(self.label, Some(Expected::Nothing | Expected::Code(Code::OkAsExpected)));
        let right = first.is_some_and(|code| self.accepts(code)) || quiet && alarms().next().is_none();
        if let Some(label) = self.label.filter(|_| !right) {
            misses.push(format!("expected {} first, got {}", label.as_str(), first.map_or("nothing", Code::as_str)));
        }
        if let Some(verdict) = self.verdict_is.filter(|verdict| *verdict != answer.verdict) {
            misses.push(format!("expected the verdict {}, got {}", verdict.as_str(), answer.verdict.as_str()));
        }
        if self.summary.as_ref().is_some_and(|words| !answer.summary.contains(words)) {
            misses.push(format!("expected the first line {:?}, got {:?}", self.summary, answer.summary));
        }
        let unwanted = answer.findings.iter().filter(|finding| {
            let alarm = finding.severity >= Severity::Warning;
            self.absent.contains(&finding.code) || alarm && self.not.contains(&finding.code)
        });
        misses.extend(unwanted.map(|finding| format!("expected no {}, got \"{}\"", finding.code, finding.title)));
        let absent = self.finds.iter().filter(|wanted| !answer.findings.iter().any(|finding| wanted.is(finding)));
        misses.extend(absent.map(|wanted| format!("expected {wanted:?}")));
        misses
    }
}
