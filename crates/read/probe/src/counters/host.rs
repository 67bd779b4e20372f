//! The host as a whole: processor, memory, TCP.

use super::open::Reread;
use super::{Counters, HostCounters, now_us};
use crate::Root;
use std::sync::Arc;

/// `/proc/stat` is the longest: a line of up to 120 bytes for each of at most some thousand cores, before the interrupts,
/// which are not needed.
const BLOCK: usize = 256 << 10;
/// What is kept of `/proc/net/snmp` and `/proc/net/netstat`, sorted: what shows loss, and how much was sent.
const TCP: [&str; 9] = [
    "InErrs",
    "InSegs",
    "ListenDrops",
    "OutSegs",
    "RetransSegs",
    "TCPAbortOnTimeout",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TCPZeroWindowDrop",
];

#[derive(Debug)]
pub struct OpenHost {
    name: String,
    stat: Option<Reread>,
    memory: Option<Reread>,
    tcp: [Option<Reread>; 2],
    tcp_names: Arc<[Arc<str>]>,
    block: Vec<u8>,
}

impl OpenHost {
    pub fn new(root: &Root) -> Self {
        let open = |path| Reread::open(root, path).ok();
        OpenHost {
            name: root.value("/proc/sys/kernel/hostname").unwrap_or_default(),
            stat: open("/proc/stat"),
            memory: open("/proc/meminfo"),
            tcp: ["/proc/net/snmp", "/proc/net/netstat"].map(open),
            tcp_names: Arc::new([]),
            block: vec![0; BLOCK],
        }
    }

    pub fn read(&mut self) -> HostCounters {
        let mut host = HostCounters { name: self.name.clone(), tcp: self.tcp(), ..HostCounters::default() };
        read_some(self.stat.as_ref(), &mut self.block, |text| cpu(text, &mut host));
        read_some(self.memory.as_ref(), &mut self.block, |text| {
            let kib = |name| field(text, name).unwrap_or(0);
            (host.memory_total_kib, host.memory_free_kib) = (kib("MemTotal:"), kib("MemFree:"));
            host.memory_available_kib = kib("MemAvailable:");
        });
        host
    }

    fn tcp(&mut self) -> Counters {
        let mut found: Vec<(&'static str, u64)> = Vec::new();
        for file in &self.tcp {
            read_some(file.as_ref(), &mut self.block, |text| found.extend(tcp(text)));
        }
        found.sort_unstable();
        if !self.tcp_names.iter().map(AsRef::as_ref).eq(found.iter().map(|(name, _)| *name)) {
            self.tcp_names = found.iter().map(|(name, _)| Arc::from(*name)).collect();
        }
        let values = found.into_iter().map(|(_, value)| value).collect();
        Counters { time_us: now_us(), names: Arc::clone(&self.tcp_names), values }
    }
}

fn read_some(file: Option<&Reread>, block: &mut [u8], look: impl FnOnce(&str)) {
    if let Some(Ok(text)) = file.map(|file| file.read(block)) {
        look(text);
    }
}

/// Ticks since boot (proc(5)): user nice system idle iowait irq softirq steal; guests are counted in user already.
fn cpu(text: &str, host: &mut HostCounters) {
    let mut lines = text.lines();
    let all = lines.next().and_then(|line| line.strip_prefix("cpu "));
    let ticks: Vec<u64> = all.unwrap_or_default().split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    host.cpu_total_ticks = ticks.iter().sum();
    host.cpu_busy_ticks = host.cpu_total_ticks - ticks.iter().skip(3).take(2).sum::<u64>();
    host.cores = lines.take_while(|line| line.starts_with("cpu")).map(|_| 1).sum();
}

/// `MemTotal:       16384 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// The counters of TCP that are kept. Lines come in pairs, names and values, each behind `Tcp:` or `TcpExt:`.
fn tcp(text: &str) -> Vec<(&'static str, u64)> {
    let of_tcp = |line: &&str| line.starts_with("Tcp:") || line.starts_with("TcpExt:");
    let lines: Vec<&str> = text.lines().filter(of_tcp).collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    pairs
        .filter_map(|(name, value)| {
            let at = TCP.binary_search(&name).ok()?;
            Some((TCP[at], value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_counters_are_found_by_name_wherever_they_stand() {
        let snmp = "Ip: Forwarding InErrs\nIp: 1 9\nTcp: MaxConn OutSegs RetransSegs InErrs\nTcp: -1 100 7 2\n";
        assert_eq!(tcp(snmp), [("OutSegs", 100), ("RetransSegs", 7), ("InErrs", 2)]);
        assert_eq!(tcp("TcpExt: TCPTimeouts Other\nTcpExt: 3 4\n"), [("TCPTimeouts", 3)]);
        assert_eq!(tcp("Tcp: OutSegs\n"), []);
        assert!(TCP.is_sorted());
    }

    #[test]
    fn all_cores_of_a_large_machine_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let core = |number: u32| format!("cpu{number} 123456789 12345 12345678 1234567890 123456 0 123456 0 0 0\n");
        let cores: String = (0..768).map(core).collect();
        std::fs::write(folder.path().join("proc/stat"), format!("cpu  9 0 0 1 0 0 0 0 0 0\n{cores}intr 5\n")).unwrap();
        let host = OpenHost::new(&Root::captured(folder.path()).unwrap()).read();
        assert_eq!((host.cores, host.cpu_total_ticks, host.cpu_busy_ticks), (768, 10, 9));
    }

    #[test]
    fn idle_time_is_idle_and_waiting_for_disks() {
        let mut host = HostCounters::default();
        cpu("cpu  10 1 5 100 20 1 2 3 7 7\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n", &mut host);
        assert_eq!((host.cpu_total_ticks, host.cpu_busy_ticks, host.cores), (142, 22, 2));
        cpu("nothing", &mut host);
        assert_eq!(host.cpu_total_ticks, 0);
    }
}
