//! Ports of RDMA devices: state, rate, MTU, GIDs, what keeps RoCE lossless.

use super::area_report::AreaReport;
use busbw_model::node::{Gid, GidKind, HcaList, NetInterface, RdmaDevice, RdmaPort};
use busbw_model::{Code, LinkLayer, NodeFacts};
use busbw_predict::cluster::NicProduct;

/// The variable that names devices.
pub(super) const HCAS: &str = "NCCL_IB_HCA";

/// The largest MTU of InfiniBand and RoCE.
const LARGEST_MTU: u32 = 4096;

/// A port and its device.
#[derive(Clone, Copy)]
struct Port<'a> {
    device: &'a RdmaDevice,
    port: &'a RdmaPort,
}

impl Port<'_> {
    /// `mlx5_0/1`.
    fn name(self) -> String {
        format!("{}/{}", self.device.name, self.port.port)
    }

    fn is_active(self) -> bool {
        self.port.state == "ACTIVE"
    }

    fn is_roce(self) -> bool {
        self.port.link_layer == Some(LinkLayer::Ethernet)
    }

    /// Only its GIDs are known, and tell that it is a port of RoCE.
    fn has_v2(self) -> bool {
        self.port.state.is_empty() && self.port.gids.iter().any(|gid| gid.kind == GidKind::RoceV2)
    }

    /// Cards of one type may be of different boards, and serve different networks: compute on InfiniBand, storage on Ethernet.
    fn is_like(self, other: Port) -> bool {
        let (device, others) = (self.device, other.device);
        let is_other_board = device.board.is_some() && others.board.is_some() && device.board != others.board;
        // `mlx5_0` beside `irdma0`: names by the driver.
        let driver =
            |device: &RdmaDevice| device.name.split(|c: char| !c.is_ascii_alphabetic()).next().map(str::to_string);
        device.hca_type == others.hca_type
            && driver(device) == driver(others)
            && !is_other_board
            && self.port.link_layer == other.port.link_layer
    }

    fn interface(self, node: &NodeFacts) -> Option<&NetInterface> {
        let is_its = |interface: &&NetInterface| {
            Some(interface.name.as_str()) == self.port.interface() || interface.rdma == Some(self.name())
        };
        node.interfaces.iter().find(is_its)
    }
}

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    let of = |device| move |port| Port { device, port };
    let ports: Vec<Port> = node.rdma.iter().flat_map(|device| device.ports.iter().map(of(device))).collect();
    let cards = Cards::of(node, &ports);
    for port in &ports {
        state(*port, node, &cards, report);
    }
    let active: Vec<Port> = ports.iter().copied().filter(|port| port.is_active()).collect();
    for port in &active {
        rate(*port, &cards, report);
    }
    for port in &active {
        mtu(node, *port, report);
    }
    // show_gids does not print the port's state.
    for port in ports.iter().filter(|port| port.is_active() && port.is_roce() || port.has_v2()) {
        gid(node, *port, report);
    }
    for port in active.iter().filter(|port| port.is_roce() && !node.partial) {
        quality_of_service(node, *port, report);
    }
}

/// A port that is down fails the node when others of its kind carry traffic or when none does. The second port of a card is often left
/// free: it is odd where equal cards use theirs, or a variable names it. One that is switched off or has no cable (`Disabled`) is odd
/// only among many that carry traffic, of cards with one port sooner.
fn state(at: Port, node: &NodeFacts, cards: &Cards, report: &mut AreaReport) {
    const ITEM: &str = "port state";
    let all = cards.ports;
    let layer = match at.port.link_layer {
        Some(LinkLayer::InfiniBand) => "InfiniBand",
        Some(LinkLayer::Ethernet) => "Ethernet (RoCE)",
        None => "unknown link layer",
    };
    let told = at.port.physical_state.iter().chain(&at.port.trouble).map(|told| format!(", {told}"));
    let detail = format!("{}{}, {layer}", at.port.state, told.collect::<String>());
    let report = report.about(at.name());
    if at.port.state.is_empty() {
        return report.skip(ITEM, "no command tells it");
    }
    if at.is_active() {
        if let Some(trouble) = &at.port.trouble {
            report.warn("link", trouble, Some(Code::NicRate), remedy_of_state(at));
        }
        return report.ok(ITEM, detail);
    }
    let until = format!("until it is up, leave it out: `export NCCL_IB_HCA=^{}`", at.device.name);
    let remedy = format!("{}; {until}", remedy_of_state(at));
    let (active, down): (Vec<Port>, Vec<Port>) = all.iter().partition(|other| other.is_active());
    let alike = |ports: &[Port]| ports.iter().filter(|other| other.is_like(at)).count();
    let is_off = at.port.physical_state.as_deref() == Some("Disabled");
    let usual = if cards.card(at).0 > 1 { 3 } else { 2 };
    let is_odd_one = alike(&active) > usual * alike(&down);
    let is_free = !active.is_empty() && !is_named(node, at) && (cards.is_spare(at) || is_off && !is_odd_one);
    if is_free {
        return report.skip(ITEM, format!("{detail}: is a cable meant to be in this port?"));
    }
    if alike(&active) > 0 || active.is_empty() {
        return report.fail(ITEM, detail, Some(Code::IbTransportError), remedy);
    }
    report.warn(ITEM, detail, Some(Code::IbTransportError), remedy);
}

