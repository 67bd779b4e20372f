//! RDMA devices and their ports.

use super::sheet::{Sheet, listed};
use busbw_model::node::{GidKind, NetInterface, RdmaDevice, RdmaPort};
use busbw_model::{Code, LinkLayer, NodeFacts};

/// The largest MTU of InfiniBand and RoCE.
const LARGEST_MTU: u32 = 4096;
/// Kernels from this one on let NICs reach GPU memory by dma-buf (5.12; NCCL's documentation asks for it as well).
const DMA_BUF_SINCE: (u32, u32) = (5, 12);

/// A device and one of its ports.
type Port<'a> = (&'a RdmaDevice, &'a RdmaPort);

pub(super) fn check(node: &NodeFacts, sheet: &mut Sheet) {
    if node.rdma.is_empty() {
        return sheet
            .skip("devices", "no RDMA device (/sys/class/infiniband is empty): NCCL uses TCP sockets between nodes");
    }
    let names: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    sheet.ok("devices", format!("{}: {}", names.len(), listed(&names)));
    let ports: Vec<Port> =
        node.rdma.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))).collect();
    for port in &ports {
        state(*port, &ports, sheet);
        if is_active(port.1) {
            rate(*port, &ports, sheet);
            mtu(node, *port, sheet);
            gid(node, *port, sheet);
        }
    }
    chosen(node, sheet);
    firmware(&node.rdma, sheet);
    driver(&node.rdma, sheet);
    gpu_direct(node, sheet);
    quality_of_service(node, &ports, sheet);
}

fn name((device, port): Port) -> String {
    format!("{}/{}", device.name, port.port)
}

fn is_active(port: &RdmaPort) -> bool {
    port.state == "ACTIVE"
}

fn link_layer(port: &RdmaPort) -> &'static str {
    match port.link_layer {
        Some(LinkLayer::InfiniBand) => "InfiniBand",
        Some(LinkLayer::Ethernet) => "Ethernet (RoCE)",
        None => "unknown link layer",
    }
}

/// A port that is down fails the node when others of its kind carry traffic or when it is the only one; the second port of a
/// card is often left free.
fn state(at: Port, all: &[Port], sheet: &mut Sheet) {
    let (device, port) = at;
    let physical = port.physical_state.as_deref().map_or(String::new(), |state| format!(", {state}"));
    let detail = format!("{}: {}{physical}, {}", name(at), port.state, link_layer(port));
    if is_active(port) {
        return sheet.ok("port state", detail);
    }
    let is_spare = all.iter().any(|(other, p)| other.name == device.name && p.port != port.port && is_active(p));
    let like = all.iter().any(|(other, p)| is_active(p) && other.hca_type == device.hca_type);
    let remedy = remedy_of_state(at);
    if !is_spare && (like || !all.iter().any(|(_, p)| is_active(p))) {
        sheet.fail("port state", detail, Some(Code::IbTransportError), remedy);
    } else {
        sheet.warn(
            "port state",
            detail,
            Some(Code::IbTransportError),
            format!("{remedy}. If it is meant to be unused, leave it out: `export NCCL_IB_HCA=^{}`", device.name),
        );
    }
}

fn remedy_of_state((device, port): Port) -> String {
    match port.interface() {
        _ if port.state == "INIT" || port.state == "ARMED" => {
            "The cable is in and no subnet manager has set the port up: see that one runs: `sudo sminfo; systemctl status opensm`".into()
        }
        Some(interface) => format!("Bring its interface up and see cable and switch port: `sudo ip link set {interface} up; ethtool {interface}`"),
        None => format!("See cable, transceiver and switch port: `sudo mlxlink -d {} -p {} -m -c`", device.name, port.port),
    }
}

/// Ports of one kind of card should be equally fast, and none slower than it could be.
fn rate(at: Port, all: &[Port], sheet: &mut Sheet) {
    let (device, port) = at;
    let Some(rate) = port.rate_gbps else {
        return sheet.skip("rate", format!("{}: the driver does not tell", name(at)));
    };
    let likes = all.iter().filter(|(other, p)| other.hca_type == device.hca_type && is_active(p));
    let best = likes.filter_map(|(_, p)| p.rate_gbps).chain(port.most_gbps).fold(rate, f64::max);
    let detail = format!("{}: {rate} Gbit/s", name(at));
    if rate < best {
        let remedy = format!(
            "A cable, transceiver or switch port of an older generation, or lanes that did not come up: `sudo mlxlink -d {} -m -c`; until then leave it out: `export NCCL_IB_HCA=^{}`",
            device.name, device.name
        );
        sheet.fail("rate", format!("{detail} of {best}"), Some(Code::NicRate), remedy);
    } else {
        sheet.ok("rate", detail);
    }
}

