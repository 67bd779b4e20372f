//! Published tables, printed as nccl-tests prints them: good ones raise no alarm, slow ones get a finding.

use crate::cases::diagnose;
use crate::published::Published;
use busbw_model::{Code, Severity};
use std::path::{Path, PathBuf};

/// Slow tables that no rule can know to be slow from what is printed, with the reason.
const CANNOT_TELL: [(&str, &str); 0] = [];

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
        let findings = diagnose(&[(format!("{name}.txt"), text.into_bytes())]).map(|d| d.findings).unwrap_or_default();
        let alarm = findings.iter().find(|f| f.severity >= Severity::Warning);
        let finding = findings.iter().find(|f| f.code != Code::OkAsExpected);
        let how = if with_devices { "with its device list" } else { "alone" };
        let cannot_tell = CANNOT_TELL.iter().any(|(start, _)| name.starts_with(start));
        let failure = match about.status.as_str() {
            "good" => alarm.map(|f| format!("{name} {how} is good, but busbw says {}: {}", f.code, f.title)),
            "degraded" if with_devices && finding.is_none() && !cannot_tell => {
                Some(format!("{name} {how} is slow ({}), but busbw finds nothing", about.note))
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
