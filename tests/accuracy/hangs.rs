//! Jobs that stood still, and who kept them waiting: `tests/data/hangs`, by the evidence that is given.

use crate::accuracy::{data, folder};
use busbw_model::{Culprit, CulpritClass, Diagnosis, Severity, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was done to a run.
#[derive(Deserialize)]
struct Truth {
    fault: String,
    class: String,
    culprit_ranks: Vec<u32>,
    culprit_host: Option<String>,
    hosts: BTreeMap<String, Vec<u32>>,
}

struct HungRun {
    folder: PathBuf,
    truth: Truth,
}

/// Which files of a run are given, and which shares of culprits and of classes must be right.
struct Variant {
    name: &'static str,
    parts: &'static [&'static str],
    culprit: f64,
    class: f64,
}

/// The shares that were reached. Without stacks nothing tells a late batch from a long evaluation: the class of such ranks is open.
/// Without logs half of the dumps lack the culprit's own half of the time: they are held to accuse nobody who is sound. Logs of groups
/// whose time is not over say nothing, and those of the three runs of seed 91 do not.
const VARIANTS: [Variant; 4] = [
    Variant { name: "dumps and logs", parts: &["fr", "logs"], culprit: 0.95, class: 0.91 },
    Variant { name: "stacks, dumps and logs", parts: &["fr", "logs", "stacks"], culprit: 1.0, class: 1.0 },
    Variant { name: "stacks and logs", parts: &["logs", "stacks"], culprit: 0.98, class: 0.96 },
    Variant { name: "logs", parts: &["logs"], culprit: 43.0 / 51.0, class: 31.0 / 51.0 },
];

fn runs() -> Vec<HungRun> {
    let folder = folder("BUSBW_ACCURACY_HANGS", data().join("hangs"));
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.join("truth.json").exists());
    folders.sort();
    let run = |folder: PathBuf| {
        let truth = std::fs::read(folder.join("truth.json")).expect("truth.json");
        HungRun { truth: serde_json::from_slice(&truth).expect("JSON"), folder }
    };
    folders.into_iter().map(run).collect()
}

/// The files below a part of a run.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

impl HungRun {
    fn inputs(&self, parts: &[&str]) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        parts.iter().for_each(|part| files(&self.folder.join(part), &mut found));
        let name = |path: &Path| path.strip_prefix(&self.folder).expect("below").to_string_lossy().into_owned();
        found.iter().map(|path| (name(path), std::fs::read(path).expect("a file"))).collect()
    }

    fn is_sound(&self) -> bool {
        self.truth.class == "none"
    }

    /// Whether the job went on, slower.
    fn is_late(&self) -> bool {
        self.truth.fault.starts_with("late-")
    }

    /// Whether the culprit is right: of a link, the host or ranks of it.
    fn names(&self, culprit: &Culprit) -> bool {
        if self.truth.fault.ends_with("-link") {
            let of_host =
                !culprit.ranks.is_empty() && culprit.ranks.iter().all(|rank| self.truth.culprit_ranks.contains(rank));
            return of_host || culprit.host.is_some() && culprit.host == self.truth.culprit_host;
        }
        culprit.ranks == self.truth.culprit_ranks
    }
}

fn diagnose(inputs: &[(String, Vec<u8>)]) -> Diagnosis {
    let texts: Vec<(&str, &[u8])> = inputs.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    let run = busbw_ingest::read_bytes(&texts).expect("readable inputs");
    busbw_diagnose::diagnose(&run)
}

