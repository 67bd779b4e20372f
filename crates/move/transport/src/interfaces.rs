//! The interfaces of this host, and which of them NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose.

use crate::{Error, Result};
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;

/// One address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The system's name: `eth0`.
    pub name: String,
    /// The system's number, which is the scope of a link-local address.
    pub index: u32,
    /// The address that other hosts connect to.
    pub address: IpAddr,
    /// Leading bits of the address that name its subnet.
    pub prefix_len: u8,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Whether it leads back to this host.
    pub loopback: bool,
    /// What its driver says it can do, in Mbit/s; many virtual ones say nothing.
    pub speed_mbps: Option<u32>,
}

impl Interface {
    /// Whether another address is of this interface's subnet.
    pub fn same_subnet(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = u32::from(own) ^ u32::from(other);
                differs.checked_shr(32 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = u128::from(own) ^ u128::from(other);
                differs.checked_shr(128 - u32::from(self.prefix_len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Most interfaces that are used at once, as in NCCL.
pub const MOST_INTERFACES: usize = 16;

/// Every address of every interface, in the system's order: IPv4 before IPv6.
pub fn list() -> Result<Vec<Interface>> {
    let addresses = nix::ifaddrs::getifaddrs().map_err(|e| Error::system("list the network interfaces", e.into()))?;
    let mut interfaces = Vec::new();
    for entry in addresses {
        let Some((address, prefix_len)) = entry
            .address
            .as_ref()
            .and_then(ip)
            .map(|address| (address, entry.netmask.as_ref().and_then(ip).map_or(host_bits(address), prefix_len)))
        else {
            continue;
        };
        let name = entry.interface_name;
        let speed = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok();
        interfaces.push(Interface {
            index: nix::net::if_::if_nametoindex(name.as_str()).unwrap_or(0),
            address,
            prefix_len,
            up: entry.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            // A link without carrier has the speed -1.
            speed_mbps: speed.and_then(|text| text.trim().parse().ok()).filter(|&speed| speed > 0),
            name,
        });
    }
    Ok(interfaces)
}

fn ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn prefix_len(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(mask) => u32::from(mask).leading_ones(),
        IpAddr::V6(mask) => u128::from(mask).leading_ones(),
    };
    bits as u8
}

/// Chooses as NCCL does (`ncclFindInterfaces` in `src/misc/socket.cc`, 2.28): one address per interface, at most
/// [`MOST_INTERFACES`], only interfaces that are up.
///
/// `names` is `NCCL_SOCKET_IFNAME`: prefixes, separated by commas; `=` before the list for whole names, `^` for all but
/// those. `family` is `NCCL_SOCKET_FAMILY`: `AF_INET` or `AF_INET6`. Without `names`: those that begin with `ib`; else all
/// but `docker`, `lo` and `virbr`; else `docker`; else `lo`; else `virbr`.
///
/// # Errors
/// [`Error::Config`] names the variable and lists the interfaces that exist.
pub fn choose(all: &[Interface], names: Option<&str>, family: Option<&str>) -> Result<Vec<Interface>> {
    let names = names.map(str::trim).filter(|names| !names.is_empty());
    let family = family.map(str::trim).filter(|family| !family.is_empty());
    let wanted: fn(&IpAddr) -> bool = match family {
        None => |_| true,
        Some("AF_INET") => IpAddr::is_ipv4,
        Some("AF_INET6") => IpAddr::is_ipv6,
        Some(other) => {
            return Err(Error::Config(format!("NCCL_SOCKET_FAMILY={other}: AF_INET or AF_INET6 is possible")));
        }
    };
    let usable: Vec<&Interface> = all
        .iter()
        .filter(|interface| interface.up && wanted(&interface.address))
        // NCCL leaves out ::1, so that lo is never reached by it.
        .filter(|interface| !(interface.address.is_ipv6() && interface.address.is_loopback()))
        .collect();
    let defaults = ["ib", "^docker,lo,virbr", "docker", "lo", "virbr"];
    let chosen = match names {
        Some(names) => matching(&usable, names),
        None => {
            defaults.iter().map(|names| matching(&usable, names)).find(|found| !found.is_empty()).unwrap_or_default()
        }
    };
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let with = |name: &str, value: Option<&str>| value.map(|value| format!("{name}={value}"));
    let set: Vec<String> =
        [with("NCCL_SOCKET_IFNAME", names), with("NCCL_SOCKET_FAMILY", family)].into_iter().flatten().collect();
    let asked = if set.is_empty() {
        "no network interface can be used".into()
    } else {
        format!("no network interface matches {}", set.join(" and "))
    };
    Err(Error::Config(format!("{asked}; this host has {}", describe(all))))
}

fn matching(usable: &[&Interface], names: &str) -> Vec<Interface> {
    let (names, excluded) = names.strip_prefix('^').map_or((names, false), |rest| (rest, true));
    let (names, exact) = names.strip_prefix('=').map_or((names, false), |rest| (rest, true));
    // NCCL's syntax allows a port after the name (`eth0:4711`); interfaces ignore it.
    let names: Vec<&str> = names
        .split(',')
        .filter_map(|name| name.split(':').next())
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let mut chosen: Vec<Interface> = Vec::new();
    for interface in usable {
        let named =
            names.iter().any(|name| if exact { interface.name == *name } else { interface.name.starts_with(name) });
        let new = chosen.iter().all(|other| other.name != interface.name);
        if named != excluded && new && chosen.len() < MOST_INTERFACES {
            chosen.push((*interface).clone());
        }
    }
    chosen
}

fn describe(all: &[Interface]) -> String {
    if all.is_empty() {
        return "no interface with an address".into();
    }
    let each = |interface: &Interface| {
        let down = if interface.up { "" } else { ", down" };
        format!("{} ({}{down})", interface.name, interface.address)
    };
    all.iter().map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface {
            name: name.into(),
            index: 7,
            address: address.parse().unwrap(),
            prefix_len: 24,
            up: true,
            loopback: name == "lo",
            speed_mbps: None,
        }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1"),
            interface("eth0", "10.0.0.1"),
            interface("eth1", "10.0.1.1"),
            interface("eth10", "10.0.2.1"),
            interface("docker0", "172.17.0.1"),
            Interface { up: false, ..interface("eth9", "10.0.9.1") },
            interface("lo", "::1"),
            interface("eth0", "2001:db8::1"),
            interface("eth0", "fe80::1"),
            interface("eth6", "fe80::6"),
        ]
    }

    fn names(chosen: &[Interface]) -> String {
        chosen.iter().map(|interface| format!("{}={}", interface.name, interface.address)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn chooses_as_nccl_does() {
        let v4 = "eth0=10.0.0.1 eth1=10.0.1.1 eth10=10.0.2.1";
        for (ifname, family, chosen) in [
            (None, None, format!("{v4} eth6=fe80::6")),
            (Some(""), Some(""), format!("{v4} eth6=fe80::6")),
            (None, Some("AF_INET"), v4.into()),
            (None, Some("AF_INET6"), "eth0=2001:db8::1 eth6=fe80::6".into()),
            (Some("eth1"), None, "eth1=10.0.1.1 eth10=10.0.2.1".into()),
            (Some("=eth1"), None, "eth1=10.0.1.1".into()),
            (Some("=eth1,eth0"), None, "eth0=10.0.0.1 eth1=10.0.1.1".into()),
            (Some("^eth,docker"), None, "lo=127.0.0.1".into()),
            (Some("^=eth1,lo"), Some("AF_INET"), "eth0=10.0.0.1 eth10=10.0.2.1 docker0=172.17.0.1".into()),
            (Some("lo"), None, "lo=127.0.0.1".into()),
            (Some("eth0:4711"), Some("AF_INET"), "eth0=10.0.0.1".into()),
        ] {
            assert_eq!(names(&choose(&host(), ifname, family).unwrap()), chosen, "{ifname:?} {family:?}");
        }
    }

    #[test]
    fn prefers_ib_and_falls_back_to_docker_then_lo() {
        let ib = [interface("eth0", "10.0.0.1"), interface("ib0", "10.1.0.1"), interface("ibs3", "10.1.1.1")];
        assert_eq!(names(&choose(&ib, None, None).unwrap()), "ib0=10.1.0.1 ibs3=10.1.1.1");
        let docker = [interface("lo", "127.0.0.1"), interface("docker0", "172.17.0.1")];
        assert_eq!(names(&choose(&docker, None, None).unwrap()), "docker0=172.17.0.1");
        assert_eq!(names(&choose(&docker[..1], None, None).unwrap()), "lo=127.0.0.1");
    }

    #[test]
    fn takes_at_most_sixteen() {
        let many: Vec<Interface> = (0..20).map(|i| interface(&format!("eth{i}"), &format!("10.0.{i}.1"))).collect();
        assert_eq!(choose(&many, None, None).unwrap().len(), MOST_INTERFACES);
    }

    #[test]
    fn names_the_variable_and_what_there_is() {
        for (ifname, family, says) in [
            (
                Some("ib"),
                None,
                "no network interface matches NCCL_SOCKET_IFNAME=ib; this host has lo (127.0.0.1), eth0",
            ),
            (Some("eth9"), None, "eth9 (10.0.9.1, down)"),
            (Some("=eth1"), Some("AF_INET6"), "matches NCCL_SOCKET_IFNAME==eth1 and NCCL_SOCKET_FAMILY=AF_INET6;"),
            (None, Some("inet"), "NCCL_SOCKET_FAMILY=inet: AF_INET or AF_INET6 is possible"),
        ] {
            let error = choose(&host(), ifname, family).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(choose(&[], None, None).unwrap_err().to_string().contains("no interface with an address"));
    }

    #[test]
    fn knows_its_subnet() {
        let own = interface("eth0", "10.0.0.1");
        assert!(own.same_subnet("10.0.0.200".parse().unwrap()));
        assert!(!own.same_subnet("10.0.1.1".parse().unwrap()));
        assert!(!own.same_subnet("fe80::1".parse().unwrap()));
        assert!(Interface { prefix_len: 0, ..own }.same_subnet("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn lists_this_host() {
        let all = list().unwrap();
        let lo = all.iter().find(|interface| interface.address.to_string() == "127.0.0.1").unwrap();
        assert!(lo.loopback && lo.up && lo.index > 0 && lo.prefix_len == 8);
    }
}
