//! RDMA devices, from `/sys/class/infiniband` (Documentation/ABI/stable/sysfs-class-infiniband in the kernel's sources).

use super::{pci, verbs};
use crate::Root;
use busbw_model::LinkLayer;
use busbw_model::node::{Gid, GidKind, NetInterface, RdmaDevice, RdmaPort};

const CLASS: &str = "/sys/class/infiniband";
/// What RoCE v2 puts around a payload of an InfiniBand MTU: GRH or IP 40, UDP 8, BTH 12, extended headers 28, CRC 4
/// (`iboe_get_mtu` in the kernel's include/rdma/ib_addr.h).
const ROCE_HEADERS: u32 = 92;
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

pub(super) fn collect(root: &Root, interfaces: &[NetInterface]) -> Vec<RdmaDevice> {
    let mut devices: Vec<RdmaDevice> = root.list(CLASS).into_iter().map(|name| device(root, name)).collect();
    let asked = if root.is_live() && !devices.is_empty() { verbs::mtus() } else { Vec::new() };
    for device in &mut devices {
        for port in &mut device.ports {
            let answer = asked.iter().find(|mtu| mtu.device == device.name && mtu.port == port.port);
            match answer {
                Some(mtu) => (port.active_mtu, port.max_mtu) = (Some(mtu.active), Some(mtu.most)),
                None => port.active_mtu = roce_mtu(port, interfaces),
            }
        }
    }
    devices
}

fn device(root: &Root, name: String) -> RdmaDevice {
    let at = |file: &str| format!("{CLASS}/{name}/{file}");
    let driver = root.link_name(&at("device/driver"));
    let ports = root.list(&at("ports")).into_iter().filter_map(|port| port.parse().ok());
    RdmaDevice {
        pci: pci::function(root, &at("device")),
        firmware: root.value(&at("fw_ver")),
        driver_version: driver.as_ref().and_then(|driver| root.value(&format!("/sys/module/{driver}/version"))),
        hca_type: root.value(&at("hca_type")),
        board: root.value(&at("board_id")),
        system_guid: root.value(&at("sys_image_guid")).map(|guid| guid.replace(':', "")),
        description: root.value(&at("node_desc")),
        ports: ports.map(|number| port(root, &name, number)).collect(),
        driver,
        name,
    }
}

pub(super) fn port(root: &Root, device: &str, number: u32) -> RdmaPort {
    let at = |file: &str| format!("{CLASS}/{device}/ports/{number}/{file}");
    let word = |file: &str| root.value(&at(file)).map(|text| behind_number(&text).to_owned());
    RdmaPort {
        port: number,
        state: word("state").unwrap_or_else(|| "unknown".into()),
        physical_state: word("phys_state"),
        trouble: None,
        link_layer: root.value(&at("link_layer")).and_then(|name| link_layer(&name)),
        rate_gbps: root.value(&at("rate")).and_then(|rate| rate.split(' ').next()?.parse().ok()),
        active_mtu: None,
        max_mtu: None,
        gids: root.list(&at("gids")).iter().filter_map(|index| gid(root, &at(""), index)).collect(),
        traffic_class: root.value(&format!("{CLASS}/{device}/tc/{number}/traffic_class")).and_then(|text| {
            // `Global tclass=106`, as MLNX_OFED's mlx5_core writes it.
            text.rsplit('=').next()?.trim().parse().ok()
        }),
        roce_tos: root.number(&format!("/sys/kernel/config/rdma_cm/{device}/ports/{number}/default_roce_tos")),
    }
}

/// `4: ACTIVE` is `ACTIVE`.
fn behind_number(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, word)| word)
}

fn link_layer(name: &str) -> Option<LinkLayer> {
    match name {
        "InfiniBand" => Some(LinkLayer::InfiniBand),
        "Ethernet" => Some(LinkLayer::Ethernet),
        _ => None,
    }
}

/// An entry of the table; most are empty.
fn gid(root: &Root, port: &str, index: &str) -> Option<Gid> {
    let gid =
        root.value(&format!("{port}gids/{index}")).filter(|gid| gid.bytes().any(|b| !matches!(b, b'0' | b':')))?;
    let kind = match root.value(&format!("{port}gid_attrs/types/{index}")).as_deref() {
        Some("RoCE v2") => GidKind::RoceV2,
        _ => GidKind::IbOrRoceV1,
    };
    let interface = root.value(&format!("{port}gid_attrs/ndevs/{index}"));
    Some(Gid { index: index.parse().ok()?, gid, kind, interface })
}

/// The MTU that a RoCE port has by its interface's, where the verbs library could not be asked.
fn roce_mtu(port: &RdmaPort, interfaces: &[NetInterface]) -> Option<u32> {
    let interface = interfaces.iter().find(|interface| Some(interface.name.as_str()) == port.interface())?;
    let room = interface.mtu.filter(|_| port.link_layer == Some(LinkLayer::Ethernet))?.checked_sub(ROCE_HEADERS)?;
    MTUS.into_iter().find(|mtu| *mtu <= room)
}
