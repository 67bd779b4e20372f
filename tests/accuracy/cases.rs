//! Cases: what a user could show, and the finding that is known to be right.

use busbw_diagnose::labelled::Expected;
pub use busbw_diagnose::labelled::{Input, LabelledCase as Case};
use busbw_model::{Code, Diagnosis, Severity};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads every case of a folder.
pub fn load(folder: &Path) -> Vec<Case> {
    busbw_diagnose::labelled::load(folder).unwrap_or_else(|error| panic!("{error}"))
}

/// Reads inputs and judges them, as `busbw explain` does.
pub fn diagnose(inputs: &[Input]) -> Option<Diagnosis> {
    let texts: Vec<(&str, &[u8])> = inputs.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    let run = busbw_ingest::read_bytes(&texts).expect("readable inputs");
    let diagnosis = busbw_diagnose::diagnose(&run);
    (!run.is_empty() || !diagnosis.findings.is_empty()).then_some(diagnosis)
}

/// The answers to all cases.
pub struct Answers<'a>(Vec<Answer<'a>>);

struct Answer<'a> {
    case: &'a Case,
    /// The codes found, each once, in order, with the severity and the title of the first.
    found: Vec<(Code, Severity, String)>,
}

/// Diagnoses every case in the form that `inputs` gives it.
pub fn judge(cases: &[Case], inputs: impl Fn(&Case) -> Vec<Input>) -> Answers<'_> {
    let answer = |case| {
        let mut found: Vec<(Code, Severity, String)> = Vec::new();
        for finding in diagnose(&inputs(case)).map(|d| d.findings).unwrap_or_default() {
            if !found.iter().any(|(code, ..)| *code == finding.code) {
                found.push((finding.code, finding.severity, finding.title));
            }
        }
        Answer { case, found }
    };
    Answers(cases.iter().map(answer).collect())
}

impl Answer<'_> {
    fn label(&self) -> &'static str {
        self.case.label.label.map_or("", Expected::as_str)
    }

    fn right_first(&self) -> bool {
        self.found.first().is_some_and(|(code, ..)| self.case.label.accepts(*code))
    }

    fn right_in_three(&self) -> bool {
        self.found.iter().take(3).any(|(code, ..)| self.case.label.accepts(*code))
    }

    fn false_alarms(&self) -> usize {
        let alarms = self.found.iter().filter(|(_, severity, _)| *severity >= Severity::Warning);
        if self.label() == Code::OkAsExpected.as_str() { alarms.count() } else { 0 }
    }

    fn line(&self) -> String {
        let mark = match (self.right_first(), self.right_in_three()) {
            (true, _) => "right",
            (false, true) => "later",
            (false, false) => "WRONG",
        };
        let found: Vec<String> =
            self.found.iter().take(3).map(|(code, severity, _)| format!("{code} ({})", severity.as_str())).collect();
        format!("  {mark}  {:<42} {:<20} {}", self.case.id, self.label(), found.join(", "))
    }
}

impl Answers<'_> {
    fn share(&self, right: impl Fn(&Answer) -> bool) -> f64 {
        self.0.iter().filter(|answer| right(answer)).count() as f64 / self.0.len().max(1) as f64
    }

    /// The share of cases whose first finding is right.
    pub fn first(&self) -> f64 {
        self.share(|answer| answer.right_first())
    }

    /// The share of cases with the right one in the first three.
    pub fn in_three(&self) -> f64 {
        self.share(|answer| answer.right_in_three())
    }

    /// Prints every case, or those that are not right, and the shares.
    pub fn print(&self, title: &str, all: bool) {
        let false_alarms: usize = self.0.iter().map(Answer::false_alarms).sum();
        println!(
            "{title}: {:.1}% first, {:.1}% in three, of {}; {false_alarms} false alarms",
            100.0 * self.first(),
            100.0 * self.in_three(),
            self.0.len()
        );
        for answer in self.0.iter().filter(|a| all || !a.right_first() || a.false_alarms() > 0) {
            println!("{}", answer.line());
        }
        for (label, (right, wrong)) in self.confusion().iter().filter(|(_, (_, wrong))| all || !wrong.is_empty()) {
            println!("  {label:<22} {right} right{}", wrong.iter().map(|w| format!(", {w}")).collect::<String>());
        }
    }

    /// Per label: how often the first finding is right, and what stands first instead.
    fn confusion(&self) -> BTreeMap<&str, (usize, Vec<String>)> {
        let mut confusion: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
        for answer in &self.0 {
            let (right, wrong) = confusion.entry(answer.label()).or_default();
            match answer.found.first() {
                _ if answer.right_first() => *right += 1,
                Some((code, ..)) => wrong.push(format!("taken for {code}")),
                None => wrong.push("nothing found".into()),
            }
        }
        confusion
    }
}
