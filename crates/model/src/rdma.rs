//! What RDMA tools print: perftest's results, the table of an RDMA check, the samples of an RDMA monitor.

use crate::place::{Place, SourceLine};
use crate::units::{Bytes, Micros};

/// One run of a perftest program (`ib_write_bw`, `ib_read_lat` …), of `ucx_perftest`, of `iperf3`, of OSU's benchmarks, or of DeepEP's tests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PerfTest {
    /// The first line of its header or of its table.
    pub source: SourceLine,
    /// The title as printed: `RDMA_Read BW Test`, `OSU MPI-CUDA Bandwidth Test v7.3`.
    pub test: Option<String>,
    /// HCA: `mlx5_bond_0`.
    pub device: Option<String>,
    /// Number of queue pairs.
    pub queue_pairs: Option<u32>,
    /// Connection type: `RC`, `UC`, `UD`, `XRC`, `DC`, `SRD`.
    pub connection: Option<String>,
    /// `Ethernet` (RoCE) or `IB`.
    pub link_type: Option<String>,
    /// Active MTU in bytes.
    pub mtu: Option<u32>,
    /// The line that tells the MTU, where it is one of its own.
    pub mtu_line: Option<SourceLine>,
    /// GID index.
    pub gid_index: Option<u32>,
    /// The ports at both ends, each once in the order printed: `local LID 0x06`, `GID 254:128:…`.
    pub ends: Vec<Box<str>>,
    /// How much of what was sent over TCP had to be sent again, at least; where the program counts it.
    pub lost: Option<f64>,
    /// The rows in the order printed.
    pub rows: Vec<PerfRow>,
}

impl PerfTest {
    /// Whether ranks of a job measured it among themselves, as DeepEP's tests do; else two processes of a program of its own.
    pub fn is_of_job(&self) -> bool {
        let is_sized = |row: &PerfRow| match row {
            PerfRow::Bandwidth { size, .. } | PerfRow::Latency { size, .. } => size.is_some(),
        };
        !self.rows.iter().any(is_sized) && self.lost.is_none()
    }
}

/// A row of perftest: bandwidth or latency of one message size.
#[derive(Debug, Clone, PartialEq)]
pub enum PerfRow {
    /// A `_bw` program. Bandwidths in Gbit/s (10^9 bit/s), converted from MiB/s where the table has that unit.
    Bandwidth {
        /// Message size; absent where the program chose many.
        size: Option<Bytes>,
        /// `BW peak`; perftest prints 0 when it did not measure one.
        peak_gbit_s: f64,
        /// `BW average`.
        average_gbit_s: f64,
        /// `MsgRate`, million messages per second.
        message_rate_mpps: Option<f64>,
    },
    /// A `_lat` program.
    Latency {
        /// Message size; absent where the program chose many.
        size: Option<Bytes>,
        /// `t_min`; absent in duration mode (`-D`).
        min: Option<Micros>,
        /// `t_max`.
        max: Option<Micros>,
        /// `t_typical`, the median.
        typical: Option<Micros>,
        /// `t_avg`.
        average: Option<Micros>,
        /// `99% percentile`.
        p99: Option<Micros>,
        /// `99.9% percentile`.
        p999: Option<Micros>,
    },
}

/// The result cell of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// `ok`.
    Ok,
    /// `warn`, `warning`.
    Warn,
    /// `fail`, `failed`, `error`, `no`.
    Fail,
    /// Anything else, as printed.
    Other(String),
}

/// One line of an RDMA check: `* link_up eth1: yes ok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaCheckItem {
    /// The line.
    pub place: Place,
    /// What was checked: `link_up`.
    pub item: String,
    /// What was found: `eth1: yes`.
    pub detail: String,
    /// The result that the check printed.
    pub result: CheckResult,
}

/// One sample of an RDMA monitor: a block of `name: value (port 1/port 2)` lines under a time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RdmaSample {
    /// The time line, else the first value.
    pub place: Place,
    /// The time as printed.
    pub time: Option<String>,
    /// The values in the order printed.
    pub values: Vec<RdmaValue>,
}

/// `tx_rate: 81.874 (40.923/40.951)`: rates are Gbit/s, `*_duration` µs, the rest are counts.
#[derive(Debug, Clone, PartialEq)]
pub struct RdmaValue {
    /// The line.
    pub source: SourceLine,
    /// The counter's name.
    pub name: String,
    /// Total count since the counter was reset.
    pub total: f64,
    /// Per port, where printed.
    pub per_port: Vec<f64>,
}

impl RdmaValue {
    /// What the value is counted in; empty for a plain count.
    pub fn unit(&self) -> &'static str {
        match self.name.as_str() {
            "cpu_usage" | "tcp_retrans_rate" => "%",
            "free_mem" => " kB",
            name if name.ends_with("_duration") => " µs",
            name if name.starts_with("tx_rate") || name.starts_with("rx_rate") => " Gbit/s",
            _ => "",
        }
    }
}

impl RdmaSample {
    /// The total of a counter.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|v| v.name == name).map(|v| v.total)
    }
}
