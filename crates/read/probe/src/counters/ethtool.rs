//! What a network driver counts beyond `statistics/`: pauses, priorities, losses (`ethtool -S`).

use super::{Counters, now_us};
use crate::ethtool::{Request, socket};
use nix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Linux, include/uapi/linux/ethtool.h.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const NAME_LENGTH: usize = 32;
/// A driver with more counters than this is not asked.
const MOST: u32 = 1 << 16;
/// Reading takes at most one part in this many of a core: some drivers ask the firmware for every counter.
const SHARE: u32 = 2000;

/// What is kept: names with one of these in them, unless they are of a single queue.
const KEPT: [&str; 12] =
    ["pause", "prio", "discard", "drop", "pfc", "cnp", "ecn", "out_of_buffer", "_phy", "vport_rdma", "symbol", "crc"];

/// The counters of a driver, read as often as their price allows.
#[derive(Debug)]
pub struct Driver {
    socket: OwnedFd,
    interface: String,
    /// How many counters the driver has, and where among them the kept ones stand.
    count: u32,
    kept: Vec<usize>,
    last: Counters,
    not_before: Duration,
}

impl Driver {
    /// Asks a driver for the names of its counters; none where it has none worth keeping.
    pub fn open(interface: &str) -> Option<Self> {
        let socket = socket()?;
        let names = names(&socket, interface)?;
        let mut kept: Vec<usize> = (0..names.len()).filter(|&at| is_kept(&names[at])).collect();
        kept.sort_by(|&a, &b| names[a].cmp(&names[b]));
        kept.dedup_by(|a, b| names[*a] == names[*b]);
        if kept.is_empty() {
            return None;
        }
        let count = u32::try_from(names.len()).ok()?;
        let last =
            Counters { names: kept.iter().map(|&at| Arc::from(names[at].as_str())).collect(), ..Default::default() };
        Some(Driver { socket, interface: interface.into(), count, kept, last, not_before: Duration::ZERO })
    }

    /// The counters as they are now, or as they were when reading them was last affordable; none when the driver does not
    /// answer, or has other counters now.
    pub fn read(&mut self) -> Option<Counters> {
        let began = processor_time();
        if passing_time() >= self.not_before {
            let values = values(&self.socket, &self.interface, self.count)?;
            self.last.time_us = now_us();
            self.last.values = self.kept.iter().map(|&at| values[at]).collect();
            self.not_before = passing_time() + processor_time().saturating_sub(began) * SHARE;
        }
        Some(self.last.clone())
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Time since some moment.
fn passing_time() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Per-queue counters (`rx3_pause`, `tx_queue_0_drops`, `ch4_…`) are too many, and their sums are counted too.
fn is_kept(name: &str) -> bool {
    let of_queue = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.trim_start_matches('_').starts_with(|c: char| c.is_ascii_digit()))
    };
    let of_a_queue = ["rx", "tx", "ch", "rx_queue", "tx_queue", "rx-", "tx-"].into_iter().any(of_queue);
    !of_a_queue && KEPT.iter().any(|part| name.contains(part))
}

fn names(socket: &OwnedFd, interface: &str) -> Option<Vec<String>> {
    let count = count(socket, interface)?;
    // struct ethtool_gstrings: cmd, string_set, len, names.
    let mut strings = Request::new(ETHTOOL_GSTRINGS, 12 + count as usize * NAME_LENGTH);
    strings.put(4, ETH_SS_STATS);
    strings.put(8, count);
    strings.send(socket, interface)?;
    Some((0..count as usize).map(|at| strings.text(12 + at * NAME_LENGTH, NAME_LENGTH)).collect())
}

/// How many counters the driver has, if any.
fn count(socket: &OwnedFd, interface: &str) -> Option<u32> {
    // struct ethtool_sset_info: cmd, reserved, sset_mask (u64), one u32 per bit of the mask.
    let mut info = Request::new(ETHTOOL_GSSET_INFO, 20);
    info.put(8, 1 << ETH_SS_STATS);
    info.send(socket, interface)?;
    Some(info.get(16)).filter(|count| (1..=MOST).contains(count))
}

/// struct ethtool_stats: cmd, n_stats, values. None when the driver has other counters than it had, as after a change of
/// its number of queues.
fn values(socket: &OwnedFd, interface: &str, expected: u32) -> Option<Vec<u64>> {
    if count(socket, interface)? != expected {
        return None;
    }
    let mut stats = Request::new(ETHTOOL_GSTATS, 8 + expected as usize * 8);
    stats.put(4, expected);
    stats.send(socket, interface)?;
    (stats.get(4) == expected).then(|| stats.words(8, expected as usize).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_kept_and_queues_are_not() {
        let cases = [
            ("rx_prio3_pause", true),
            ("tx_pause_ctrl_phy", true),
            ("rx_discards_phy", true),
            ("rx_vport_rdma_unicast_bytes", true),
            ("rx3_xdp_drop", false),
            ("ch12_poll", false),
            ("rx_queue_0_drops", false),
            ("tx_queue_dropped", true),
            ("rx_packets", false),
        ];
        for (name, kept) in cases {
            assert_eq!(is_kept(name), kept, "{name}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_counters() {
        assert!(Driver::open("absent0").is_none());
        assert!(Driver::open("a-name-that-is-far-too-long").is_none());
    }
}
