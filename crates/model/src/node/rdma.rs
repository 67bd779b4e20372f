//! RDMA devices and their ports.

use super::{NetInterface, PciFunction};
use crate::host::LinkLayer;
use serde::{Deserialize, Serialize};

/// An RDMA device (HCA).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaDevice {
    /// `mlx5_0`.
    pub name: String,
    /// Where it is on PCIe; none for software devices such as rxe.
    pub pci: Option<PciFunction>,
    /// `28.39.2048`.
    pub firmware: Option<String>,
    /// The kernel's driver: `mlx5_core`.
    pub driver: Option<String>,
    /// Version of the driver's module, where it is not the kernel's own: `24.04-0.7.0`.
    pub driver_version: Option<String>,
    /// `MT4129` or a name of the vendor's.
    pub hca_type: Option<String>,
    /// The board's id (PSID): cards with one chip are sold as different boards, each with its own firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// GUID of the system image, which the functions of a card share; its hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_guid: Option<String>,
    /// `node1 mlx5_0`.
    pub description: Option<String>,
    /// Its ports.
    pub ports: Vec<RdmaPort>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPort {
    /// From 1.
    pub port: u32,
    /// Logical state: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// Physical state: `LinkUp`, `Polling`, `Disabled`.
    pub physical_state: Option<String>,
    /// What the NIC's firmware says is wrong with the link: `Cable is unplugged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// InfiniBand or Ethernet.
    pub link_layer: Option<LinkLayer>,
    /// Rate in Gbit/s, as the kernel prints it: `400 Gb/sec (4X NDR)` is 400.
    pub rate_gbps: Option<f64>,
    /// MTU in bytes that the port uses.
    pub active_mtu: Option<u32>,
    /// The largest MTU that it could use.
    pub max_mtu: Option<u32>,
    /// Entries of the GID table that are not empty.
    pub gids: Vec<Gid>,
    /// The traffic class that the driver puts on every connection (`/sys/class/infiniband/*/tc/*/traffic_class`).
    pub traffic_class: Option<u32>,
    /// Type of service of connections made through RDMA's connection manager (`default_roce_tos`).
    pub roce_tos: Option<u32>,
}

impl RdmaPort {
    /// The network interface of the port, by its GIDs.
    pub fn interface(&self) -> Option<&str> {
        self.gids.iter().find_map(|gid| gid.interface.as_deref())
    }

    /// What is known of the settings that keep RoCE lossless, of the port and its interface. Empty where nothing is.
    pub fn quality_of_service(&self, interface: Option<&NetInterface>) -> Vec<String> {
        let mut told = interface.map(NetInterface::quality_of_service).unwrap_or_default();
        told.extend(self.traffic_class.map(|class| format!("traffic class {class} (DSCP {})", class >> 2)));
        told.extend(self.roce_tos.map(|tos| format!("default ToS {tos} (DSCP {})", tos >> 2)));
        told
    }
}

/// What NCCL_IB_HCA says: names of devices, some with a port (`mlx5_0:1`). They are beginnings of names; behind `=` they are whole names,
/// and behind `^` they are left out (`ncclIbInitDevices` in src/transport/net_ib, `matchIfList` in src/misc/utils.cc, NCCL 2.4 to 2.30).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HcaList<'a> {
    /// Names, and ports where they are given.
    pub names: Vec<(&'a str, Option<u32>)>,
    /// Names are whole names.
    pub exact: bool,
    /// Names are left out.
    pub excludes: bool,
}

impl<'a> HcaList<'a> {
    /// Reads the variable's value.
    pub fn parse(value: &'a str) -> Self {
        let value = value.trim();
        let (excludes, value) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
        let (exact, value) = value.strip_prefix('=').map_or((false, value), |rest| (true, rest));
        let name = |name: &'a str| match name.split_once(':') {
            Some((device, port)) => (device, port.parse().ok()),
            None => (name, None),
        };
        let names = value.split(',').map(|part| name(part.trim())).filter(|(device, _)| !device.is_empty());
        HcaList { names: names.collect(), exact, excludes }
    }

    /// How many devices it names one by one: `mlx5_0:1,mlx5_2:1`, not by beginnings such as `mlx5`.
    pub fn devices(&self) -> Option<usize> {
        let is_whole = |(device, _): &(&str, Option<u32>)| {
            let number = device.rsplit_once('_').map_or("", |(_, number)| number);
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        };
        (!self.excludes && !self.names.is_empty() && self.names.iter().all(is_whole)).then_some(self.names.len())
    }

    /// Whether one of the names is that of a device.
    pub fn is_of(&self, name: &str, device: &str) -> bool {
        if self.exact { device == name } else { device.starts_with(name) }
    }

    /// Whether NCCL uses a device's port; any of its ports where none is given.
    pub fn takes(&self, device: &str, port: Option<u32>) -> bool {
        let is_its = |wanted: &Option<u32>| wanted.is_none() || port.is_none() || *wanted == port;
        let named =
            self.names.is_empty() || self.names.iter().any(|(name, wanted)| self.is_of(name, device) && is_its(wanted));
        named != self.excludes
    }
}

/// An entry of a port's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    /// Its index: NCCL_IB_GID_INDEX.
    pub index: u32,
    /// As the kernel writes it: `0000:0000:0000:0000:0000:ffff:0a00:0001`.
    pub gid: String,
    /// Its type.
    pub kind: GidKind,
    /// The network interface that it belongs to.
    pub interface: Option<String>,
}

impl Gid {
    /// Whether it is made of an address that no router passes on (`fe80::…`).
    pub fn is_link_local(&self) -> bool {
        self.gid.starts_with("fe80:")
    }

    /// The IPv4 address inside it (`::ffff:a.b.c.d`).
    pub fn ipv4(&self) -> Option<std::net::Ipv4Addr> {
        self.gid.parse::<std::net::Ipv6Addr>().ok()?.to_ipv4_mapped()
    }
}

/// What a GID is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GidKind {
    /// InfiniBand, or RoCE v1, which the kernel calls by one name (`IB/RoCE v1`).
    #[serde(rename = "ib-or-roce-v1")]
    IbOrRoceV1,
    /// RoCE v2: over UDP, routable.
    #[serde(rename = "roce-v2")]
    RoceV2,
}

#[cfg(test)]
mod tests {
    use super::HcaList;

    #[test]
    fn devices_are_taken_as_nccl_takes_them() {
        for (value, taken) in [
            ("mlx5_1", &["mlx5_1", "mlx5_10"][..]),
            ("=mlx5_1", &["mlx5_1"]),
            ("mlx5_1:1", &["mlx5_1", "mlx5_10"]),
            ("mlx5_1:2", &[]),
            ("^mlx5_1", &["mlx5_0", "bnxt_re0"]),
            ("^=mlx5_1,bnxt", &["mlx5_0", "mlx5_10", "bnxt_re0"]),
            ("mlx5, bnxt_re0", &["mlx5_0", "mlx5_1", "mlx5_10", "bnxt_re0"]),
            ("", &["mlx5_0", "mlx5_1", "mlx5_10", "bnxt_re0"]),
        ] {
            let list = HcaList::parse(value);
            let devices = ["mlx5_0", "mlx5_1", "mlx5_10", "bnxt_re0"];
            let shown: Vec<&str> = devices.into_iter().filter(|device| list.takes(device, Some(1))).collect();
            assert_eq!(shown, taken, "{value}");
        }
    }
}
