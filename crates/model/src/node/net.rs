//! Network interfaces.

use super::PciFunction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetInterface {
    /// `eth0`.
    pub name: String,
    /// The kernel's word: `up`, `down`, `unknown`, `lowerlayerdown`.
    pub state: String,
    /// Whether it is made of software (bridge, veth, tunnel) rather than a card.
    pub software: bool,
    /// The bond or bridge that it is a part of.
    pub master: Option<String>,
    /// Mbit/s; none if the driver does not say.
    pub speed_mbps: Option<u64>,
    /// `full`, `half`; none if the driver does not say.
    pub duplex: Option<String>,
    /// Bytes.
    pub mtu: Option<u32>,
    /// The kernel's driver.
    pub driver: Option<String>,
    /// Firmware.
    pub firmware: Option<String>,
    /// Queues that receive.
    pub rx_queues: u32,
    /// Queues that send.
    pub tx_queues: u32,
    /// Sizes of its rings.
    pub rings: Option<Rings>,
    /// Addresses with the length of the prefix: `10.0.0.1/24`.
    pub addresses: Vec<String>,
    /// Where it is on PCIe.
    pub pci: Option<PciFunction>,
    /// How it distinguishes priorities (`dscp`, `pcp`), where the driver shows it.
    pub trust: Option<String>,
    /// Priorities with congestion marks (ECN) switched on for RoCE; none where the driver does not show it.
    pub ecn_priorities: Option<Vec<u32>>,
    /// Priorities with flow control (PFC) switched on; none where it could not be had.
    pub pfc_priorities: Option<Vec<u32>>,
    /// The port of an RDMA device that it belongs to, where a command joins them: `mlx5_0/1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<String>,
    /// Counters of its driver, as `ethtool -S` names them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, NicCounter>,
}

impl NetInterface {
    /// What is known of the settings that keep RoCE lossless: `trust dscp`, `PFC on priorities 3`. Empty where nothing is.
    pub fn quality_of_service(&self) -> Vec<String> {
        let on = |name: &str, priorities: &[u32]| match priorities {
            [] => format!("{name} off"),
            on => format!("{name} on priorities {}", on.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
        };
        let told = [
            self.trust.as_ref().map(|trust| format!("trust {trust}")),
            self.pfc_priorities.as_ref().map(|priorities| on("PFC", priorities)),
            self.ecn_priorities.as_ref().map(|priorities| on("ECN", priorities)),
        ];
        told.into_iter().flatten().collect()
    }
}

/// A counter of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NicCounter {
    /// Its count since the driver was loaded.
    pub count: u64,
    /// By how much it rose between two looks; none where it was looked at once.
    pub rise: Option<u64>,
}

/// Sizes of the rings between driver and card, in packets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rings {
    /// Receiving.
    pub rx: u32,
    /// The most that it could be.
    pub rx_most: u32,
    /// Sending.
    pub tx: u32,
    /// The most that it could be.
    pub tx_most: u32,
}
