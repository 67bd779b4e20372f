//! What findings say: `rules/findings.toml`, with the words for its gaps.

use crate::data::{Cause, Signatures, built_in};
use busbw_model::{Code, Evidence, Finding, Severity};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;
use toml::Spanned;

/// What rules say, by its id.
static SAID: LazyLock<HashMap<String, Cause>> = LazyLock::new(|| {
    let file = built_in::<Signatures>("rules/findings.toml", include_str!("../../../../rules/findings.toml"));
    file.cause.into_iter().map(Spanned::into_inner).map(|said| (said.id.clone(), said)).collect()
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
        Finding {
            code: self.code,
            severity: self.severity,
            confidence: self.confidence,
            title: self.title.clone(),
            explanation: self.explanation.clone(),
            evidence,
            remedy: self.remedy.clone(),
            expected_gain: None,
            suspects: None,
            alternatives: self.or.clone(),
            if_slow: false,
        }
    }
}

/// The finding that something is as it should be.
pub(crate) fn sound(
    confidence: f64,
    title: String,
    explanation: impl Into<String>,
    evidence: Vec<Evidence>,
) -> Finding {
    let (code, severity, explanation) = (Code::OkAsExpected, Severity::Info, explanation.into());
    let (remedy, expected_gain, suspects, alternatives, if_slow) = (Vec::new(), None, None, Vec::new(), false);
    Finding {
        code,
        severity,
        confidence,
        title,
        explanation,
        evidence,
        remedy,
        expected_gain,
        suspects,
        alternatives,
        if_slow,
    }
}

/// Whether a code shows something that follows from a cause elsewhere: the cause comes first.
pub(crate) fn is_consequence(code: Code) -> bool {
    matches!(code, Code::RankFailed | Code::PeerDied | Code::HangMismatch)
}
