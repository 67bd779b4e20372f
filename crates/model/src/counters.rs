//! Counters of network devices and of TCP: `rules/counters.toml` as types. `diagnose` judges by it what one look at a machine shows,
//! `monitor` what moves.

use crate::{Code, Severity};
use serde::Deserialize;

/// What the file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Why counters move that should not.
    pub cause: Vec<Cause>,
    /// The counters, those that count first before others that give the same.
    pub counter: Vec<Counter>,
}

named! {
    /// Where a counter is found.
    pub enum Family {
        /// `counters/` and `hw_counters/` of a port of an RDMA device.
        Rdma = "rdma",
        /// `statistics/` of a network interface.
        Interface = "interface",
        /// The driver of a network interface (`ethtool -S`).
        Driver = "driver",
        /// `/proc/net/snmp` and `netstat`.
        Tcp = "tcp",
    }
    /// As in `counters.toml` and in files of thresholds.
    name
}

named! {
    /// What a counter gives, whatever its name is there.
    pub enum Quantity {
        /// Bytes sent.
        TxBytes = "tx_bytes",
        /// Bytes received.
        RxBytes = "rx_bytes",
        /// Bytes sent, where the interface counts RDMA's too.
        WireTxBytes = "wire_tx_bytes",
        /// Bytes received, where the interface counts RDMA's too.
        WireRxBytes = "wire_rx_bytes",
        /// Packets sent.
        TxPackets = "tx_packets",
        /// Packets received.
        RxPackets = "rx_packets",
        /// Pause frames sent.
        TxPause = "tx_pause",
        /// Pause frames received.
        RxPause = "rx_pause",
        /// Pauses sent, as time.
        TxPauseUs = "tx_pause_us",
        /// Pauses received, as time.
        RxPauseUs = "rx_pause_us",
        /// Congestion notifications sent.
        CnpSent = "cnp_sent",
        /// Congestion notifications obeyed.
        CnpHandled = "cnp_handled",
        /// Congestion notifications not obeyed.
        CnpIgnored = "cnp_ignored",
        /// Packets received with a congestion mark.
        EcnMarked = "ecn_marked",
        /// Packets dropped for lack of a receive buffer.
        OutOfBuffer = "out_of_buffer",
        /// Packets that came out of order.
        OutOfSequence = "out_of_sequence",
        /// NAKs of peers that a packet was missing.
        PacketSequenceErrors = "packet_sequence_errors",
        /// Retransmitted packets.
        Retransmissions = "retransmissions",
        /// Answers that did not come in time.
        AckTimeouts = "ack_timeouts",
        /// Receivers that were not ready.
        RnrNaks = "rnr_naks",
        /// Packets thrown away.
        Discards = "discards",
        /// Packets with errors.
        Errors = "errors",
        /// Errors of the link's signals.
        SymbolErrors = "symbol_errors",
        /// Times that the link went down.
        LinkDowns = "link_downs",
    }
    /// As in `counters.toml` and in JSON.
    name
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
