//! What should be equal on all nodes and is not: the odd one out.

use super::net::{is_outward, is_up};
use crate::findings::found;
use busbw_model::node::{Bound, GidKind, Known};
use busbw_model::{Area, Finding, NodeFacts, OddOne, Severity};
use std::collections::BTreeMap;

/// A thing of a node that should be equal on all, and its value.
struct Trait {
    area: Area,
    /// What it means when it differs, in rules/findings.toml.
    id: &'static str,
    item: String,
    value: String,
}

/// Variables that are a process's own.
const OWN: [&str; 3] = ["NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE"];
/// Clocks that are further apart make times of logs worthless.
const CLOCKS_APART_US: u64 = 1_000_000;

/// What differs, with its id where it is more than a note.
pub(crate) fn odd_ones(nodes: &[NodeFacts]) -> Vec<(Option<&'static str>, OddOne)> {
    if nodes.len() < 2 {
        return Vec::new();
    }
    let traits: Vec<Vec<Trait>> = nodes.iter().map(traits).collect();
    let mut items: Vec<&Trait> = Vec::new();
    for one in traits.iter().flatten() {
        if !items.iter().any(|known| (known.id, &known.item) == (one.id, &one.item)) {
            items.push(one);
        }
    }
    let mut found: Vec<(Option<&'static str>, OddOne)> = items
        .into_iter()
        .filter_map(|wanted| {
            let value = |of: &Vec<Trait>| of.iter().find(|one| one.item == wanted.item).map(|one| one.value.clone());
            let values = nodes.iter().zip(&traits).filter_map(|(node, of)| {
                // An interface or port that a node lacks has a line of its own; a variable that is not set is a difference.
                let absent = || (wanted.area == Area::Environment).then(|| "none".to_owned());
                Some((node.host.clone(), value(of).or_else(absent)?))
            });
            Some((Some(wanted.id), odd_one(wanted, values.collect())?))
        })
        .collect();
    found.extend(clocks(nodes).map(|odd| (None, odd)));
    found.sort_by_key(|(_, odd)| odd.area);
    found
}

fn odd_one(wanted: &Trait, values: Vec<(String, String)>) -> Option<OddOne> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &values {
        *counts.entry(value).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let majority = counts.iter().find(|(_, count)| **count * 2 > values.len()).map(|(value, _)| (*value).to_owned());
    let differ = values.iter().filter(|(_, value)| majority.as_ref() != Some(value)).cloned().collect();
    let Finding { code, severity, remedy, .. } = found(wanted.id, &[], Vec::new());
    Some(OddOne {
        area: wanted.area,
        item: wanted.item.clone(),
        majority,
        differ,
        remedy: remedy.concat(),
        fails: severity == Severity::Error,
        code: Some(code),
    })
}

/// What should be equal of a node. A thing that it does not have or tell is left out.
fn traits(node: &NodeFacts) -> Vec<Trait> {
    let mut found = Vec::new();
    let mut add = |area: Area, id: &'static str, item: &str, value: Option<String>| {
        found.extend(value.map(|value| Trait { area, id, item: item.to_owned(), value }));
    };
    // Commands may show one device of many.
    let count = Some(node.gpu.devices.len().to_string()).filter(|_| !node.partial);
    add(Area::Gpu, "differs.gpus", "number of GPUs", count);
    add(Area::Gpu, "differs.gpus", "GPUs", node.gpu.devices.first().map(|gpu| gpu.name.clone()));
    add(Area::Gpu, "differs.driver", "NVIDIA driver", node.gpu.driver.clone());
    add(Area::Cuda, "differs.nccl", "NCCL", node.nccl.first().and_then(|library| library.version.clone()));
    add(Area::Clock, "differs.system", "kernel", node.kernel.clone());
    let governors: Vec<&str> = node.governors.keys().map(String::as_str).collect();
    add(Area::Clock, "differs.system", "governor", Some(governors.join(" ")).filter(|all| !all.is_empty()));
    for program in node.programs.iter().filter(|program| program.name == "mpirun") {
        add(Area::Mpi, "differs.mpi", "mpirun", Some(program.version.clone().unwrap_or_else(|| "none".into())));
    }
    if let Known::Known(limits) = &node.limits {
        add(
            Area::Limits,
            "differs.memlock",
            "memlock",
            Some(bound(limits.locked_memory.soft)).filter(|_| !node.partial),
        );
        add(Area::Limits, "differs.nofile", "nofile", Some(bound(limits.open_files.hard)).filter(|_| !node.partial));
    }
    let own = |name: &str| !name.starts_with("NCCL_") || OWN.contains(&name);
    for (name, value) in node.environment.iter().filter(|(name, _)| !own(name)) {
        add(Area::Environment, "differs.variable", name, Some(value.clone()));
    }
    // Where it lies is a node's own; a node without one goes by NCCL's own choices.
    let table = node.tuning_table.as_ref().filter(|table| table.problem.is_none());
    let hash = table.and_then(|table| table.sha256.as_ref());
    add(Area::Environment, "differs.tuning-table", "tuning table", hash.map(|hash| format!("sha256 {hash}")));
    rdma(node, &mut add);
    // One that is down has a line of its own, and nothing goes through it.
    for interface in node.interfaces.iter().filter(|interface| is_outward(interface) && is_up(interface)) {
        add(Area::Net, "differs.mtu", &format!("MTU of {}", interface.name), interface.mtu.map(|mtu| mtu.to_string()));
        let speed = interface.speed_mbps.map(|speed| format!("{speed} Mbit/s"));
        add(Area::Net, "differs.speed", &format!("speed of {}", interface.name), speed);
    }
    found
}