/// Whether NCCL_IB_HCA names the device in full, so that NCCL is meant to use it.
fn is_named(node: &NodeFacts, at: Port) -> bool {
    let list = node.environment.get(HCAS).map(|value| HcaList::parse(value));
    list.is_some_and(|list| !list.excludes && list.names.iter().any(|(name, _)| *name == at.device.name))
}

fn remedy_of_state(Port { device, port }: Port) -> String {
    match port.interface() {
        _ if port.state == "INIT" || port.state == "ARMED" => {
            "The cable is in and no subnet manager has set the port up; see that one runs: `sudo sminfo; systemctl status opensm`".into()
        }
        // InfiniBand's link is up and the port is not: mlx5 shows a virtual function so until the subnet manager knows its GUID.
        None if port.physical_state.as_deref() == Some("LinkUp") => {
            "The cable is in and the port has no address from the subnet manager. A virtual function needs a GUID (`ip link set PF vf N \
             port_guid …`, then `state auto`), and a subnet manager that serves virtual functions (OpenSM: `virt_enabled 2`)".into()
        }
        Some(interface) => {
            format!("Bring its interface up, and check cable and switch port: `sudo ip link set {interface} up; ethtool {interface}`")
        }
        None => format!("Check cable, transceiver and switch port: `sudo mlxlink -d {} -p {} -m -c`", device.name, port.port),
    }
}

/// Ports of one kind of card should be equally fast, and as fast as the slowest board of that card. A few Ethernet ports that agree on
/// less may be of another network: no subnet manager makes all of RoCE alike.
fn rate(at: Port, cards: &Cards, report: &mut AreaReport) {
    let report = report.about(at.name());
    let Some(rate) = at.port.rate_gbps else { return report.skip("rate", "the driver does not tell") };
    let active = cards.ports.iter().filter(|other| other.is_active() && cards.are_equal(at, **other));
    let alike: Vec<f64> = active.filter_map(|other| other.port.rate_gbps).collect();
    let best = alike.iter().copied().fold(rate, f64::max);
    let product = at.device.hca_type.as_deref().and_then(NicProduct::find).filter(|_| !at.is_roce());
    let name = &at.device.name;
    if let Some(product) =
        product.filter(|product| rate >= best && product.infiniband.first().is_some_and(|least| rate < *least))
    {
        let sold: Vec<String> = product.infiniband.iter().map(f64::to_string).collect();
        let detail = format!("{rate} Gbit/s, where {} for InfiniBand has {}", product.name, sold.join(" or "));
        let remedy = format!(
            "A switch of an older generation allows no more: then this is as it must be. Else a cable, transceiver or lanes that did not come up: `sudo mlxlink -d {name} -m -c`"
        );
        return report.warn("rate", detail, Some(Code::NicRate), remedy);
    }
    if rate >= best {
        return report.ok("rate", format!("{rate} Gbit/s"));
    }
    let as_fast = |as_fast: f64| alike.iter().filter(|other| **other == as_fast).count();
    if at.is_roce() && (2..=as_fast(best)).contains(&as_fast(rate)) {
        return report.skip(
            "rate",
            format!("{rate} Gbit/s, where others have {best}: is it of another network, as for storage?"),
        );
    }
    let remedy = format!(
        "A cable, transceiver or switch port of an older generation, or lanes that did not come up: `sudo mlxlink -d {name} -m -c`; until then leave it out: `export NCCL_IB_HCA=^{name}`"
    );
    report.fail("rate", format!("{rate} of {best} Gbit/s"), Some(Code::NicRate), remedy);
}

