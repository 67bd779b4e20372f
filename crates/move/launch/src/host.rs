//! This host: its name, what tells it from others, and its addresses.

use crate::Lookup;
use crate::derive;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;

/// The host's name: that which its launcher uses for it (BUSBW_HOST, or Slurm's name of the node), else its own.
pub fn name(look: Lookup) -> String {
    let own = || nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned());
    let given = ["BUSBW_HOST", "SLURMD_NODENAME"].into_iter().find_map(look).filter(|name| !name.is_empty());
    given.or_else(own).unwrap_or_else(|| "localhost".into())
}

/// What tells this host's kernel from all others, and from itself before it was started again.
pub(crate) fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// A number that is equal for ranks that share a host, its memory and its network: kernel, host name, network namespace and
/// /dev/shm. `NCCL_HOSTID`, as with NCCL, takes the place of all that.
pub fn id(look: Lookup) -> u64 {
    if let Some(given) = look("NCCL_HOSTID").filter(|given| !given.is_empty()) {
        return derive::number(&given);
    }
    let boot = boot().unwrap_or_default();
    let own = nix::unistd::gethostname().unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let shared_memory = std::fs::metadata("/dev/shm").map_or(0, |directory| directory.dev());
    derive::number(&format!("{boot}\n{own:?}\n{network:?}\n{shared_memory}"))
}

/// The addresses of a host name, or of an address as text.
pub(crate) fn resolve(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut addresses: Vec<SocketAddr> = (bare, port).to_socket_addrs().ok()?.collect();
    addresses.dedup();
    (!addresses.is_empty()).then_some(addresses)
}

/// The address that other hosts most likely reach this one by: the first of an interface that is up, not loopback and not a
/// bridge of containers; IPv4 first.
pub fn outward_address() -> Option<IpAddr> {
    let interfaces = getifaddrs().ok()?;
    let usable = interfaces.filter(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
            && !["docker", "virbr", "br-", "veth", "cni", "flannel"]
                .iter()
                .any(|p| interface.interface_name.starts_with(p))
    });
    let address = |storage: nix::sys::socket::SockaddrStorage| {
        let four = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        // A link-local address means nothing without its interface.
        let six = storage.as_sockaddr_in6().map(|a| a.ip()).filter(|ip| !ip.is_unicast_link_local()).map(IpAddr::V6);
        four.or(six)
    };
    let mut addresses: Vec<IpAddr> = usable.filter_map(|interface| interface.address.and_then(address)).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_that_the_environment_gives() {
        let with =
            |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        assert_eq!(name(&with("SLURMD_NODENAME", "node7")), "node7");
        assert!(!name(&with("SLURMD_NODENAME", "")).is_empty());
        assert_eq!(id(&with("NCCL_HOSTID", "a")), id(&with("NCCL_HOSTID", "a")));
        assert_ne!(id(&with("NCCL_HOSTID", "a")), id(&with("NCCL_HOSTID", "b")));
        assert_eq!(id(&|_| None), id(&|_| None));
    }

    #[test]
    fn resolves_addresses_with_and_without_brackets() {
        for (host, address) in [("127.0.0.1", "127.0.0.1:7"), ("[::1]", "[::1]:7"), ("::1", "[::1]:7")] {
            assert_eq!(resolve(host, 7).unwrap(), [address.parse().unwrap()], "{host}");
        }
        assert_eq!(resolve("no such host.invalid", 7), None);
    }
}
