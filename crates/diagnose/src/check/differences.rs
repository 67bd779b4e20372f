//! What should be equal on all nodes and is not: the odd one out.

use super::net::{is_outward, is_up};
use busbw_model::node::{Bound, GidKind, Known};
use busbw_model::{Area, Code, NodeFacts, OddOne};
use std::collections::BTreeMap;

/// A thing to compare, and what it means when it differs.
struct Kind {
    area: Area,
    fails: bool,
    code: Code,
    remedy: &'static str,
}

const fn kind((area, fails, code): (Area, bool, Code), remedy: &'static str) -> Kind {
    Kind { area, fails, code, remedy }
}

/// A thing of a node and its value.
struct Trait {
    kind: &'static Kind,
    item: String,
    value: String,
}

static GPUS: Kind = kind(
    (Area::Gpu, true, Code::GpuError),
    "Nodes of a job need the same number and kind of GPUs: leave the odd node out until it is repaired",
);
static DRIVER: Kind = kind((Area::Gpu, false, Code::VersionMismatch), "Install one version of the driver on all nodes");
static NCCL: Kind = kind(
    (Area::Cuda, true, Code::VersionMismatch),
    "All ranks must load the same NCCL: install one version everywhere, or share one: `export LD_LIBRARY_PATH=/shared/nccl/lib:$LD_LIBRARY_PATH`",
);
static HCAS: Kind = kind(
    (Area::Rdma, true, Code::NicUnused),
    "NCCL joins rails by the NICs' order: every node needs the same devices, up and with the same names, or the same choice: `export NCCL_IB_HCA=mlx5_0,mlx5_1`",
);
static PORT_STATE: Kind = kind(
    (Area::Rdma, true, Code::IbTransportError),
    "A rail works where it works on all nodes: see cable and switch port of the odd one: `sudo mlxlink -d DEVICE -m -c`",
);
static PORT_RATE: Kind = kind(
    (Area::Rdma, true, Code::NicRate),
    "The slowest node sets the pace of all: see cable, transceiver and switch port: `sudo mlxlink -d DEVICE -m -c`",
);
static PORT: Kind = kind((Area::Rdma, true, Code::RoceConfig), "Set the odd node's port as the others' are");
static GID: Kind = kind(
    (Area::Rdma, false, Code::RoceConfig),
    "One NCCL_IB_GID_INDEX for all nodes will not do: leave the choice to NCCL (2.21 and later): `unset NCCL_IB_GID_INDEX`",
);
static FIRMWARE: Kind = kind(
    (Area::Rdma, false, Code::VersionMismatch),
    "Bring the cards to one firmware: `sudo mlxfwmanager --online -u`",
);
static MTU: Kind = kind(
    (Area::Net, true, Code::NetUnreachable),
    "Give the interface one MTU on all nodes: large packets to the node with the smaller one are lost without a word: `sudo ip link set IFACE mtu MTU`",
);
static SPEED: Kind = kind(
    (Area::Net, true, Code::NicRate),
    "The slowest node sets the pace of all: see cable and switch port: `ethtool IFACE`",
);
static MEMLOCK: Kind = kind((Area::Limits, false, Code::LimitsMemlock), SAME_LIMITS);
static NOFILE: Kind = kind((Area::Limits, false, Code::LimitsFiles), SAME_LIMITS);
const SAME_LIMITS: &str =
    "Set the same limits on all nodes, in /etc/security/limits.d and in the service that starts jobs";
static MPI: Kind = kind(
    (Area::Mpi, true, Code::MpiLaunch),
    "mpirun starts its own daemon on each node, which must be of the same version: install one everywhere, or name it: `mpirun --prefix /opt/openmpi …`",
);
static VARIABLE: Kind = kind(
    (Area::Environment, true, Code::EnvOverride),
    "Ranks that are set differently choose differently and may hang: hand the variable to all ranks (`mpirun -x NAME`, `srun --export=ALL`) and see /etc/nccl.conf and shell profiles",
);
static SYSTEM: Kind = kind(
    (Area::Clock, false, Code::StragglerNode),
    "Bring the nodes to one kernel and one setting: the odd one is often the slow one",
);

/// Variables that are a process's own.
const OWN: [&str; 3] = ["NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE"];
/// Clocks that are further apart make times of logs worthless.
const CLOCKS_APART_US: u64 = 1_000_000;

