//! Facts of whole real logs, established apart from busbw, that its reader must find: `make facts`.
//!
//! Every file of `tests/data/logs` and `logs-2` is read by `busbw explain --json`, and what `facts.jsonl` says of it is
//! looked for in the answer. No host, version or transport may be found that is not there.

use crate::support::command::BUSBW;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Facts that busbw does not find, and why. One that is found now must leave the list.
const OPEN: [(&str, &str, &str); 4] = [
    (
        "n09-ssbandjl-all-ref.log",
        "tables.count",
        "a fork prints a function in front of each row, and traces fall into the rows",
    ),
    ("n17-johngrabner-2gpu.log", "nranks", "the JSON leaves out tables without a row"),
    (
        "n17-johngrabner-2gpu.log",
        "outcome",
        "the log ends behind a table's header; that it hung is known from elsewhere",
    ),
    ("n36-alcf-sophia-n2g8.log", "nranks", "the JSON leaves out tables without a row"),
];

#[test]
fn facts_of_whole_logs_are_found() {
    let every_fact = std::env::var_os("BUSBW_FACTS").is_some();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let folders = std::env::var_os("BUSBW_FACTS_DIR")
        .map_or_else(|| vec![data.join("logs"), data.join("logs-2")], |folder| vec![PathBuf::from(folder)]);
    let (mut passed, mut failed) = (0, 0);
    for folder in folders {
        let (of, missed) = check_folder(&folder, every_fact);
        passed += of - missed;
        failed += missed;
    }
    println!("{passed} passed, {failed} failed");
    assert_eq!(failed, 0, "facts of {}", passed + failed);
}

/// Looks for the facts of a folder's logs, prints what is missed, and counts the facts and the missed ones.
fn check_folder(folder: &Path, every_fact: bool) -> (usize, usize) {
    let list = std::fs::read_to_string(folder.join("facts.jsonl")).expect("facts.jsonl beside the logs");
    let (mut of, mut missed) = (0, 0);
    for line in list.lines() {
        let facts: Value = serde_json::from_str(line).expect("a JSON object per line");
        let file = facts["file"].as_str().expect("a file name");
        let path = folder.join(file);
        let mut checks = check(&facts, &explain(&path), &in_device_lists(&path));
        for check in &mut checks {
            if OPEN.iter().any(|(of, name, _)| *of == file && *name == check.name) {
                check.fits = !check.fits;
            }
        }
        let misses = checks.iter().filter(|c| !c.found()).count();
        println!("{file}: {} of {} facts", checks.len() - misses, checks.len());
        for check in checks.iter().filter(|c| every_fact || !c.found()) {
            println!("  {}", check.line());
        }
        of += checks.len();
        missed += misses;
    }
    (of, missed)
}

fn explain(path: &Path) -> Value {
    let output = Command::new(BUSBW).args(["explain", "--json"]).arg(path).output().expect("busbw runs");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// A fact and what was found.
struct Check {
    name: &'static str,
    wanted: Value,
    found: Value,
    fits: bool,
}

impl Check {
    fn found(&self) -> bool {
        self.fits
    }

    fn line(&self) -> String {
        let Check { name, wanted, found, fits } = self;
        if *fits {
            format!("found   {name}: {wanted}")
        } else {
            format!("MISSED  {name}: {wanted}, but busbw says {found}")
        }
    }
}

/// Hosts that only a table's device list names: real, but they log nothing, so that not all facts count them.
fn in_device_lists(path: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).expect("a log")).into_owned();
    let host =
        |line: &str| Some(line.split_once(" Pid ")?.1.split_once(" on ")?.1.split_whitespace().next()?.to_string());
    let mut hosts: Vec<String> = text.lines().filter_map(host).collect();
    hosts.retain(|host| !text.contains(&format!("{host}:")));
    hosts
}