fn mtu(node: &NodeFacts, at: Port, report: &mut AreaReport) {
    const ITEM: &str = "active MTU";
    let report = report.about(at.name());
    let Some(active) = at.port.active_mtu else {
        return report.skip(ITEM, "neither libibverbs nor an interface tells");
    };
    let interface = at.interface(node).filter(|_| at.is_roce());
    let carried = interface.and_then(|interface| interface.mtu);
    let carried = carried.map_or(String::new(), |mtu| format!(", its interface has {mtu}"));
    let most = at.port.max_mtu.unwrap_or(LARGEST_MTU);
    if active >= most {
        return report.ok(ITEM, format!("{active}{carried}"));
    }
    let remedy = if at.is_roce() {
        let name = at.port.interface().unwrap_or("IFACE");
        format!(
            "Small packets reduce the rate. Set 9000 on all hosts and on every switch port between them (4096 and headers need 4200): `sudo ip link set {name} mtu 9000`"
        )
    } else {
        "Set the MTU of the subnet manager's partition to 4096: `mtu=5` in its partitions.conf".into()
    };
    report.warn(ITEM, format!("{active} of {most}{carried}"), Some(Code::RoceConfig), remedy);
}

const GID: &str = "RoCE v2 GID";

/// NCCL takes the GID of RoCE v2 with an address of the family that it prefers (`ncclUpdateGidIndex` in
/// src/transport/net_ib), unless NCCL_IB_GID_INDEX says which.
fn gid(node: &NodeFacts, at: Port, report: &mut AreaReport) {
    let of_v2: Vec<&Gid> = at.port.gids.iter().filter(|gid| gid.kind == GidKind::RoceV2).collect();
    let best = of_v2.iter().copied().find(|gid| gid.ipv4().is_some());
    let best = best.or_else(|| of_v2.iter().copied().find(|gid| !gid.is_link_local()));
    let report = report.about(at.name());
    let asked = node.environment.get("NCCL_IB_GID_INDEX").and_then(|index| index.trim().parse::<i64>().ok());
    if let Some(index) = asked.filter(|index| *index >= 0) {
        return chosen(at.port, index, best, report);
    }
    let interface = at.port.interface().unwrap_or("eth0");
    let remedy = format!(
        "Give the interface an IPv4 address, from which the entry is made: `sudo ip address add 10.0.0.1/24 dev {interface}; show_gids`"
    );
    match (best, of_v2.first()) {
        (Some(gid), _) => {
            let address = if gid.ipv4().is_some() { "IPv4" } else { "IPv6" };
            report.ok(GID, format!("index {} ({address})", gid.index));
        }
        (None, Some(_)) if at.has_v2() => report.skip(GID, "has no address: is the port in use? `ibdev2netdev`"),
        (None, Some(gid)) => {
            let detail = format!("index {} is link-local, and no other has an address", gid.index);
            report.warn(GID, detail, Some(Code::RoceConfig), remedy);
        }
        (None, None) => report.fail(GID, "none", Some(Code::RoceConfig), remedy),
    }
}

/// The entry that NCCL_IB_GID_INDEX chooses.
fn chosen(port: &RdmaPort, index: i64, best: Option<&Gid>, report: &mut AreaReport) {
    let command =
        best.map_or("unset NCCL_IB_GID_INDEX".into(), |gid| format!("export NCCL_IB_GID_INDEX={}", gid.index));
    let remedy =
        format!("Choose the entry of RoCE v2 with the interface's address, or leave the choice to NCCL: `{command}`");
    let setting = format!("NCCL_IB_GID_INDEX={index}");
    let code = Some(Code::RoceConfig);
    match port.gids.iter().find(|gid| i64::from(gid.index) == index) {
        None => report.fail(GID, format!("{setting} is empty"), code, remedy),
        Some(gid) if gid.kind != GidKind::RoceV2 => report.fail(GID, format!("{setting} is RoCE v1"), code, remedy),
        Some(gid) if gid.is_link_local() => report.warn(GID, format!("{setting} is link-local"), code, remedy),
        Some(_) => report.ok(GID, format!("index {index}, as NCCL_IB_GID_INDEX says")),
    }
}

/// What keeps RoCE from losing packets.
pub(crate) const QOS: &str = "QoS";

/// What sysfs shows of the settings that keep RoCE lossless. Only some drivers show them.
fn quality_of_service(node: &NodeFacts, at: Port, report: &mut AreaReport) {
    let interface = at.interface(node);
    let told = at.port.quality_of_service(interface);
    let report = report.about(at.name());
    match interface.filter(|interface| is_lossy(interface)) {
        _ if told.is_empty() => report.skip(QOS, "its driver shows none in sysfs; `mlnx_qos -i IFACE` does"),
        Some(interface) => report.warn(QOS, told.join(", "), None, lossless(interface)),
        None => report.ok(QOS, told.join(", ")),
    }
}

