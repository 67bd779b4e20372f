//! Interfaces that lead to no other node, by their addresses and names.

use std::net::IpAddr;

const INNER: [&str; 12] =
    ["docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc", "lxdbr", "podman", "vmnet", "cilium"];

/// Whether an interface joins containers or virtual machines of one host.
pub(crate) fn is_inner(name: &str) -> bool {
    INNER.iter().any(|start| name.starts_with(start))
}

/// Where an interface leads instead of to other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalInterface {
    Loopback,
    /// To the next switch at best: nobody routes its address, and each end knows it by an interface of its own.
    LinkLocal,
    /// To containers or virtual machines of the host.
    Containers,
}

impl LocalInterface {
    /// What an interface is, when it leads to no other node. The host's end of a pod's pair has the same name as the pod's
    /// own interface may have (`veth0`): only the latter has an address that others reach.
    pub fn of(name: &str, address: Option<&str>) -> Option<Self> {
        let address = address.and_then(|text| text.split('%').next()?.parse::<IpAddr>().ok());
        let link_local = address.is_some_and(is_link_local);
        // A routed address of a host that has one for all of its links may lie on lo.
        if address.map_or(name == "lo", |address| address.is_loopback()) {
            return Some(LocalInterface::Loopback);
        }
        let of_a_pod = name.starts_with("veth") && address.is_some() && !link_local;
        match is_inner(name) && !of_a_pod {
            true => Some(LocalInterface::Containers),
            false => link_local.then_some(LocalInterface::LinkLocal),
        }
    }

    pub fn why(self) -> &'static str {
        match self {
            LocalInterface::Loopback => "the loopback interface",
            LocalInterface::LinkLocal => "an interface with a link-local address",
            LocalInterface::Containers => "an interface of containers or virtual machines on one host",
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_before_names() {
        let cases = [
            ("lo", Some("127.0.0.1"), Some(LocalInterface::Loopback)),
            ("lo", None, Some(LocalInterface::Loopback)),
            ("lo", Some("10.9.0.4"), None),
            ("eth0", Some("::1"), Some(LocalInterface::Loopback)),
            ("eth0", Some("169.254.7.1"), Some(LocalInterface::LinkLocal)),
            ("tunl0", Some("fe80::5efe:1%tunl0"), Some(LocalInterface::LinkLocal)),
            ("veth3f2", Some("fe80::5efe:1%veth3f2"), Some(LocalInterface::Containers)),
            ("veth0", Some("2001:db8::7"), None),
            ("veth0", Some("10.42.3.9"), None),
            ("veth0", None, Some(LocalInterface::Containers)),
            ("docker0", Some("172.17.0.1"), Some(LocalInterface::Containers)),
            ("eth0", Some("10.0.0.7"), None),
            ("local0", None, None),
        ];
        for (name, address, expected) in cases {
            assert_eq!(LocalInterface::of(name, address), expected, "{name} {address:?}");
        }
    }
}