fn check(facts: &Value, answer: &Value, silent: &[String]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut equal = |name: &'static str, found: Value| {
        if let Some(wanted) = facts.get(name) {
            checks.push(Check { name, wanted: wanted.clone(), fits: *wanted == found, found });
        }
    };
    let comms = answer["communicators"].as_array().cloned().unwrap_or_default();
    let tables: Vec<Value> = answer["tables"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|t| t["rows"].as_array().is_some_and(|r| !r.is_empty()))
        .cloned()
        .collect();
    equal("nccl_version", answer["nccl"]["version"].clone());
    let begun = answer["tables"].as_array().into_iter().flatten();
    equal("nranks", largest(comms.iter().chain(begun).map(|c| &c["nranks"])));
    let hosts = answer["nodes"].as_array().into_iter().flatten().map(|n| &n["host"]);
    let told = |host: &Value| facts["hosts"].as_array().is_some_and(|hosts| hosts.contains(host));
    equal("hosts", sorted(hosts.filter(|h| told(h) || !silent.iter().any(|silent| *h == silent))));
    equal("communicators", json!(comms.len()));
    equal("comm_sizes", sizes(&comms));
    for list in ["transports", "transports_printed", "p2p_kinds"] {
        equal(list, sorted(comms.iter().flat_map(|c| c[list].as_array().into_iter().flatten())));
    }
    equal("gdr", gdr(&comms));
    equal(
        "ring_orders",
        json!(
            comms
                .iter()
                .flat_map(|c| c["channels"].as_array().into_iter().flatten())
                .filter(|c| c["ring"].is_array())
                .count()
        ),
    );
    equal("warn_lines", answer["warn_lines"].clone());
    let nodes = comms.first().map_or(Value::Null, |c| c["nnodes"].clone());
    equal("nnodes", if nodes.is_null() { json!(answer["nodes"].as_array().map_or(0, Vec::len)) } else { nodes });
    if let Some(library) = facts["library"].as_str() {
        let found = answer["nccl"]["library"].clone();
        checks.push(Check { name: "library", wanted: json!(library), fits: found == library.to_lowercase(), found });
    }
    if let Some(wanted) = facts.get("nchannels") {
        let found = comms.first().map_or(Value::Null, |c| c["coll_channels"].clone());
        let fits = *wanted == found || wanted.as_array().is_some_and(|either| either.contains(&found));
        checks.push(Check { name: "nchannels", wanted: wanted.clone(), fits, found });
    }
    for (name, value) in facts["env_vars"].as_object().into_iter().flatten() {
        let found = answer["environment"][name].clone();
        checks.push(Check {
            name: "env_vars",
            wanted: json!(format!("{name}={}", value.as_str().unwrap_or_default())),
            fits: found == *value,
            found,
        });
    }
    checks.extend(check_tables(facts, &tables));
    checks.extend(check_outcome(facts, answer));
    checks
}

fn check_tables(facts: &Value, tables: &[Value]) -> Vec<Check> {
    let wanted = &facts["tables"];
    if wanted.is_null() {
        return Vec::new();
    }
    let rows: Vec<Value> = tables.iter().map(|t| json!(t["rows"].as_array().map_or(0, Vec::len))).collect();
    let averages: Vec<Value> = tables.iter().map(|t| t["avg_busbw_gbs"].clone()).collect();
    let pairs = [
        ("tables.count", wanted["count"].clone(), json!(tables.len())),
        ("tables.rows", wanted["rows"].clone(), json!(rows)),
        ("tables.avg_busbw", wanted["avg_busbw"].clone(), json!(averages)),
    ];
    pairs
        .into_iter()
        .filter(|(_, wanted, _)| !wanted.is_null())
        .map(|(name, wanted, found)| Check { name, fits: wanted == found, wanted, found })
        .collect()
}

/// A failed run must be called failed, a healthy one must not.
fn check_outcome(facts: &Value, answer: &Value) -> Option<Check> {
    let wanted = facts["outcome"].as_str()?;
    let verdict = answer["verdict"].as_str().unwrap_or("none");
    let fits = match wanted {
        "failed" => verdict == "failed",
        "healthy" => !matches!(verdict, "failed" | "none"),
        _ => verdict != "none",
    };
    Some(Check { name: "outcome", wanted: json!(wanted), fits, found: json!(verdict) })
}

fn largest<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    values.filter_map(Value::as_u64).max().map_or(Value::Null, |n| json!(n))
}

fn sorted<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let mut texts: Vec<&str> = values.filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts.dedup();
    json!(texts)
}

fn sizes(comms: &[Value]) -> Value {
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for size in comms.iter().filter_map(|c| c["nranks"].as_u64()) {
        *sizes.entry(size.to_string()).or_default() += 1;
    }
    json!(sizes)
}

fn gdr(comms: &[Value]) -> Value {
    let mut said: Vec<&Value> = comms.iter().map(|c| &c["gdr"]).filter(|g| !g.is_null()).collect();
    said.dedup();
    match said.as_slice() {
        [] => Value::Null,
        [one] => (*one).clone(),
        _ => json!("mixed"),
    }
}
