//! Whole real logs: healthy ones raise no alarm, failed ones are called failed with their reason.

use super::cases::diagnose;
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

/// Judges the logs of a folder, prints what is wrong with the answers, and returns the share that is right.
pub fn check(folder: &Path, all: bool) -> f64 {
    let list = std::fs::read_to_string(folder.join("facts.jsonl")).expect("facts.jsonl beside the logs");
    let facts = list.lines().map(|line| serde_json::from_str::<Facts>(line).expect("facts of a log"));
    let answers: Vec<(String, Option<String>)> = facts.map(|facts| judge(folder, &facts)).collect();
    let right = answers.iter().filter(|(_, failure)| failure.is_none()).count();
    println!("{}: {right} of {} judged right", folder.display(), answers.len());
    for (line, failure) in answers.iter().filter(|(_, failure)| all || failure.is_some()) {
        println!("  {}  {line}", if failure.is_some() { "WRONG" } else { "right" });
        failure.iter().for_each(|failure| println!("         {failure}"));
    }
    right as f64 / answers.len().max(1) as f64
}

/// What was found in a log, and what is wrong with it.
fn judge(folder: &Path, facts: &Facts) -> (String, Option<String>) {
    let text = std::fs::read(folder.join(&facts.file)).expect("a log");
    let Some(diagnosis) = diagnose(&[(facts.file.clone(), text)]) else {
        let failure = format!("{} is not read", facts.file);
        return (facts.file.clone(), Some(failure));
    };
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
