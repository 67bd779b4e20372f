//! What a sample tells beside the one before it: rates, loads, alerts. Every view shows this.

use crate::known::Quantity;
use crate::time::rfc3339;
use busbw_model::{Code, Severity};
use busbw_probe::counters::{GpuCounters, Job, QueuePairs};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One sample, told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moment {
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// How long after the one before; none for the first.
    pub interval_us: Option<u64>,
    /// Ports of RDMA devices, each followed by its interface and the members of its bond, then other interfaces.
    pub rows: Vec<Row>,
    pub host: HostLoad,
    /// GPUs, in the driver's order.
    pub gpus: Vec<GpuCounters>,
    pub owners: Vec<Owner>,
    /// Programs that move data on purpose.
    pub jobs: Vec<Job>,
    pub alerts: Vec<Alert>,
}

/// What counters belong to: a port, an interface, or the host itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    Port {
        /// `mlx5_0`.
        device: String,
        /// From 1.
        port: u32,
    },
    Interface(String),
    Host,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Port { device, port } => f.pad(&format!("{device}/{port}")),
            Device::Interface(name) => f.pad(name),
            Device::Host => f.pad("host"),
        }
    }
}

/// A port or an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub device: Device,
    /// The row that it is shown below: the RDMA port of an interface, or the bond of a member.
    pub below: Option<Device>,
    /// The bond that it is a member of.
    pub member_of: Option<String>,
    /// `ACTIVE`, `up` …
    pub state: String,
    /// The rate of the link in Gbit/s.
    pub link_gbit_s: Option<f64>,
    /// What it does per second, as far as it counts.
    pub rates: BTreeMap<Quantity, f64>,
    /// The interface whose bytes stand for those of a port that does not count bytes (Soft-RoCE).
    pub bytes_of: Option<String>,
    pub queue_pairs: u32,
    pub counters: Vec<Moved>,
}

impl Row {
    /// Gbit/s sent; for a member of a bond, what went over its wire.
    pub fn tx_gbit_s(&self) -> Option<f64> {
        self.gbit_s(Quantity::WireTxBytes, Quantity::TxBytes)
    }

    /// Gbit/s received; for a member of a bond, what came over its wire.
    pub fn rx_gbit_s(&self) -> Option<f64> {
        self.gbit_s(Quantity::WireRxBytes, Quantity::RxBytes)
    }

    fn gbit_s(&self, wire: Quantity, bytes: Quantity) -> Option<f64> {
        let wire = self.rates.get(&wire).filter(|_| self.member_of.is_some());
        wire.or_else(|| self.rates.get(&bytes)).map(|bytes| bytes * 8.0 / 1e9)
    }

    /// A rate per second.
    pub fn rate(&self, quantity: Quantity) -> Option<f64> {
        self.rates.get(&quantity).copied()
    }

    /// Whether it is a port of an RDMA device.
    pub fn is_rdma(&self) -> bool {
        matches!(self.device, Device::Port { .. })
    }

    /// Whether its link is up. A virtual interface does not know.
    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "ACTIVE" | "up" | "unknown")
    }
}

/// A counter and how it moved.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Moved {
    /// As the kernel or the driver calls it.
    pub name: Arc<str>,
    /// What it shows.
    pub value: u64,
    /// How much more than before; none where that is not known, as after a reset.
    pub moved: Option<u64>,
    /// The same per second.
    pub per_second: Option<f64>,
}

/// The load of the host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct HostLoad {
    /// Its name.
    pub name: String,
    /// Share of all cores that work, in percent.
    pub cpu_pct: Option<f64>,
    /// Cores.
    pub cores: u32,
    /// Memory, as `/proc/meminfo` has it.
    pub memory_total_kib: u64,
    /// What no one uses.
    pub memory_free_kib: u64,
    /// What programs could get.
    pub memory_available_kib: u64,
    /// TCP segments retransmitted, per second.
    pub tcp_retransmitted_per_second: Option<f64>,
    /// The share of segments that TCP retransmitted, in percent.
    pub tcp_retransmitted_pct: Option<f64>,
    /// Every counter of TCP.
    pub counters: Vec<Moved>,
}

/// A counter that moved and should not.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Alert {
    /// The port, interface, or host.
    #[serde(rename = "place", serialize_with = "in_words")]
    #[schemars(with = "String")]
    pub device: Device,
    /// Which counter.
    pub counter: String,
    /// What it counts.
    pub what: String,
    /// The finding's code, as of busbw explain.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// What it means.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
    /// When it began.
    #[serde(rename = "since", serialize_with = "as_time")]
    #[schemars(with = "String")]
    pub since_us: u64,
    /// When it moved last.
    #[serde(rename = "last", serialize_with = "as_time")]
    #[schemars(with = "String")]
    pub last_us: u64,
    /// By how much in all.
    pub moved: u64,
    /// By how much per second at last.
    pub per_second: f64,
}

fn in_words<S: Serializer>(device: &Device, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(device)
}

/// Of microseconds since 1970.
fn as_time<S: Serializer>(time_us: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&rfc3339(*time_us))
}

/// What an alert is about, whenever it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Raised {
    pub device: Device,
    pub counter: String,
    pub code: Code,
    pub severity: Severity,
}

/// An owner of queue pairs, with its load.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    pub queue_pairs: QueuePairs,
    /// Processor time in percent of one core; none for the kernel and in the first sample.
    pub cpu_pct: Option<f64>,
}