/// What `mlnx_qos` shows of them: of interfaces, whether or not another command shows the RDMA port behind.
pub(super) fn told_by_commands(node: &NodeFacts, report: &mut AreaReport) {
    let of = |device| move |port| Port { device, port };
    for interface in node.interfaces.iter().filter(|_| node.partial) {
        let mut ports = node.rdma.iter().flat_map(|device| device.ports.iter().map(of(device)));
        let is_its = |port: Port| port.interface(node).is_some_and(|other| other.name == interface.name);
        let is_rdma = interface.rdma.is_some() || ports.any(is_its);
        let told = interface.quality_of_service().join(", ");
        if told.is_empty() {
            continue;
        }
        let report = report.about(&interface.name);
        if is_lossy(interface) && is_rdma {
            report.warn(QOS, told, None, lossless(interface));
        } else if is_lossy(interface) {
            let why = "does RDMA use this interface? Give the output of `ibdev2netdev`, and the run's log";
            report.skip(QOS, format!("({told}): {why}"));
        } else {
            report.ok(QOS, told);
        }
    }
}

/// Whether RDMA's packets are in no class with flow control, and ECN is not known to slow senders down either. A port that
/// trusts PCP has the packets without a VLAN tag in priority 0.
fn is_lossy(interface: &NetInterface) -> bool {
    let has_ecn = interface.ecn_priorities.as_ref().is_some_and(|priorities| !priorities.is_empty());
    let trusts_tags = interface.trust.as_deref() == Some("pcp");
    let is_without = |on: &Vec<u32>| on.is_empty() || trusts_tags && !on.contains(&0);
    !has_ecn && interface.pfc_priorities.as_ref().is_some_and(is_without)
}

fn lossless(interface: &NetInterface) -> String {
    let name = &interface.name;
    format!(
        "RoCE retransmits what the network drops. Trust DSCP, and enable flow control (PFC) for the class that is lossless on the switches, often 3: `sudo mlnx_qos -i {name} --trust dscp --pfc 0,0,0,1,0,0,0,0; export NCCL_IB_TC=106`"
    )
}

/// The ports of a node, and the card of each: mlx5 makes a device of every port.
struct Cards<'a> {
    ports: &'a [Port<'a>],
    node: &'a NodeFacts,
}

impl<'a> Cards<'a> {
    fn of(node: &'a NodeFacts, ports: &'a [Port<'a>]) -> Self {
        Cards { ports, node }
    }

    /// Ports of a port's card, and how many of them are active.
    fn card(&self, at: Port) -> (usize, usize) {
        let of_card = || self.ports.iter().filter(|other| self.is_one_card(at, **other));
        (of_card().count(), of_card().filter(|port| port.is_active()).count())
    }

    /// Whether two ports are of cards of one kind, with equally many ports.
    fn are_equal(&self, one: Port, other: Port) -> bool {
        one.is_like(other) && self.card(one).0 == self.card(other).0
    }

    /// Whether a port that is down may be left free: at most half of its card's ports are used, and no equal card uses more.
    fn is_spare(&self, at: Port) -> bool {
        let (ports, active) = self.card(at);
        let uses_more = |other: &&Port| self.are_equal(at, **other) && self.card(**other).1 > active;
        active > 0 && 2 * active <= ports && !self.ports.iter().any(|other| uses_more(&other))
    }

    /// What tells cards apart, the surest first: GUIDs, addresses on PCIe, names.
    fn is_one_card(&self, one: Port, other: Port) -> bool {
        let (a, b) = (one.device, other.device);
        if a.name == b.name {
            return true;
        }
        let guid = |guid: &Option<String>| guid.clone().filter(|guid| guid.contains(|c: char| c != '0'));
        if let (Some(a), Some(b)) = (guid(&a.system_guid), guid(&b.system_guid)) {
            return a == b;
        }
        if let (Some(a), Some(b)) = (&a.pci, &b.pci) {
            let slot = |address: &str| address.rsplit_once('.').map(|(slot, _)| slot.to_string());
            return slot(&a.address).is_some_and(|of_a| slot(&b.address) == Some(of_a));
        }
        without_function(name(one, self.node))
            .is_some_and(|card| without_function(name(other, self.node)) == Some(card))
    }
}

/// The interface of a port, else its device.
fn name<'a>(port: Port<'a>, node: &'a NodeFacts) -> &'a str {
    port.interface(node).map_or(&port.device.name, |interface| &interface.name)
}

/// `enp41s0` of `enp41s0f1np1`, `rocep1s0` of `rocep1s0f1`: how systemd names the functions of a card. It numbers the ports on the mainboard, `eno1`, `eno2`.
fn without_function(name: &str) -> Option<&str> {
    if name.starts_with("eno") {
        return Some("eno");
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let name = name.rsplit_once("np").filter(|(_, port)| is_number(port)).map_or(name, |(name, _)| name);
    let (card, function) = name.rsplit_once('f')?;
    (is_number(function) && card.ends_with(|c: char| c.is_ascii_digit())).then_some(card)
}