fn mtu(node: &NodeFacts, at: Port, sheet: &mut Sheet) {
    let (_, port) = at;
    let Some(active) = port.active_mtu else {
        return sheet.skip("active MTU", format!("{}: neither libibverbs nor an interface tells", name(at)));
    };
    let most = port.max_mtu.unwrap_or(LARGEST_MTU);
    let interface = node.interfaces.iter().find(|interface| Some(interface.name.as_str()) == port.interface());
    let carried = interface.and_then(|i| Some(format!(", {} has {}", i.name, i.mtu?))).unwrap_or_default();
    let detail = format!("{}: {active}{carried}", name(at));
    if active >= most {
        return sheet.ok("active MTU", detail);
    }
    let remedy = match interface {
        Some(NetInterface { name, .. }) => format!(
            "Small packets cost rate. Set 9000 on all hosts and on every switch port between them (4096 and headers need 4200): `sudo ip link set {name} mtu 9000`"
        ),
        None => "Set the MTU of the subnet manager's partition to 4096: `mtu=5` in its partitions.conf".into(),
    };
    sheet.warn("active MTU", format!("{detail}, {most} is possible"), Some(Code::RoceConfig), remedy);
}

/// NCCL takes the first GID of RoCE v2 of the address family that it prefers, unless NCCL_IB_GID_INDEX says which.
fn gid(node: &NodeFacts, at: Port, sheet: &mut Sheet) {
    const ITEM: &str = "RoCE v2 GID";
    let (_, port) = at;
    if port.link_layer != Some(LinkLayer::Ethernet) {
        return;
    }
    let of_v2 = || port.gids.iter().filter(|gid| gid.kind == GidKind::RoceV2);
    let asked = node.environment.get("NCCL_IB_GID_INDEX").and_then(|index| index.trim().parse::<i64>().ok());
    if let Some(index) = asked.filter(|index| *index >= 0) {
        let chosen = port.gids.iter().find(|gid| i64::from(gid.index) == index);
        let what = match chosen {
            Some(gid) if gid.kind == GidKind::RoceV2 => {
                return sheet.ok(ITEM, format!("{}: index {index}, as NCCL_IB_GID_INDEX says", name(at)));
            }
            Some(_) => "is RoCE v1",
            None => "is empty",
        };
        let right = of_v2().find(|gid| gid.ipv4().is_some()).or_else(|| of_v2().next());
        let remedy =
            right.map_or("unset NCCL_IB_GID_INDEX".to_owned(), |gid| format!("export NCCL_IB_GID_INDEX={}", gid.index));
        let remedy = format!(
            "Choose the entry of RoCE v2 with the interface's address, or leave the choice to NCCL: `{remedy}`"
        );
        return sheet.fail(
            ITEM,
            format!("{}: NCCL_IB_GID_INDEX={index} {what}", name(at)),
            Some(Code::RoceConfig),
            remedy,
        );
    }
    if let Some((gid, address)) = of_v2().find_map(|gid| Some((gid, gid.ipv4()?))) {
        return sheet.ok(ITEM, format!("{}: index {} ({address})", name(at), gid.index));
    }
    let interface = port.interface().unwrap_or("eth0");
    let remedy = format!(
        "Give the interface an IPv4 address, from which the entry is made: `sudo ip address add 10.0.0.1/24 dev {interface}; show_gids`"
    );
    match of_v2().next() {
        Some(gid) if !gid.gid.starts_with("fe80:") => {
            sheet.ok(ITEM, format!("{}: index {} ({})", name(at), gid.index, gid.gid))
        }
        Some(gid) => sheet.warn(
            ITEM,
            format!("{}: index {} is link-local only", name(at), gid.index),
            Some(Code::RoceConfig),
            remedy,
        ),
        None => sheet.fail(ITEM, format!("{}: none", name(at)), Some(Code::RoceConfig), remedy),
    }
}

/// NCCL_IB_HCA may name devices that are not there.
fn chosen(node: &NodeFacts, sheet: &mut Sheet) {
    let Some(list) = node.environment.get("NCCL_IB_HCA").filter(|list| !list.starts_with('^')) else { return };
    let exact = list.starts_with('=');
    let is_there = |name: &str| node.rdma.iter().any(|d| if exact { d.name == name } else { d.name.starts_with(name) });
    let names = list.trim_start_matches('=').split(',').map(|name| name.split(':').next().unwrap_or_default());
    let absent: Vec<&str> = names.filter(|name| !name.is_empty() && !is_there(name)).collect();
    if absent.is_empty() {
        return sheet.ok("NCCL_IB_HCA", list);
    }
    let there: Vec<&str> = node.rdma.iter().map(|device| device.name.as_str()).collect();
    let remedy = format!("Name devices that are there: {}; or `unset NCCL_IB_HCA`", listed(&there));
    sheet.fail("NCCL_IB_HCA", format!("{list}: no {}", listed(&absent)), Some(Code::NetSocketFallback), remedy);
}

