//! How errors name ranks: who, on which host, which process.

use crate::wire::RankInfo;
use std::time::Duration;

/// As many ranks are named in one line.
const MOST: usize = 8;

/// `rank 3 on host h2 (pid 123)`, with its address where that is not this host's own.
pub(crate) fn rank(rank: usize, info: Option<&RankInfo>) -> String {
    match info {
        Some(info) if info.address.is_loopback() => {
            format!("rank {rank} on host {} (pid {})", info.host, info.pid)
        }
        Some(info) => format!("rank {rank} on host {} (pid {}, {})", info.host, info.pid, info.address),
        None => format!("rank {rank}"),
    }
}

/// `a`, `a and b`, `a, b and c`, `a, b and 7 more`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        _ if items.len() > MOST => format!("{} and {} more", items[..MOST].join(", "), items.len() - MOST),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `rank 3`, `ranks 3, 4 and 5`.
pub(crate) fn numbers(ranks: &[usize]) -> String {
    let items: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list(&items))
}

/// `60 s`, `0.5 s`.
pub(crate) fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{} s", time.as_secs()) } else { format!("{:.1} s", time.as_secs_f64()) }
}

/// A rank's connection ended without a goodbye.
pub(crate) fn ended(who: &str) -> String {
    format!("{who} closed its connection: its process has ended; look at its output")
}

/// Ranks that were not heard for some time.
pub(crate) fn silent(who: &[String], time: Duration) -> String {
    let (have, their) = if who.len() == 1 { ("has", "its") } else { ("have", "their") };
    let (who, time) = (list(who), seconds(time));
    format!("{who} {have} not answered for {time}: stopped, or {their} host or cable is cut off")
}

/// Ranks that are alive and get nothing done while others wait.
pub(crate) fn stuck(who: &[String], time: Duration) -> String {
    let have = if who.len() == 1 { "has" } else { "have" };
    let (who, time) = (list(who), seconds(time));
    format!(
        "{who} {have} made no progress for {time} while others wait: see where it hangs (gdb -p PID, or its output)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks() {
        for (ranks, text) in [
            (&[3][..], "rank 3"),
            (&[3, 4], "ranks 3 and 4"),
            (&[3, 4, 9], "ranks 3, 4 and 9"),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
        ] {
            assert_eq!(numbers(ranks), text);
        }
    }

    #[test]
    fn a_rank_of_another_host_has_its_address() {
        let info = |address: &str| RankInfo {
            host: "h2".into(),
            pid: 123,
            flags: String::new(),
            host_id: 0,
            address: address.parse().unwrap(),
        };
        assert_eq!(rank(3, Some(&info("127.0.0.1"))), "rank 3 on host h2 (pid 123)");
        assert_eq!(rank(3, Some(&info("10.77.0.2"))), "rank 3 on host h2 (pid 123, 10.77.0.2)");
        assert_eq!(rank(3, None), "rank 3");
    }
}
