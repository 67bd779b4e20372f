//! Whole real logs: healthy ones raise no alarm, failed ones are called failed with their reason.

use crate::cases::diagnose;
use busbw_model::{Severity, Verdict};
use serde::Deserialize;
use std::path::Path;

/// The reason that `facts.jsonl` tells in words, as a code, by the log's number.
const REASONS: [(&str, &str); 5] = [
    ("013-", "limits.memlock"),
    ("014-", "net.unreachable"),
    ("046-", "gpu.duplicate"),
    ("056-", "net.plugin"),
    ("058-", "hang.mismatch"),
];

#[derive(Deserialize)]
struct Facts {
    file: String,
    outcome: Option<String>,
}

/// What is wrong with the answers to the logs of a folder.
pub fn check(folder: &Path, all: bool) -> Vec<String> {
    let list = std::fs::read_to_string(folder.join("facts.jsonl")).expect("facts.jsonl beside the logs");
    let facts = list.lines().map(|line| serde_json::from_str::<Facts>(line).expect("facts of a log"));
    let failures: Vec<(String, Option<String>)> = facts.map(|facts| judge(folder, &facts)).collect();
    for (line, failure) in failures.iter().filter(|(_, failure)| all || failure.is_some()) {
        println!("  {}  {line}", if failure.is_some() { "WRONG" } else { "right" });
    }
    failures.into_iter().filter_map(|(_, failure)| failure).collect()
}

/// What was found in a log, and what is wrong with it.
fn judge(folder: &Path, facts: &Facts) -> (String, Option<String>) {
    let text = std::fs::read(folder.join(&facts.file)).expect("a log");
    let diagnosis = diagnose(&[(facts.file.clone(), text)]).expect("a log that busbw reads");
    let found: Vec<String> =
        diagnosis.findings.iter().take(3).map(|f| format!("{} ({})", f.code, f.severity.as_str())).collect();
    let alarm = diagnosis.findings.iter().find(|f| f.severity >= Severity::Warning);
    let reason = REASONS.iter().find(|(number, _)| facts.file.starts_with(number)).map(|(_, code)| *code);
    let file = &facts.file;
    let failure = match facts.outcome.as_deref() {
        Some("healthy") => alarm.map(|f| format!("{file} is healthy, but busbw says {}: {}", f.code, f.title)),
        Some("failed") if diagnosis.verdict != Verdict::Failed => {
            Some(format!("{file} failed, but busbw does not say so"))
        }
        Some("failed") => {
            let first = diagnosis.findings.first().map(|f| f.code.as_str());
            reason
                .filter(|_| first != reason)
                .map(|reason| format!("{file} failed for {reason}, but busbw says {first:?}"))
        }
        _ => None,
    };
    (format!("{file:<45} {:<10} {}", facts.outcome.as_deref().unwrap_or("unclear"), found.join(", ")), failure)
}
