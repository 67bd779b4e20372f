//! Published tables, printed as nccl-tests prints them: good ones raise no alarm, slow ones no praise.

use super::cases::diagnose;
use crate::support::published::Published;
use busbw_model::{Severity, Verdict};
use std::path::{Path, PathBuf};

/// What is wrong with the answers to the tables of a folder.
pub fn check(folder: &Path, all: bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder of tables");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    paths.iter().flat_map(|path| judge(path, all)).collect()
}

fn judge(path: &Path, all: bool) -> Vec<String> {
    let table = Published::read(path);
    let Published { name, about, .. } = &table;
    let mut failures = Vec::new();
    for with_devices in [true, false] {
        let text = table.print(with_devices);
        let answer = diagnose(&[(format!("{name}.txt"), text.into_bytes())]).unwrap_or_default();
        let (verdict, findings) = (answer.verdict, answer.findings);
        let alarm = findings.iter().find(|f| f.severity >= Severity::Warning);
        let praised = matches!(verdict, Verdict::Healthy | Verdict::NoErrors);
        let how = if with_devices { "with its device list" } else { "alone" };
        let failure = match about.status.as_str() {
            "good" => alarm.map(|f| format!("{name} {how} is good, but busbw says {}: {}", f.code, f.title)),
            "degraded" if praised => {
                Some(format!("{name} {how} is slow ({}), but busbw says {}", about.note, verdict.title()))
            }
            _ => None,
        };
        if all || failure.is_some() {
            let found: Vec<String> = findings.iter().map(|f| format!("{} ({})", f.code, f.severity.as_str())).collect();
            let mark = if failure.is_some() { "WRONG" } else { "right" };
            println!("  {mark}  {name:<45} {:<9} {how:<20} {}", about.status, found.join(", "));
        }
        failures.extend(failure);
    }
    failures
}
