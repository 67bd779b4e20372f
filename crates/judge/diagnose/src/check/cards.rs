//! Which RDMA ports are of one card: mlx5 makes a device of every port.

use super::ports::Port;
use busbw_model::NodeFacts;

/// The ports of a node, and the card of each.
pub(super) struct Cards<'a> {
    pub ports: &'a [Port<'a>],
    node: &'a NodeFacts,
}

impl<'a> Cards<'a> {
    pub fn of(node: &'a NodeFacts, ports: &'a [Port<'a>]) -> Self {
        Cards { ports, node }
    }

    /// Ports of a port's card, and how many of them are active.
    fn card(&self, at: Port) -> (usize, usize) {
        let of_card = || self.ports.iter().filter(|other| self.is_one_card(at, **other));
        (of_card().count(), of_card().filter(|port| port.is_active()).count())
    }

    /// Whether two ports are of cards of one kind, with equally many ports.
    pub fn are_equal(&self, one: Port, other: Port) -> bool {
        one.is_like(other) && self.card(one).0 == self.card(other).0
    }

    /// Whether a port that is down may be left free: at most half of its card's ports are used, and no equal card uses more.
    pub fn is_spare(&self, at: Port) -> bool {
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

/// `enp41s0` of `enp41s0f1np1`, `rocep1s0` of `rocep1s0f1`: how systemd names the functions of a card.
fn without_function(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let name = name.rsplit_once("np").filter(|(_, port)| is_number(port)).map_or(name, |(name, _)| name);
    let (card, function) = name.rsplit_once('f')?;
    (is_number(function) && card.ends_with(|c: char| c.is_ascii_digit())).then_some(card)
}
