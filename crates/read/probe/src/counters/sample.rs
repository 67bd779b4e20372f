//! The nouns of a sample.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Everything that was counted at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, in microseconds since 1970.
    pub time_us: u64,
    pub ports: Vec<Port>,
    pub interfaces: Vec<Interface>,
    /// What the host as a whole counts.
    pub host: HostCounters,
    /// GPUs, in the driver's order.
    pub gpus: Vec<GpuCounters>,
    /// Queue pairs, by device and owner.
    pub queue_pairs: Vec<QueuePairs>,
    /// Programs that run collectives or link tests on this host.
    pub jobs: Vec<Job>,
}

/// Counters that were read together: names, sorted, with a value each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// When they were read, in microseconds since 1970. Expensive ones are not read for every sample.
    pub time_us: u64,
    /// Names as the kernel or the driver gives them, shared between samples.
    pub names: Arc<[Arc<str>]>,
    /// One value per name.
    pub values: Vec<u64>,
}

impl Counters {
    /// The value of a counter.
    ///
    /// ```
    /// use busbw_probe::counters::Counters;
    /// let counters = Counters { names: ["rx".into(), "tx".into()].into(), values: vec![7, 8], time_us: 0 };
    /// assert_eq!((counters.get("tx"), counters.get("t")), (Some(8), None));
    /// ```
    pub fn get(&self, name: &str) -> Option<u64> {
        let at = self.names.binary_search_by(|known| known.as_ref().cmp(name)).ok()?;
        self.values.get(at).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.names.iter().zip(self.values.iter().copied())
    }
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Port {
    /// `mlx5_0`.
    pub device: String,
    /// From 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN`, `INIT` …, without the number that sysfs puts in front.
    pub state: String,
    /// `LinkUp`, `Disabled`, `Polling` …
    pub physical_state: String,
    /// The rate of the link in Gbit/s.
    pub rate_gbit_s: Option<f64>,
    /// `InfiniBand` or `Ethernet` (RoCE).
    pub link_layer: String,
    /// The network interface of a RoCE port, which is a bond where the device is one.
    pub interface: Option<String>,
    /// Below `counters/` and `hw_counters/`. `port_xmit_data` and `port_rcv_data` count 4-byte words
    /// (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
    pub counters: Counters,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// `up`, `down`, `unknown` …
    pub state: String,
    /// The speed of the link in Gbit/s, where the driver says one.
    pub rate_gbit_s: Option<f64>,
    /// What it has to do with a bond.
    pub bond: Option<Bond>,
    /// Below `statistics/`, and how often the link came and went.
    pub counters: Counters,
    /// What the driver counts beyond that about pauses, priorities and losses (`ethtool -S`).
    pub driver: Counters,
}

/// What an interface has to do with a bond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bond {
    Master,
    Member(String),
}

/// What the host as a whole counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostCounters {
    pub name: String,
    /// Time that the cores spent working and altogether, in ticks of the kernel's clock, over all cores.
    pub cpu_busy_ticks: u64,
    /// Both together with the time spent idle.
    pub cpu_total_ticks: u64,
    /// Cores that are online.
    pub cores: u32,
    /// Memory in KiB, as `/proc/meminfo` has it.
    pub memory_total_kib: u64,
    /// What no one uses.
    pub memory_free_kib: u64,
    /// What programs could get without swapping.
    pub memory_available_kib: u64,
    /// The kernel's counts of TCP: `OutSegs`, `RetransSegs`, `InErrs`, `TCPTimeouts` …
    pub tcp: Counters,
}

/// A GPU. What it does not tell is `None`; of one that does not answer nothing is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Gpu")]
pub struct GpuCounters {
    /// `NVIDIA H100 80GB HBM3`; empty where it does not answer.
    pub name: String,
    /// `GPU-604ac76c-…`, as NVIDIA's other programs name it.
    pub uuid: Option<String>,
    /// Its PCI address as NVML writes it: `00000000:1B:00.0`.
    pub pci_bus_id: Option<String>,
    /// Share of the last second or so in which a kernel ran, in percent; null where it is not told (MIG).
    pub busy_pct: Option<u32>,
    /// Memory in use.
    pub memory_used_bytes: Option<u64>,
    /// All memory.
    pub memory_total_bytes: Option<u64>,
    /// What it draws, in milliwatts.
    pub power_mw: Option<u32>,
}

/// The queue pairs of one device that one process, or one part of the kernel, owns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueuePairs {
    /// `mlx5_0`.
    pub device: String,
    /// The process; none for the kernel's own.
    pub pid: Option<u32>,
    /// Its command line, or what the kernel calls its part (`ib_core`).
    pub owner: String,
    /// The user, by name where the host knows it.
    pub user: Option<String>,
    pub count: u32,
    /// How many of them are ready to send (state RTS).
    pub ready: u32,
    /// How many are in an error state (SQE, ERR).
    pub failed: u32,
    /// Memory that the process holds, in KiB.
    pub memory_kib: u64,
    /// Processor time that it has used, in ticks of the kernel's clock.
    pub cpu_ticks: u64,
}

/// A program that moves data on purpose: a benchmark of collectives, or of a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// `all_reduce`, `ib_write_bw` …
    pub what: String,
    /// The command line, cut to 200 characters.
    pub command: String,
    /// Processes on this host.
    pub processes: u32,
}
