//! Nodes of `rules/cases/nodes`, and the lines that they must get; and nodes beside each other.

use super::check;
use busbw_model::node::*;
use busbw_model::{Checked, NodeFacts};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Two GPUs with NVLink and an HCA on one NUMA node, all as it should be.
const HEALTHY: &str = include_str!("../../../../rules/cases/nodes/healthy.json");
const FAULTS: &str = include_str!("../../../../rules/cases/nodes/faults.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Faults {
    node: Vec<Fault>,
}

/// A healthy node with other facts, and its lines that are no `ok`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
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

/// A change of a healthy node.
type Edit = fn(&mut NodeFacts);

fn named(host: &str, edits: &[Edit]) -> NodeFacts {
    let mut node = NodeFacts { host: host.into(), ..serde_json::from_str(HEALTHY).expect("facts") };
    edits.iter().for_each(|edit| edit(&mut node));
    node
}

#[test]
fn the_odd_one_is_named_with_the_value_of_the_majority() {
    let time = |node: &mut NodeFacts, together_us| {
        node.clock = Known::Known(Clock { synchronised: true, error_us: 0, together_us: Some(together_us) });
    };
    let odd: &[Edit] = &[
        |n| n.nccl[0].version = Some("2.18.3".into()),
        |n| n.interfaces[0].mtu = Some(1500),
        |n| drop(n.environment.insert("NCCL_ALGO".into(), "Ring".into())),
        |n| n.rdma[0].ports[0].rate_gbps = Some(200.0),
    ];
    let mut nodes = vec![named("a", &[]), named("b", odd), named("c", &[])];
    for (node, together_us) in nodes.iter_mut().zip([5_000_000, 5_100_000, 9_000_000]) {
        time(node, together_us);
    }
    let checked = check(&nodes, &Hello::default());
    let told: Vec<String> = checked
        .odd_ones
        .iter()
        .map(|odd| {
            let differ: Vec<String> = odd.differ.iter().map(|(host, value)| format!("{host} {value}")).collect();
            format!("{}: {} not {}", odd.item, differ.join(", "), odd.majority.as_deref().unwrap_or("?"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "NCCL: b 2.18.3 not 2.20.5",
            "rate of mlx5_0/1: b 200 Gbit/s not 400 Gbit/s",
            "MTU of eth0: b 1500 not 9000",
            "NCCL_ALGO: b Ring not none",
            "time: c 3.9 s ahead not within a second of each other",
        ]
    );
    assert!(checked.failed());
    let down: Edit = |n| {
        let spare =
            NetInterface { name: "eth1".into(), state: "down".into(), mtu: Some(9000), ..NetInterface::default() };
        n.interfaces.push(spare);
    };
    let other: Edit = |n| {
        n.interfaces[1].mtu = Some(1500);
        n.rdma[0].ports[0].rate_gbps = Some(200.0);
        if let Known::Known(limits) = &mut n.limits {
            limits.open_files.hard = Bound::At(65536);
        }
    };
    let three = check(&[named("a", &[down]), named("b", &[down, other]), named("c", &[down])], &Hello::default());
    let codes: Vec<(&str, &str)> =
        three.odd_ones.iter().map(|odd| (odd.item.as_str(), odd.code.map_or("", |code| code.as_str()))).collect();
    assert_eq!(codes, [("rate of mlx5_0/1", "nic.rate"), ("nofile", "limits.files")]);
    let two = check(&[named("a", &[]), named("b", &[|n| n.kernel = Some("5.15.0".into())])], &Hello::default());
    assert_eq!((two.odd_ones[0].majority.as_deref(), two.odd_ones[0].differ.len()), (None, 2));
}
