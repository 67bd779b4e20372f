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

/// What else may be the cause of a symptom is listed, the likeliest first, but not what the input shows by itself.
#[test]
fn a_symptom_has_other_causes() {
    let others = |log: &str| {
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
        let findings = crate::diagnose(&run).findings;
        let first = findings.first().expect("a finding");
        first.alternatives.iter().map(|other| other.code.as_str()).collect::<Vec<_>>()
    };
    let usage =
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:328, invalid usage, NCCL version 2.23.4\n";
    assert_eq!(others(usage), ["gpu.duplicate", "hang.mismatch"]);
    let retry = "n1:1:2 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with status=12 opcode=0 len=0 vendor err 129\n";
    assert_eq!(others(retry), ["roce.config", "peer.died"]);
    let killed = format!("{retry}slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n");
    assert!(!others(&killed).contains(&"peer.died"));
}
