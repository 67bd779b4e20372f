//! Small inputs that busbw once got wrong, each with what its answer must be and must not be (`tests/data/reproductions`).

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, Input};
use regex::Regex;
use serde::Deserialize;

/// One line of `expected.jsonl`: the files that are given together, and what holds of the answer.
#[derive(Deserialize)]
struct Case {
    input: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    verdict: Option<Vec<String>>,
    /// Any of these codes in the first finding.
    first: Option<Vec<String>>,
    /// No error or warning of these codes.
    #[serde(default)]
    not: Vec<String>,
    /// What the text says, and what it does not say: regular expressions.
    says: Option<String>,
    and: Option<String>,
    never: Option<String>,
    /// How a value of the JSON begins.
    fact: Option<(String, String)>,
    /// Whether busbw reads the input.
    readable: Option<bool>,
}

impl Case {
    fn name(&self) -> String {
        self.input.iter().chain(&self.args).map(String::as_str).collect::<Vec<_>>().join(" + ")
    }

    fn answer(&self) -> Answer {
        let folder = inputs::data().join("reproductions");
        let paths: Vec<_> = self.input.iter().map(|name| folder.join(name)).collect();
        let cluster = self.args.iter().find(|arg| arg.ends_with(".toml"));
        let cluster = cluster.map(|name| busbw_predict::cluster::parse(&inputs::read(&folder.join(name))).unwrap());
        Answer::on(&Input::of_files(&paths), cluster.as_ref())
    }

    /// What is wrong with the answer.
    fn faults(&self, answer: &Answer) -> Vec<String> {
        match self.readable {
            Some(readable) if readable != answer.is_readable() => {
                return vec![format!("readable should be {readable}")];
            }
            Some(false) => return Vec::new(),
            _ => (),
        }
        let mut faults = self.faults_of_findings(answer);
        faults.extend(self.faults_of_text(&answer.text()));
        let value = |path: &str| path.split('.').fold(answer.json(), |value, part| value[part].clone());
        if let Some((path, start)) = &self.fact
            && !value(path).as_str().is_some_and(|value| value.starts_with(start))
        {
            faults.push(format!("{path} is {}, not {start}", value(path)));
        }
        faults
    }

    fn faults_of_findings(&self, answer: &Answer) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(verdicts) = &self.verdict
            && !verdicts.iter().any(|verdict| verdict == answer.verdict().as_str())
        {
            faults.push(format!("the verdict is not {}", verdicts.join(" or ")));
        }
        let first = answer.diagnosis.findings.first().map(|finding| finding.code.as_str());
        if let Some(codes) = &self.first
            && !codes.iter().any(|code| Some(code.as_str()) == first)
        {
            faults.push(format!("the first is not {}", codes.join(" or ")));
        }
        let raised = answer.loud().into_iter().filter(|code| self.not.iter().any(|not| not == code.as_str()));
        faults.extend(raised.map(|code| format!("raises {code}")));
        faults
    }

    fn faults_of_text(&self, text: &str) -> Vec<String> {
        let says = |pattern: &str| Regex::new(pattern).unwrap().is_match(text);
        let missing = self.says.iter().chain(&self.and).filter(|pattern| !says(pattern));
        let said = self.never.iter().filter(|pattern| says(pattern));
        missing
            .map(|words| format!("does not say `{words}`"))
            .chain(said.map(|words| format!("says `{words}`")))
            .collect()
    }
}

#[test]
fn each_reproduction_has_its_answer() {
    let mut held = Held::new("each reproduction has its answer");
    let expected = inputs::read(&inputs::data().join("reproductions/expected.jsonl"));
    for line in expected.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case = serde_json::from_str(line).unwrap();
        let answer = case.answer();
        let faults = case.faults(&answer);
        held.check(faults.is_empty(), || format!("{}: {answer}\n    {}", case.name(), faults.join("; ")));
    }
    held.end();
}
