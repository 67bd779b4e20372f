//! Nodes of `rules/cases/nodes`, and the lines that they must get; and nodes beside each other.

use super::check;
use busbw_model::node::*;
use busbw_model::{Checked, NodeFacts};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Two GPUs with NVLink and an HCA on one NUMA node, all as it should be.
const HEALTHY: &str = include_str!("../../../../../rules/cases/nodes/healthy.json");
const FAULTS: &str = include_str!("../../../../../rules/cases/nodes/faults.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faults {
    node: Vec<Fault>,
    beside: Vec<Beside>,
}

/// Nodes beside each other, and how they differ.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    differ: Vec<String>,
    nodes: Vec<Fault>,
}

/// A healthy node with other facts, and its lines that are no `ok`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    #[serde(default)]
    told: Vec<String>,
    #[serde(default)]
    set: Map<String, Value>,
    #[serde(default)]
    unset: Vec<String>,
    #[serde(default)]
    name: String,
}

impl Fault {
    fn node(&self) -> NodeFacts {
        let mut node: Value = serde_json::from_str(HEALTHY).expect("facts");
        let unset = self.unset.iter().map(|path| (path, None));
        for (path, value) in self.set.iter().map(|(path, value)| (path, Some(value))).chain(unset) {
            change(&mut node, path, value);
        }
        serde_json::from_value(node).expect("facts")
    }
}

/// Sets what a path names, or takes it away; `*` is every entry of a list.
fn change(at: &mut Value, path: &str, to: Option<&Value>) {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match at {
        Value::Array(all) if first == "*" => all.iter_mut().for_each(|one| change(one, rest, to)),
        Value::Array(all) => change(&mut all[first.parse::<usize>().expect("a number")], rest, to),
        Value::Object(facts) if rest.is_empty() => match to {
            Some(value) => drop(facts.insert(first.into(), value.clone())),
            None => drop(facts.remove(first).unwrap_or_else(|| panic!("{path}"))),
        },
        _ => change(at.get_mut(first).unwrap_or_else(|| panic!("{path}")), rest, to),
    }
}

/// Lines that are not well, as `result item: detail`.
fn troubles(checked: &Checked) -> Vec<String> {
    let told = checked.items.iter().filter(|item| item.remedy.is_some());
    told.map(|item| format!("{} {}: {}", item.outcome.as_str(), item.item, item.detail)).collect()
}

#[test]
fn a_node_gets_its_lines() {
    let faults: Faults = toml::from_str(FAULTS).expect("faults");
    assert!(faults.node.len() > 40);
    for fault in faults.node {
        assert_eq!(troubles(&check(&[fault.node()], &Hello::default())), fault.told, "{}", fault.name);
    }
    let checked = check(&[serde_json::from_str(HEALTHY).expect("facts")], &Hello::default());
    assert!(troubles(&checked).is_empty() && !checked.failed() && checked.odd_ones.is_empty());
}

#[test]
fn the_odd_one_is_named_with_the_value_of_the_majority() {
    let faults: Faults = toml::from_str(FAULTS).expect("faults");
    for Beside { differ, nodes } in faults.beside {
        let nodes: Vec<NodeFacts> =
            nodes.iter().map(|fault| NodeFacts { host: fault.name.clone(), ..fault.node() }).collect();
        let told = check(&nodes, &Hello::default()).odd_ones.into_iter().map(|odd| {
            let (result, code) =
                (if odd.fails { "fail" } else { "warn" }, odd.code.map_or("no code", |code| code.as_str()));
            let values: Vec<String> = odd.differ.iter().map(|(host, value)| format!("{host} {value}")).collect();
            let majority = odd.majority.as_deref().unwrap_or("?");
            format!("{result} {}: {} not {majority} ({code})", odd.item, values.join(", "))
        });
        assert_eq!(told.collect::<Vec<_>>(), differ);
    }
}
