//! How much memory a rank may take for its buffers.

use std::fs;

const GIB: u64 = 1 << 30;

/// What each of `ranks` ranks of this host may take: the memory that is available now (`MemAvailable` of
/// `/proc/meminfo`, or what the process's control group leaves, if that is less), shared among them. All of it where
/// the system does not say.
pub fn share_of_host(ranks: usize) -> u64 {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text)).unwrap_or(u64::MAX);
    host.min(control_group_left().unwrap_or(u64::MAX)) / ranks.max(1) as u64
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What the tightest of the process's control groups leaves (version 2 of control groups).
fn control_group_left() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_string();
    let folders = std::iter::successors(Some(path), |path| {
        (!path.is_empty()).then(|| path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_string()))
    });
    let number = |folder: &str, file: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup/{folder}/{file}")).ok()?.trim().parse::<u64>().ok()
    };
    let left = folders.filter_map(|folder| {
        let limit = number(&folder, "memory.max")?;
        Some(limit.saturating_sub(number(&folder, "memory.current").unwrap_or(0)))
    });
    left.min()
}

/// The largest size that fits into `available` bytes of a rank. As in nccl-tests (`run` of `src/common.cu`), a rank
/// has a send and a receive buffer and, where results are checked, room for a third; a sixteenth is left to others,
/// at most 4 GiB. nccl-tests leaves another GiB to CUDA; on cores, the engine's own buffers are far smaller.
pub fn largest_size(available: u64, checks: bool) -> u64 {
    let reserve = available.div_ceil(16).min(4 * GIB);
    (available - reserve) / if checks { 3 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_leaves_room() {
        assert_eq!(largest_size(16 * GIB, true), 5 * GIB);
        assert_eq!(largest_size(16 * GIB, false), 15 * GIB / 2);
        assert_eq!(largest_size(128 * GIB, true), 124 * GIB / 3);
        assert_eq!(largest_size(0, true), 0);
    }

    #[test]
    fn available_memory_is_read_in_kib() {
        assert_eq!(available("MemTotal:  100 kB\nMemAvailable:   24 kB\n"), Some(24 * 1024));
        assert_eq!(available("MemTotal:  100 kB\n"), None);
    }

    #[test]
    fn ranks_share_the_host() {
        let (alone, shared) = (share_of_host(1), share_of_host(4));
        assert!(shared > 0 && shared < alone, "{shared} of {alone}");
    }
}
