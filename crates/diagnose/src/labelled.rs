//! Cases whose answer is known: folders with `case.toml`, which says the answer, and `input/`, which holds what a user could show.

use crate::data;
use busbw_model::{Code, Diagnosis, Severity, Verdict};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The name and the bytes of an input.
pub type Input = (String, Vec<u8>);

/// A case and its right answer.
#[derive(Debug, Clone)]
pub struct LabelledCase {
    /// The name of its folder.
    pub id: String,
    /// Its right answer.
    pub label: Label,
    /// What is read.
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
    /// The verdict.
    pub verdict_is: Option<Verdict>,
}

/// What stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A finding of this code.
    Code(Code),
    /// No error and no warning.
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

/// Reads the case that a folder is, or those in it, in the order of their names.
///
/// # Errors
/// What cannot be read, with its path.
pub fn load(folder: &Path) -> Result<Vec<LabelledCase>, String> {
    if folder.join("case.toml").exists() {
        return Ok(vec![read(folder)?]);
    }
    let cases: Vec<PathBuf> = sorted(folder)?.into_iter().filter(|path| path.join("case.toml").exists()).collect();
    if cases.is_empty() {
        return Err(format!("{}: no case is here; a case is a folder with case.toml and input/", folder.display()));
    }
    cases.iter().map(|path| read(path)).collect()
}

fn read(folder: &Path) -> Result<LabelledCase, String> {
    let path = folder.join("case.toml");
    let text = String::from_utf8_lossy(&bytes(&path)?).into_owned();
    let label: Label = data::parse(&path.display().to_string(), &text)?;
    let silent = label.not.is_empty() && label.absent.is_empty();
    if label.label.is_none() && silent && label.verdict_is.is_none() {
        return Err(format!("{}: it expects nothing; give label, not, absent or verdict_is", path.display()));
    }
    let inputs = sorted(&folder.join("input"))?;
    let inputs = inputs.iter().map(|path| Ok((name(path), bytes(path)?))).collect::<Result<_, String>>()?;
    Ok(LabelledCase { id: name(folder), label, inputs })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

    /// What an answer misses, a line each; none where it is right.
    pub fn misses(&self, answer: &Diagnosis) -> Vec<String> {
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
        let unwanted = answer.findings.iter().filter(|finding| {
            let alarm = finding.severity >= Severity::Warning;
            self.absent.contains(&finding.code) || alarm && self.not.contains(&finding.code)
        });
        misses.extend(unwanted.map(|finding| format!("expected no {}, got \"{}\"", finding.code, finding.title)));
        misses
    }
}
