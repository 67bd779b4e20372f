//! Network interfaces, from `/sys/class/net`; rings, firmware and addresses from the kernel where it is this machine's.

use super::{ethtool, pci};
use crate::{Ended, Program, Root};
use busbw_model::node::NetInterface;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use std::collections::BTreeMap;
use std::time::Duration;

const CLASS: &str = "/sys/class/net";
/// ARPHRD_LOOPBACK (the kernel's include/uapi/linux/if_arp.h).
const LOOPBACK: u32 = 772;
/// `dcb` asks the kernel once.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn collect(root: &Root) -> Vec<NetInterface> {
    let is_loopback = |name: &String| root.number(&format!("{CLASS}/{name}/type")) == Some(LOOPBACK);
    let is_interface = |name: &String| root.exists(&format!("{CLASS}/{name}/mtu"));
    let names = root.list(CLASS).into_iter().filter(|name| is_interface(name) && !is_loopback(name));
    names.map(|name| interface(root, name)).collect()
}

pub(super) fn interface(root: &Root, name: String) -> NetInterface {
    let at = |file: &str| format!("{CLASS}/{name}/{file}");
    let queues = root.list(&at("queues"));
    let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count() as u32;
    let driver = root.link_name(&at("device/driver"));
    let asked = if root.is_live() { ethtool::ask(&name) } else { ethtool::Answer::default() };
    NetInterface {
        state: root.value(&at("operstate")).unwrap_or_else(|| "unknown".into()),
        software: !root.exists(&at("device")),
        master: root.link_name(&at("master")),
        // A link that is down has -1, or an error.
        speed_mbps: root.number::<i64>(&at("speed")).filter(|speed| *speed > 0).map(i64::unsigned_abs),
        duplex: root.value(&at("duplex")).filter(|duplex| duplex != "unknown"),
        mtu: root.number(&at("mtu")),
        driver: driver.or(asked.driver),
        firmware: asked.firmware,
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        rings: asked.rings,
        addresses: if root.is_live() { addresses(&name) } else { Vec::new() },
        pci: pci::function(root, &at("device")),
        trust: root.value(&at("qos/trust")),
        ecn_priorities: priorities(root, &at("ecn/roce_np/enable")),
        pfc_priorities: match root.value(&at("qos/pfc")) {
            Some(text) => Some(switched_on((0..).zip(text.split_whitespace()))),
            None => Some(&name)
                .filter(|_| root.is_live() && root.exists(&at("device/infiniband")))
                .and_then(|name| dcb(name)),
        },
        rdma: None,
        counters: BTreeMap::new(),
        name,
    }
}

/// Priorities whose file says 1: `ecn/roce_np/enable/3`, as MLNX_OFED's mlx5_core shows them.
fn priorities(root: &Root, folder: &str) -> Option<Vec<u32>> {
    let read = |file: String| Some((file.parse().ok()?, root.value(&format!("{folder}/{file}"))?));
    let values: Vec<(u32, String)> = root.list(folder).into_iter().filter_map(read).collect();
    (!values.is_empty()).then(|| switched_on(values.iter().map(|(priority, value)| (*priority, value.as_str()))))
}

fn switched_on<'a>(values: impl Iterator<Item = (u32, &'a str)>) -> Vec<u32> {
    values.filter(|(_, value)| *value == "1").map(|(priority, _)| priority).collect()
}

/// What the kernel's DCB says, by iproute2's `dcb`: mainline's mlx5 and other drivers show PFC there, and not in sysfs.
fn dcb(interface: &str) -> Option<Vec<u32>> {
    // Not on the PATH of every user.
    let program = Program::find("dcb").unwrap_or_else(|| "/usr/sbin/dcb".into());
    let asked = Program::new(program, ["pfc", "show", "dev", interface, "prio-pfc"], PATIENCE);
    prio_pfc(&String::from_utf8_lossy(&asked.run().ok().filter(Ended::succeeded)?.output))
}

/// `prio-pfc 0:off 1:off 2:off 3:on …` (iproute2, dcb/dcb_pfc.c).
fn prio_pfc(said: &str) -> Option<Vec<u32>> {
    let (_, priorities) = said.split_once("prio-pfc ")?;
    let on = |word: &str| word.strip_suffix(":on")?.parse().ok();
    Some(priorities.split_whitespace().filter_map(on).collect())
}

fn addresses(interface: &str) -> Vec<String> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let mine = all.filter(|entry| entry.interface_name == interface);
    mine.filter_map(|entry| with_prefix(&entry.address?, entry.netmask.as_ref())).collect()
}

fn with_prefix(address: &SockaddrStorage, mask: Option<&SockaddrStorage>) -> Option<String> {
    if let Some(four) = address.as_sockaddr_in() {
        let length =
            mask.and_then(SockaddrStorage::as_sockaddr_in).map_or(32, |mask| u32::from(mask.ip()).count_ones());
        return Some(format!("{}/{length}", four.ip()));
    }
    let six = address.as_sockaddr_in6()?;
    let length = mask.and_then(SockaddrStorage::as_sockaddr_in6).map_or(128, |mask| u128::from(mask.ip()).count_ones());
    Some(format!("{}/{length}", six.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dcb_tells_priorities_with_flow_control() {
        let said = "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off \n";
        assert_eq!(prio_pfc(said), Some(vec![3]));
        assert_eq!(prio_pfc(&said.replace("on", "off")), Some(vec![]));
        assert_eq!(prio_pfc("pfc-cap 8 macsec-bypass off\n"), None);
    }

    /// A file that cannot be read moves none of the others to another priority.
    #[test]
    fn priorities_are_told_by_the_names_of_their_files() {
        let folder = tempfile::tempdir().unwrap();
        for (priority, value) in [("0", "0\n"), ("2", ""), ("3", "1\n"), ("10", "0\n")] {
            std::fs::write(folder.path().join(priority), value).unwrap();
        }
        let root = Root::captured(folder.path()).unwrap();
        assert_eq!(priorities(&root, "/"), Some(vec![3]));
        assert_eq!(priorities(&root, "/absent"), None);
    }
}
