//! The rules together.

use super::*;
use std::path::{Path, PathBuf};

/// Inputs on which many rules speak: every case, and every log, of the repository.
fn inputs() -> Vec<Vec<(String, Vec<u8>)>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data");
    let files = |folder: PathBuf| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        paths.into_iter()
    };
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read(path).expect("an input"));
    let cases = files(data.join("cases")).filter(|p| p.is_dir()).map(|p| files(p.join("input")).map(read).collect());
    let logs = files(data.join("logs")).map(|path| vec![read(path)]);
    cases.chain(logs).collect()
}

/// Without a rule, its findings are missing and all others stay.
#[test]
fn rules_are_independent() {
    let runs: Vec<Run> = inputs()
        .iter()
        .map(|files| {
            let texts: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
            busbw_ingest::read_bytes(&texts).expect("readable inputs")
        })
        .collect();
    for left_out in rules::ALL {
        let others: Vec<rules::Entry> = rules::ALL.iter().filter(|r| r.name != left_out.name).copied().collect();
        for run in &runs {
            let case = Case::new(run);
            let own: Vec<String> = (left_out.rule)(&case).into_iter().map(|f| f.title).collect();
            let titles = |d: Diagnosis| d.findings.into_iter().map(|f| f.title).collect::<Vec<_>>();
            let (all, without) = (titles(diagnose(run)), titles(diagnose_by(run, &UserFacts::default(), &others)));
            let missing: Vec<&String> = all.iter().filter(|title| !without.contains(title)).collect();
            assert!(missing.iter().all(|title| own.contains(title)), "{}: {missing:?}", left_out.name);
        }
    }
}

#[test]
fn rules_have_names_of_their_own() {
    let mut names: Vec<&str> = rules::ALL.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rules::ALL.len());
}
