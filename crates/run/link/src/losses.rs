//! Counters that move when packets are lost: TCP's, and those of RDMA devices.

use busbw_probe::Root;

/// Counters of an RDMA port that should not move, of mlx5 and of Soft-RoCE (`rxe_hw_counters.c` of Linux 6.1; NVIDIA's list
/// is "Understanding mlx5 Linux counters and status parameters").
const RDMA: [&str; 14] = [
    "out_of_sequence",
    "packet_seq_err",
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "req_transport_retries_exceeded",
    "out_of_seq_request",
    "rcvd_seq_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "completer_retry_err",
    "send_err",
];

/// What TCP of this network namespace has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TcpSegments {
    pub sent: u64,
    pub resent: u64,
}

/// TCP's counters; zeros where they cannot be read.
pub(crate) fn tcp() -> TcpSegments {
    Root::live().value("/proc/net/snmp").map_or_else(TcpSegments::default, |text| segments(&text))
}

/// A line of names and a line of values, both beginning with `Tcp:`.
fn segments(snmp: &str) -> TcpSegments {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:")).map(str::split_whitespace);
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return TcpSegments::default() };
    let of = |wanted: &str| {
        let found = names.clone().zip(values.clone()).find(|(name, _)| *name == wanted);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    TcpSegments { sent: of("OutSegs"), resent: of("RetransSegs") }
}

/// The counters of an RDMA port, by name.
pub(crate) fn rdma(root: &Root, device: &str, port: u32) -> Vec<(String, u64)> {
    let folder = format!("/sys/class/infiniband/{device}/ports/{port}/hw_counters");
    let value = |name: &&str| Some(((*name).to_owned(), root.number(&format!("{folder}/{name}"))?));
    RDMA.iter().filter_map(value).collect()
}

/// By how much counters moved; those that did.
pub(crate) fn moved(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<(String, u64)> {
    let by = |(name, now): &(String, u64)| {
        let then = before.iter().find(|(known, _)| known == name)?.1;
        Some((name.clone(), now.saturating_sub(then)))
    };
    after.iter().filter_map(by).filter(|(_, by)| *by > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_sent_and_sent_again() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 900 1000 12 0\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(segments(snmp), TcpSegments { sent: 1000, resent: 12 });
        assert_eq!(segments("Tcp: OutSegs\n"), TcpSegments::default());
    }

    #[test]
    fn only_what_moved_is_told() {
        let counters = |values: [u64; 2]| vec![("a".to_string(), values[0]), ("b".to_string(), values[1])];
        assert_eq!(moved(&counters([3, 7]), &counters([3, 9])), [("b".to_string(), 2)]);
    }
}