#[test]
fn culprits_of_jobs_that_stood_still() {
    let runs: Vec<HungRun> = runs().into_iter().filter(|run| !run.is_late()).collect();
    assert!(!runs.is_empty());
    let mut wrong = Vec::new();
    for Variant { name, parts, culprit, class } in &VARIANTS {
        let (mut all, mut named, mut classed) = (0, 0, 0);
        for run in &runs {
            let inputs = run.inputs(parts);
            if inputs.iter().all(|(_, text)| text.is_empty()) {
                continue;
            }
            let said = diagnose(&inputs);
            if run.is_sound() {
                if let Some(accused) = said.culprit {
                    wrong.push(format!("{}, {name}: accused, {accused}", run.folder.display()));
                }
                continue;
            }
            all += 1;
            let found = said.culprit.as_ref();
            named += usize::from(found.is_some_and(|found| run.names(found)));
            let of_class = found.and_then(|found| found.class).map(CulpritClass::as_str);
            classed += usize::from(of_class == Some(run.truth.class.as_str()));
        }
        for (what, right, goal) in [("culprit", named, culprit), ("class", classed, class)] {
            let share = right as f64 / all.max(1) as f64;
            println!("{name}: {what} {right} of {all}");
            if share < *goal {
                wrong.push(format!("{name}: {what} {right} of {all}, goal {goal}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Ranks of a job that moves write their dumps at any moment, and some always wait for others: all of them, and each half.
#[test]
fn dumps_alone_of_a_job_that_moves_condemn_nobody() {
    let mut wrong = Vec::new();
    for run in runs().iter().filter(|run| run.is_sound()) {
        let all = run.inputs(&["fr"]);
        let half = |odd: usize| all.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
        for inputs in [all.clone(), half(0), half(1)].iter().filter(|inputs| !inputs.is_empty()) {
            let said = diagnose(inputs);
            if matches!(said.verdict, Verdict::Failed | Verdict::Degraded) {
                wrong.push(format!("{}, {} dumps: {}", run.folder.display(), inputs.len(), said.summary));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// A rank whose own part of a step takes a twentieth longer is named after 20 of them, by clocks that agree and by clocks that do not. A link
/// that is so much slower holds up all ranks alike, and none of them is accused.
#[test]
fn ranks_that_are_late_in_each_step_are_named() {
    let mut named = 0;
    for run in runs().iter().filter(|run| run.is_late()) {
        let inputs = run.inputs(&["fr", "logs"]);
        for inputs in [inputs.clone(), with_other_clocks(&run.truth.hosts, inputs)] {
            let Some(culprit) = diagnose(&inputs).culprit else {
                assert!(run.truth.fault == "late-link", "{}: nobody is named", run.folder.display());
                continue;
            };
            assert_eq!(culprit.ranks, run.truth.culprit_ranks, "{}: {culprit}", run.folder.display());
            let slower = culprit.slower.expect("it goes on");
            assert!(slower.from_percent > 0.0 && slower.percent > 3.0 && slower.percent < 15.0, "{culprit}");
            assert!((18..=21).contains(&slower.steps), "{}: {culprit}", run.folder.display());
            named += 1;
        }
    }
    assert!(named > 3, "{named}");
}

/// Hosts whose clocks are seconds apart: what is added to the times in dumps of JSON.
fn with_other_clocks(hosts: &BTreeMap<String, Vec<u32>>, inputs: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let moved = |(name, text): (String, Vec<u8>)| {
        let rank = name.strip_suffix(".json").and_then(|name| name.rsplit('_').next()?.parse().ok());
        let Some(rank) = rank.filter(|_| name.starts_with("fr/")) else { return (name, text) };
        let host = hosts.values().position(|ranks: &Vec<u32>| ranks.contains(&rank)).expect("a host");
        let mut dump: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        for entry in dump["entries"].as_array_mut().expect("entries") {
            let at = entry["time_created_ns"].as_u64().expect("a time");
            entry["time_created_ns"] = (at + 1_700_000_000 * host as u64).into();
        }
        (name, serde_json::to_vec(&dump).expect("it writes"))
    };
    inputs.into_iter().map(moved).collect()
}

/// Where dumps are given, nobody is asked for dumps.
#[test]
fn who_has_dumps_is_not_asked_for_them() {
    for run in runs() {
        let inputs = run.inputs(&["fr", "logs"]);
        if !inputs.iter().any(|(name, text)| name.starts_with("fr/") && !text.is_empty()) {
            continue;
        }
        let said = diagnose(&inputs);
        let remedies = said.findings.iter().flat_map(|finding| &finding.remedy);
        let asked: Vec<&String> = remedies.filter(|remedy| remedy.contains("DUMP_ON_TIMEOUT")).collect();
        assert_eq!(asked, [""; 0], "{}", run.folder.display());
    }
}

/// Dumps of some ranks of a job that moves show a moment, in which some wait for others.
#[test]
fn some_dumps_of_sound_jobs_accuse_nobody() {
    for run in runs().iter().filter(|run| run.is_sound()) {
        let dumps: Vec<(String, Vec<u8>)> = dumps(run).into_iter().collect();
        for first in 0..dumps.len() {
            for count in 1..=dumps.len() {
                let some: Vec<_> = dumps.iter().cycle().skip(first).take(count).cloned().collect();
                let accused = diagnose(&some).culprit.map(|culprit| culprit.to_string());
                assert_eq!(accused, None, "{}: {count} dumps from the {first}th", run.folder.display());
            }
        }
    }
}

/// Half a dump, dumps of another job beside, a rank that was started again: none of these makes a sound run a failed one or names others.
#[test]
fn damaged_and_foreign_dumps_mislead_nobody() {
    let runs = runs();
    let of_fault = |fault: &str| runs.iter().find(|run| run.truth.fault == fault && dumps(run).len() > 2);
    let mut checked = 0;
    for fault in ["order", "kind", "loader", "evaluation"] {
        let Some(run) = of_fault(fault) else { continue };
        let culprit = |inputs: &[(String, Vec<u8>)]| diagnose(inputs).culprit.map(|culprit| culprit.ranks);
        let whole = run.inputs(&["fr", "logs"]);
        if culprit(&whole) != Some(run.truth.culprit_ranks.clone()) {
            continue;
        }
        checked += 1;
        let innocent = |name: &str| {
            let rank = name.trim_end_matches(".json").rsplit('_').next().and_then(|rank| rank.parse().ok());
            name.starts_with("fr/") && rank.is_some_and(|rank: u32| !run.truth.culprit_ranks.contains(&rank))
        };
        let mut cut = whole.clone();
        let first = cut.iter_mut().find(|(name, _)| innocent(name)).expect("a dump of another rank");
        first.1.truncate(first.1.len() / 2);
        assert_eq!(culprit(&cut), Some(run.truth.culprit_ranks.clone()), "{}, cut", run.folder.display());

        let other =
            runs.iter().find(|other| other.folder != run.folder && other.is_sound() && !dumps(other).is_empty());
        let mut mixed = whole.clone();
        let foreign = other.map(dumps).unwrap_or_default().into_iter().take(1);
        mixed.extend(foreign.map(|(name, text)| (name.replace("fr/", "other/"), text)));
        assert_eq!(
            culprit(&mixed),
            Some(run.truth.culprit_ranks.clone()),
            "{}, with another job's",
            run.folder.display()
        );
    }
    assert!(checked > 1, "{checked}");
}

fn dumps(run: &HungRun) -> BTreeMap<String, Vec<u8>> {
    run.inputs(&["fr"]).into_iter().filter(|(_, text)| !text.is_empty()).collect()
}

/// A job that ended well has no error, whatever dumps and stacks were taken of it meanwhile.
#[test]
fn sound_jobs_have_no_errors() {
    for run in runs().iter().filter(|run| run.is_sound()) {
        let said = diagnose(&run.inputs(&["fr", "logs", "stacks"]));
        let errors: Vec<&str> =
            said.findings.iter().filter(|f| f.severity >= Severity::Warning).map(|f| &*f.title).collect();
        assert_eq!(errors, [""; 0], "{}", run.folder.display());
    }
}