pub(crate) fn odd_ones(nodes: &[NodeFacts]) -> Vec<OddOne> {
    if nodes.len() < 2 {
        return Vec::new();
    }
    let traits: Vec<Vec<Trait>> = nodes.iter().map(traits).collect();
    let mut items: Vec<(&'static Kind, &str)> = Vec::new();
    for one in traits.iter().flatten() {
        if !items.iter().any(|(kind, item)| std::ptr::eq(*kind, one.kind) && *item == one.item) {
            items.push((one.kind, &one.item));
        }
    }
    let mut found: Vec<OddOne> = items
        .into_iter()
        .filter_map(|(kind, item)| {
            let value = |of: &Vec<Trait>| of.iter().find(|one| one.item == item).map(|one| one.value.clone());
            let values = nodes.iter().zip(&traits).filter_map(|(node, of)| {
                let absent = || is_told_by_absence(kind).then(|| "none".to_owned());
                Some((node.host.clone(), value(of).or_else(absent)?))
            });
            odd_one(kind, item, values.collect())
        })
        .collect();
    found.extend(clocks(nodes));
    found.sort_by_key(|odd| odd.area);
    found
}

/// An interface or port that a node lacks is told by its own line; a variable that is not set is a difference.
fn is_told_by_absence(kind: &Kind) -> bool {
    std::ptr::eq(kind, &VARIABLE)
}

fn odd_one(kind: &Kind, item: &str, values: Vec<(String, String)>) -> Option<OddOne> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &values {
        *counts.entry(value).or_default() += 1;
    }
    if counts.len() < 2 {
        return None;
    }
    let majority = counts.iter().find(|(_, count)| **count * 2 > values.len()).map(|(value, _)| (*value).to_owned());
    let differ = values.iter().filter(|(_, value)| majority.as_ref() != Some(value)).cloned().collect();
    Some(OddOne {
        area: kind.area,
        item: item.to_owned(),
        majority,
        differ,
        remedy: kind.remedy.to_owned(),
        fails: kind.fails,
        code: Some(kind.code),
    })
}

/// What should be equal of a node. A thing that it does not have or tell is left out.
fn traits(node: &NodeFacts) -> Vec<Trait> {
    let mut found = Vec::new();
    let mut add = |kind: &'static Kind, item: &str, value: Option<String>| {
        found.extend(value.map(|value| Trait { kind, item: item.to_owned(), value }));
    };
    // Commands may show one device of many.
    let count = Some(node.gpu.devices.len().to_string()).filter(|_| !node.partial);
    add(&GPUS, "number of GPUs", count);
    add(&GPUS, "GPUs", node.gpu.devices.first().map(|gpu| gpu.name.clone()));
    add(&DRIVER, "NVIDIA driver", node.gpu.driver.clone());
    add(&NCCL, "NCCL", node.nccl.first().and_then(|library| library.version.clone()));
    add(&SYSTEM, "kernel", node.kernel.clone());
    let governors: Vec<&str> = node.governors.keys().map(String::as_str).collect();
    add(&SYSTEM, "governor", Some(governors.join(" ")).filter(|all| !all.is_empty()));
    for program in node.programs.iter().filter(|program| program.name == "mpirun") {
        add(&MPI, "mpirun", Some(program.version.clone().unwrap_or_else(|| "none".into())));
    }
    if let Known::Known(limits) = &node.limits {
        add(&MEMLOCK, "memlock", Some(bound(limits.locked_memory.soft)).filter(|_| !node.partial));
        add(&NOFILE, "nofile", Some(bound(limits.open_files.hard)).filter(|_| !node.partial));
    }
    let own = |name: &str| !name.starts_with("NCCL_") || OWN.contains(&name);
    for (name, value) in node.environment.iter().filter(|(name, _)| !own(name)) {
        add(&VARIABLE, name, Some(value.clone()));
    }
    rdma(node, &mut add);
    // One that is down is told by its own line, and nothing goes through it.
    for interface in node.interfaces.iter().filter(|interface| is_outward(interface) && is_up(interface)) {
        add(&MTU, &format!("MTU of {}", interface.name), interface.mtu.map(|mtu| mtu.to_string()));
        let speed = interface.speed_mbps.map(|speed| format!("{speed} Mbit/s"));
        add(&SPEED, &format!("speed of {}", interface.name), speed);
    }
    found
}

fn rdma(node: &NodeFacts, add: &mut impl FnMut(&'static Kind, &str, Option<String>)) {
    let names: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(" ") };
    add(&HCAS, "RDMA devices", Some(names).filter(|_| !node.partial));
    for device in &node.rdma {
        add(&FIRMWARE, &format!("firmware of {}", device.name), device.firmware.clone());
        for port in &device.ports {
            let of = |what: &str| format!("{what} of {}/{}", device.name, port.port);
            add(&PORT_STATE, &of("state"), Some(port.state.clone()).filter(|state| !state.is_empty()));
            let told = |value: Option<String>| value.filter(|_| port.state == "ACTIVE");
            add(&PORT, &of("link layer"), told(port.link_layer.map(|layer| format!("{layer:?}"))));
            add(&PORT_RATE, &of("rate"), told(port.rate_gbps.map(|rate| format!("{rate} Gbit/s"))));
            add(&PORT, &of("active MTU"), told(port.active_mtu.map(|mtu| mtu.to_string())));
            let v2 = port.gids.iter().find(|gid| gid.kind == GidKind::RoceV2 && gid.ipv4().is_some());
            add(&GID, &of("RoCE v2 GID index"), told(v2.map(|gid| gid.index.to_string())));
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