fn rdma(node: &NodeFacts, add: &mut impl FnMut(Area, &'static str, &str, Option<String>)) {
    let names: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(" ") };
    add(Area::Rdma, "differs.hcas", "RDMA devices", Some(names).filter(|_| !node.partial));
    for device in &node.rdma {
        add(Area::Rdma, "differs.firmware", &format!("firmware of {}", device.name), device.firmware.clone());
        for port in &device.ports {
            let of = |what: &str| format!("{what} of {}/{}", device.name, port.port);
            add(
                Area::Rdma,
                "differs.port-state",
                &of("state"),
                Some(port.state.clone()).filter(|state| !state.is_empty()),
            );
            let told = |value: Option<String>| value.filter(|_| port.state == "ACTIVE");
            add(Area::Rdma, "differs.port", &of("link layer"), told(port.link_layer.map(|layer| format!("{layer:?}"))));
            add(
                Area::Rdma,
                "differs.port-rate",
                &of("rate"),
                told(port.rate_gbps.map(|rate| format!("{rate} Gbit/s"))),
            );
            add(Area::Rdma, "differs.port", &of("active MTU"), told(port.active_mtu.map(|mtu| mtu.to_string())));
            let v2 = port.gids.iter().find(|gid| gid.kind == GidKind::RoceV2 && gid.ipv4().is_some());
            add(Area::Rdma, "differs.gid", &of("RoCE v2 GID index"), told(v2.map(|gid| gid.index.to_string())));
        }
    }
}

fn bound(bound: Bound) -> String {
    match bound {
        Bound::Unlimited => "unlimited".into(),
        Bound::At(value) => value.to_string(),
    }
}

/// Clocks that were looked at together.
fn clocks(nodes: &[NodeFacts]) -> Option<OddOne> {
    let mut times: Vec<(&str, u64)> =
        nodes.iter().filter_map(|node| Some((node.host.as_str(), node.clock.get()?.together_us?))).collect();
    times.sort_by_key(|(_, time)| *time);
    let middle = times.get(times.len() / 2)?.1;
    let apart: Vec<(String, String)> = times
        .iter()
        .filter(|(_, time)| time.abs_diff(middle) > CLOCKS_APART_US)
        .map(|(host, time)| {
            let seconds = time.abs_diff(middle) as f64 / 1e6;
            ((*host).to_owned(), format!("{seconds:.1} s {}", if *time > middle { "ahead" } else { "behind" }))
        })
        .collect();
    (!apart.is_empty()).then(|| OddOne {
        area: Area::Clock,
        item: "time".into(),
        majority: Some("within a second of each other".into()),
        differ: apart,
        remedy: "Times in the logs of these nodes cannot be compared: `sudo systemctl enable --now chronyd`".into(),
        fails: false,
        code: None,
    })
}
