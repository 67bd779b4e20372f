//! What a network driver counts beyond `statistics/`: pauses, priorities, losses (`ethtool -S`).

use super::{Counters, now_us};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Linux, include/uapi/linux/ethtool.h and sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
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
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
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
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
    };
    let bytes = strings.bytes(12, count as usize * NAME_LENGTH);
    Some(bytes.chunks_exact(NAME_LENGTH).map(name).collect())
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
    (stats.get(4) == expected).then(|| stats.words[1..=expected as usize].to_vec())
}

/// A request of ethtool's: 32-bit words in memory that is aligned for the 64-bit ones behind them.
struct Request {
    words: Vec<u64>,
}

impl Request {
    /// Room for `length` bytes and a reserve: a driver whose number of counters grows just now writes them all.
    fn new(command: u32, length: usize) -> Self {
        let mut request = Request { words: vec![0; 2 * length.div_ceil(8) + 1024] };
        request.put(0, command);
        request
    }

    fn put(&mut self, at: usize, value: u32) {
        let (word, shift) = (at / 8, (at % 8) * 8);
        let mut bytes = self.words[word].to_ne_bytes();
        bytes[shift / 8..shift / 8 + 4].copy_from_slice(&value.to_ne_bytes());
        self.words[word] = u64::from_ne_bytes(bytes);
    }

    fn get(&self, at: usize) -> u32 {
        let bytes = self.bytes(at, 4);
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn bytes(&self, from: usize, length: usize) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).skip(from).take(length).collect()
    }

    fn send(&mut self, socket: &OwnedFd, interface: &str) -> Option<()> {
        // SAFETY: zeroes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        // One byte stays zero, the end of the name.
        if name.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = (*from).cast_signed();
        }
        request.ifr_ifru.ifru_data = self.words.as_mut_ptr().cast();
        // SAFETY: ifr_name ends in a zero, and ifru_data points to memory of this request with room for the answer: the
        // kernel copies at most what the command's structure and the count in it say, rounded to the driver's own count,
        // for which there is a reserve.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        (answer == 0).then_some(())
    }
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
    fn words_lie_where_the_kernel_looks() {
        let mut request = Request::new(7, 16);
        request.put(4, 9);
        request.put(8, 11);
        assert_eq!((request.get(0), request.get(4), request.get(8), request.get(12)), (7, 9, 11, 0));
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_counters() {
        assert!(Driver::open("absent0").is_none());
        assert!(Driver::open("a-name-that-is-far-too-long").is_none());
    }
}
