//! Network interfaces that sockets may use.

use super::area_report::{AreaReport, listed};
use super::{counters, ports};
use crate::interfaces::is_inner;
use busbw_model::node::NetInterface;
use busbw_model::{Code, NodeFacts};

/// The variable that names interfaces.
pub(super) const SOCKET_INTERFACES: &str = "NCCL_SOCKET_IFNAME";
/// From this speed on, small rings and single queues lose packets or bind the traffic to one core.
const FAST_MBPS: u64 = 10_000;
const SMALL_RING: u32 = 1024;

/// Whether an interface may lead to other nodes: a card, or what software made of cards.
pub(super) fn is_outward(interface: &NetInterface) -> bool {
    !is_inner(&interface.name)
        && (!interface.software || !interface.addresses.is_empty() || interface.name.starts_with("bond"))
}

/// Interfaces of software have no carrier to speak of, and are `unknown`.
pub(super) fn is_up(interface: &NetInterface) -> bool {
    matches!(interface.state.as_str(), "up" | "unknown")
}

/// Interfaces that are up and may lead to other nodes.
fn up(node: &NodeFacts) -> impl Iterator<Item = &NetInterface> {
    node.interfaces.iter().filter(|interface| is_outward(interface) && is_up(interface))
}

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    // Commands show some interfaces only.
    if up(node).next().is_none() && !node.partial {
        let remedy = "Bring one up: `ip link; sudo ip link set eth0 up`";
        report.fail("interfaces", "none is up", Some(Code::NetUnreachable), remedy);
    }
    for interface in up(node) {
        link(interface, report);
        rings(interface, report);
    }
    for interface in &node.interfaces {
        counters::check(interface, report);
    }
    ports::told_by_commands(node, report);
    let down = node.interfaces.iter().filter(|interface| is_outward(interface) && !is_up(interface));
    let down: Vec<&str> = down.map(|interface| interface.name.as_str()).collect();
    if !down.is_empty() {
        report.skip("interfaces", format!("down: {}: does the job use it?", listed(&down)));
    }
    chosen(node, report);
}

fn link(interface: &NetInterface, report: &mut AreaReport) {
    let speed = interface.speed_mbps.map(|speed| format!("{} Gbit/s", speed as f64 / 1000.0));
    let parts = [
        Some(interface.state.clone()),
        speed,
        interface.duplex.as_ref().map(|duplex| format!("{duplex} duplex")),
        interface.mtu.map(|mtu| format!("MTU {mtu}")),
        interface.driver.clone(),
        interface.addresses.first().cloned(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let detail = parts.join(", ");
    let report = report.about(&interface.name);
    if interface.duplex.as_deref() == Some("half") {
        let remedy =
            format!("The ends did not agree: let both negotiate: `sudo ethtool -s {} autoneg on`", interface.name);
        report.fail("interface", detail, Some(Code::NicRate), remedy);
    } else {
        report.ok("interface", detail);
    }
}

fn rings(interface: &NetInterface, report: &mut AreaReport) {
    let name = &interface.name;
    let is_fast = interface.speed_mbps.is_some_and(|speed| speed >= FAST_MBPS);
    if is_fast && interface.rx_queues == 1 && !interface.software {
        let remedy = format!("One queue uses only one core: `sudo ethtool -L {name} combined 8`");
        report.about(name).warn("queues", "1 to receive", Some(Code::SocketTuning), remedy);
    } else if !interface.software {
        let detail = format!("{} to receive, {} to send", interface.rx_queues, interface.tx_queues);
        report.about(name).ok("queues", detail);
    }
    let Some(rings) = &interface.rings else { return };
    let detail = format!("{} of {} to receive, {} of {} to send", rings.rx, rings.rx_most, rings.tx, rings.tx_most);
    if is_fast && rings.rx < SMALL_RING.min(rings.rx_most) {
        let remedy = format!("Packets that come in a burst are lost: `sudo ethtool -G {name} rx {}`", rings.rx_most);
        report.about(name).warn("rings", detail, Some(Code::SocketTuning), remedy);
    } else {
        report.about(name).ok("rings", detail);
    }
}

fn chosen(node: &NodeFacts, report: &mut AreaReport) {
    let Some(list) = node.environment.get(SOCKET_INTERFACES) else { return };
    let Some(what) = misnamed(node) else { return report.ok(SOCKET_INTERFACES, list) };
    let there: Vec<&str> = up(node).map(|interface| interface.name.as_str()).collect();
    let remedy = format!("Name an interface that is up: {}; or `unset {SOCKET_INTERFACES}`", listed(&there));
    report.fail(SOCKET_INTERFACES, format!("{list}: {what}"), Some(Code::NetWrongInterface), remedy);
}

/// What is wrong with NCCL_SOCKET_IFNAME, where it leaves no interface that is up. It lists prefixes; `=` makes them names,
/// `^` excludes.
pub(super) fn misnamed(node: &NodeFacts) -> Option<&'static str> {
    let list = node.environment.get(SOCKET_INTERFACES)?;
    let (excludes, names) = list.strip_prefix('^').map_or((false, list.as_str()), |names| (true, names));
    let (exact, names) = names.strip_prefix('=').map_or((false, names), |names| (true, names));
    let names: Vec<&str> = names.split(',').map(|name| name.split(':').next().unwrap_or_default()).collect();
    let named =
        |interface: &str| names.iter().any(|name| if exact { *name == interface } else { interface.starts_with(name) });
    let leaves_one = up(node).any(|interface| named(&interface.name) != excludes);
    match excludes {
        _ if leaves_one => None,
        true => Some("leaves out every interface that is up"),
        false if names.contains(&"lo") => None,
        false => Some("no such interface is up"),
    }
}