/// Firmware of each kind of card; equal cards should have equal firmware.
fn firmware(devices: &[RdmaDevice], sheet: &mut Sheet) {
    let mut kinds: Vec<Option<&str>> = devices.iter().map(|device| device.hca_type.as_deref()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let alike: Vec<&RdmaDevice> = devices.iter().filter(|device| device.hca_type.as_deref() == kind).collect();
        let mut versions: Vec<&str> = alike.iter().filter_map(|device| device.firmware.as_deref()).collect();
        versions.sort_unstable();
        versions.dedup();
        let named = kind.map_or(String::new(), |kind| format!("{kind}: "));
        match versions.as_slice() {
            [] => {}
            [one] => sheet.ok("firmware", format!("{named}{one}")),
            _ => {
                let each: Vec<String> =
                    alike.iter().map(|d| format!("{} {}", d.name, d.firmware.as_deref().unwrap_or("?"))).collect();
                let remedy = "Bring equal cards to one firmware: `sudo mlxfwmanager --online -u`";
                sheet.warn("firmware", format!("{named}{}", listed(&each)), Some(Code::VersionMismatch), remedy);
            }
        }
    }
}

fn driver(devices: &[RdmaDevice], sheet: &mut Sheet) {
    let mut drivers: Vec<String> = devices
        .iter()
        .filter_map(|device| {
            let version = device.driver_version.as_deref().unwrap_or("of the kernel");
            Some(format!("{} {version}", device.driver.as_deref()?))
        })
        .collect();
    drivers.sort_unstable();
    drivers.dedup();
    if !drivers.is_empty() {
        sheet.ok("driver", listed(&drivers));
    }
}

/// How NICs reach GPU memory: by a peer memory module, or by dma-buf of the open driver and a new kernel.
fn gpu_direct(node: &NodeFacts, sheet: &mut Sheet) {
    const ITEM: &str = "GPUDirect RDMA";
    if node.gpu.devices.is_empty() {
        return sheet.skip(ITEM, "no GPU");
    }
    let modules = match &node.modules {
        busbw_model::node::Known::Known(modules) => modules,
        busbw_model::node::Known::Unknown(why) => return sheet.skip(ITEM, why),
    };
    if let Some(module) = modules.iter().find(|module| ["nvidia_peermem", "nv_peer_mem"].contains(&module.as_str())) {
        return sheet.ok(ITEM, format!("{module} is loaded"));
    }
    let kernel = node.kernel.as_deref().and_then(release);
    if node.gpu.open_module == Some(true) && kernel.is_some_and(|kernel| kernel >= DMA_BUF_SINCE) {
        return sheet.ok(ITEM, "by dma-buf: open kernel module of the driver, and a kernel that has it");
    }
    let remedy = "Load the module that joins driver and NICs, now and at boot: `sudo modprobe nvidia-peermem; echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf`";
    sheet.fail(ITEM, "neither nvidia_peermem nor dma-buf", Some(Code::GdrDisabled), remedy);
}

/// `5.15.0-107-generic` is 5.15.
fn release(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What sysfs shows of the settings that keep RoCE lossless. Only some drivers show them.
fn quality_of_service(node: &NodeFacts, ports: &[Port], sheet: &mut Sheet) {
    for at in ports.iter().filter(|(_, port)| is_active(port) && port.link_layer == Some(LinkLayer::Ethernet)) {
        let (_, port) = *at;
        let interface = node.interfaces.iter().find(|interface| Some(interface.name.as_str()) == port.interface());
        let numbers = |numbers: &Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let told: Vec<String> = [
            interface.and_then(|i| i.trust.as_ref()).map(|trust| format!("trust {trust}")),
            interface.and_then(|i| i.pfc_priorities.as_ref()).map(|on| format!("PFC on priorities {}", numbers(on))),
            interface.and_then(|i| i.ecn_priorities.as_ref()).map(|on| format!("ECN on priorities {}", numbers(on))),
            port.traffic_class.map(|class| format!("traffic class {class} (DSCP {})", class >> 2)),
            port.roce_tos.map(|tos| format!("default ToS {tos} (DSCP {})", tos >> 2)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if told.is_empty() {
            sheet.skip(
                "QoS",
                format!(
                    "{}: its driver shows none in sysfs; `mlnx_qos -i {}` does",
                    name(*at),
                    port.interface().unwrap_or("IFACE")
                ),
            );
        } else {
            sheet.ok("QoS", format!("{}: {}", name(*at), told.join(", ")));
        }
    }
}
