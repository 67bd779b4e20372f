//! The TCP connections of a process: those of its own network, from the kernel's list or /proc/PID/net/tcp and tcp6, matched with its
//! descriptors.

use super::RankSample;
use super::connection::Connection;
use super::diag::Lister;
use crate::Root;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The inodes of a process's sockets, and whether it has opened a GPU. None where this user may not list its descriptors.
pub(super) fn descriptors(root: &Root, pid: u32) -> Option<(BTreeSet<u64>, bool)> {
    let folder = format!("/proc/{pid}/fd");
    let names = root.list(&folder);
    let (mut inodes, mut on_gpu) = (BTreeSet::new(), false);
    for name in &names {
        let Some(target) = root.link_name(&format!("{folder}/{name}")) else { continue };
        if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
            inodes.extend(inode.parse::<u64>());
        }
        on_gpu |= target.starts_with("nvidia") && !target.starts_with("nvidia-caps") || target == "kfd";
    }
    (!names.is_empty()).then_some((inodes, on_gpu))
}

/// The connections of the networks that ranks are in, each network read once per sample.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    networks: HashMap<String, HashMap<u64, Connection>>,
    /// How each network is asked; none where the kernel does not answer, so that its tables are read.
    listers: HashMap<String, Option<Lister>>,
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Sockets {
    /// Forgets the last sample.
    pub fn begin(&mut self) {
        self.networks.clear();
    }

    /// Those of a process.
    pub fn of(&mut self, root: &Root, pid: u32, inodes: &BTreeSet<u64>) -> Vec<Connection> {
        let name = network(root, pid);
        let lister = self.listers.entry(name.clone()).or_insert_with(|| Lister::of(root, pid).ok());
        let read = || {
            if let Some(listed) = lister.as_mut().and_then(|lister| lister.list().ok()) {
                return listed.into_iter().map(|one| (one.inode, one)).collect();
            }
            *lister = None;
            let tables = ["tcp", "tcp6"].map(|name| root.value(&format!("/proc/{pid}/net/{name}")));
            let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
            lines.filter_map(Connection::parse).map(|one| (one.inode, one)).collect()
        };
        let network = self.networks.entry(name).or_insert_with(read);
        inodes.iter().filter_map(|inode| network.get(inode).copied()).collect()
    }

    /// The addresses of the network that a process is in, loopback too.
    pub fn own_addresses(&mut self, root: &Root, pid: u32) -> BTreeSet<IpAddr> {
        let network = network(root, pid);
        self.addresses.entry(network).or_insert_with(|| addresses(root, pid)).clone()
    }

    /// Interfaces of this process's network that have one of these addresses and no carrier. Of other networks, sysfs shows nothing.
    pub fn without_carrier(&self, root: &Root, used: &BTreeSet<IpAddr>, ranks: &[RankSample]) -> Vec<String> {
        let own = root.link_name("/proc/self/ns/net");
        if !root.is_live() || !ranks.iter().any(|rank| root.link_name(&format!("/proc/{}/ns/net", rank.pid)) == own) {
            return Vec::new();
        }
        let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
        let mut found: Vec<String> = interfaces
            .filter(|interface| {
                let address = interface.address.as_ref();
                let v4 = address.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::from(a.ip()));
                let v6 = address.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::from(a.ip()));
                v4.or(v6).is_some_and(|address| used.contains(&address))
            })
            .map(|interface| interface.interface_name)
            .filter(|name| root.value(&format!("/sys/class/net/{name}/carrier")).as_deref() == Some("0"))
            .collect();
        found.dedup();
        found
    }
}

/// What tells a process's network from others.
fn network(root: &Root, pid: u32) -> String {
    root.link_name(&format!("/proc/{pid}/ns/net")).unwrap_or_default()
}

/// The local addresses of /proc/PID/net/fib_trie and if_inet6: what is `/32 host LOCAL` there is the host's own.
fn addresses(root: &Root, pid: u32) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    let mut last = None;
    for line in root.value(&format!("/proc/{pid}/net/fib_trie")).unwrap_or_default().lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.map(IpAddr::from));
        }
    }
    for line in root.value(&format!("/proc/{pid}/net/if_inet6")).unwrap_or_default().lines() {
        let digits = line.split_whitespace().next().and_then(|text| u128::from_str_radix(text, 16).ok());
        found.extend(digits.map(|digits| IpAddr::from(Ipv6Addr::from(digits))));
    }
    found
}
