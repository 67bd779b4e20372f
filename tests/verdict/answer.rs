//! What busbw says of an input: the verdict, the findings and the text, got as `busbw explain` gets them.

use super::inputs::Input;
use busbw_model::{Code, Diagnosis, Judgement, Run, Severity, Subject, Verdict};
use busbw_predict::Cluster;
use std::collections::BTreeSet;
use std::fmt;

/// The answer to one input.
pub struct Answer {
    pub run: Run,
    pub diagnosis: Diagnosis,
}

impl Answer {
    /// What is said of an input whose cluster is not described.
    pub fn to(input: &Input) -> Self {
        Self::on(input, None)
    }

    /// What is said of an input, knowing the cluster. What cannot be read is an empty run.
    pub fn on(input: &Input, cluster: Option<&Cluster>) -> Self {
        let texts: Vec<(&str, &[u8])> = input.files.iter().map(|file| (&*file.name, file.text.as_bytes())).collect();
        let run = busbw_ingest::read_bytes(&texts).unwrap_or_default();
        let diagnosis = busbw_diagnose::diagnose_on(&run, cluster);
        Answer { run, diagnosis }
    }

    /// Whether there was anything to judge: the command ends with status 2 otherwise.
    pub fn is_readable(&self) -> bool {
        !self.run.is_empty() || !self.diagnosis.findings.is_empty()
    }

    pub fn verdict(&self) -> Verdict {
        self.diagnosis.verdict
    }

    /// Whether the verdict is an error or a warning.
    pub fn is_alarm(&self) -> bool {
        matches!(self.verdict(), Verdict::Failed | Verdict::Degraded)
    }

    /// Whether the verdict is praise.
    pub fn is_praise(&self) -> bool {
        matches!(self.verdict(), Verdict::Healthy | Verdict::NoErrors)
    }

    /// The code of the first error or warning.
    pub fn first(&self) -> Option<Code> {
        let loud = |severity| severity >= Severity::Warning;
        self.diagnosis.findings.iter().find(|finding| loud(finding.severity)).map(|finding| finding.code)
    }

    /// The codes of all errors and warnings.
    pub fn loud(&self) -> BTreeSet<Code> {
        let findings = self.diagnosis.findings.iter();
        findings.filter(|finding| finding.severity >= Severity::Warning).map(|finding| finding.code).collect()
    }

    /// Whether a measured speed was judged and found too low.
    pub fn is_slow(&self) -> bool {
        let judged = self.diagnosis.judged.iter();
        judged.into_iter().any(|one| one.subject == Subject::Speed && one.outcome == Judgement::Failed)
    }

    /// Whether another answer has the same verdict and the same first cause.
    pub fn agrees_with(&self, other: &Answer) -> bool {
        self.verdict() == other.verdict() && self.first() == other.first()
    }

    /// The text that a user sees.
    pub fn text(&self) -> String {
        busbw_report::text::explain(&self.run, &self.diagnosis, &busbw_report::text::Style::default())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&busbw_report::json::explain(&self.run, &self.diagnosis)).unwrap()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.first().map_or("-", Code::as_str);
        write!(f, "{} [{code}] {}", self.verdict().title(), self.diagnosis.summary)
    }
}
