//! Counters of network devices and of TCP: `rules/counters.toml` as types. `diagnose` judges by it what one look at a machine shows,
//! `monitor` what moves.

use crate::{Code, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Why counters move that should not.
    pub cause: Vec<Cause>,
    /// The counters, those that count first before others that give the same.
    pub counter: Vec<Counter>,
}

/// Where a counter is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// `counters/` and `hw_counters/` of a port of an RDMA device.
    Rdma,
    /// `statistics/` of a network interface.
    Interface,
    /// The driver of a network interface (`ethtool -S`).
    Driver,
    /// `/proc/net/snmp` and `netstat`.
    Tcp,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Rdma, Family::Interface, Family::Driver, Family::Tcp];

    /// As in `counters.toml` and in files of thresholds.
    pub fn name(self) -> &'static str {
        match self {
            Family::Rdma => "rdma",
            Family::Interface => "interface",
            Family::Driver => "driver",
            Family::Tcp => "tcp",
        }
    }
}

/// What a counter gives, whatever its name is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Bytes sent.
    TxBytes,
    /// Bytes received.
    RxBytes,
    /// Bytes sent, where the interface counts RDMA's too.
    WireTxBytes,
    /// Bytes received, where the interface counts RDMA's too.
    WireRxBytes,
    /// Packets sent.
    TxPackets,
    /// Packets received.
    RxPackets,
    /// Pause frames sent.
    TxPause,
    /// Pause frames received.
    RxPause,
    /// Microseconds of pauses sent.
    TxPauseUs,
    /// Microseconds of pauses received.
    RxPauseUs,
    /// Congestion notifications sent.
    CnpSent,
    /// Congestion notifications obeyed.
    CnpHandled,
    /// Congestion notifications not obeyed.
    CnpIgnored,
    /// Packets received with a congestion mark.
    EcnMarked,
    /// Packets dropped for lack of a receive buffer.
    OutOfBuffer,
    /// Packets that came out of order.
    OutOfSequence,
    /// NAKs of peers that a packet was missing.
    PacketSequenceErrors,
    /// Packets sent again.
    Retransmissions,
    /// Answers that did not come in time.
    AckTimeouts,
    /// Receivers that were not ready.
    RnrNaks,
    /// Packets thrown away.
    Discards,
    /// Packets with errors.
    Errors,
    /// Errors of the link's signals.
    SymbolErrors,
    /// Times that the link went down.
    LinkDowns,
}

/// A counter that busbw knows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// The family, which says where the counter is read.
    #[serde(rename = "in")]
    pub family: Family,
    /// Its name there; `#` is any digit.
    pub name: String,
    /// What it counts.
    pub meaning: String,
    /// The quantity that the counter adds to; `None` where it is only shown.
    pub is: Option<Quantity>,
    /// How many of the quantity one count is.
    #[serde(default = "one")]
    pub factor: u64,
    /// Whether it is a part of the quantity, to be added to the others.
    #[serde(default)]
    pub adds: bool,
    /// node_exporter's name, without its prefix.
    pub prometheus: Option<String>,
    /// Why it moves, when it should not.
    pub cause: Option<String>,
    /// How fast it may move before that is an alert.
    #[serde(default)]
    pub per_second: f64,
}

fn one() -> u64 {
    1
}

/// Why counters move that should not.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// By which counters refer to it.
    pub name: String,
    /// The finding's code.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// What it means.
    pub meaning: String,
    /// How to fix it, with a command line where there is one.
    pub remedy: String,
}
