//! What findings say: `rules/findings.toml`, with the words for its gaps.

use crate::data::{Cause, from_build};
use busbw_model::{Code, Evidence, Finding, Severity};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;

/// What rules say, by its id.
static SAID: LazyLock<HashMap<String, Cause>> = LazyLock::new(|| {
    let said: Vec<(String, Cause)> = from_build(include_bytes!(concat!(env!("OUT_DIR"), "/findings.json")));
    said.into_iter().map(|(_, said)| (said.id.clone(), said)).collect()
});

/// The finding of an id in `rules/findings.toml`, with the words for its gaps.
pub(crate) fn found(id: &str, words: &[(&str, &dyn Display)], evidence: Vec<Evidence>) -> Finding {
    let Some(said) = SAID.get(id) else { unreachable!("a test holds that rules/findings.toml has {id}") };
    let fill = |text: &String| {
        words.iter().fold(text.clone(), |text, (gap, word)| text.replace(&format!("{{{gap}}}"), &word.to_string()))
    };
    let remedy = said.remedy.iter().map(fill).collect();
    Finding { title: fill(&said.title), explanation: fill(&said.explanation), remedy, ..said.finding(evidence) }
}

/// What every cause and every rule says.
#[cfg(test)]
pub(crate) fn every() -> Vec<Finding> {
    let causes = crate::Book::built_in().causes().iter().chain(SAID.values());
    causes.map(|cause| cause.finding(Vec::new())).collect()
}

impl Cause {
    /// The finding of it, as its file words it.
    pub(crate) fn finding(&self, evidence: Vec<Evidence>) -> Finding {
        let (remedy, alternatives) = (self.remedy.clone(), self.or.clone());
        let finding = Finding::new(self.code, self.severity, self.confidence, &self.title, &self.explanation);
        Finding { evidence, remedy, alternatives, ..finding }
    }
}

/// The finding that something is as it should be.
pub(crate) fn sound(
    confidence: f64,
    title: String,
    explanation: impl Into<String>,
    evidence: Vec<Evidence>,
) -> Finding {
    Finding { evidence, ..Finding::new(Code::OkAsExpected, Severity::Info, confidence, title, explanation) }
}

/// Whether a code shows something that follows from a cause elsewhere: the cause comes first.
pub(crate) fn is_consequence(code: Code) -> bool {
    matches!(code, Code::RankFailed | Code::PeerDied | Code::HangMismatch)
}
