//! The rules. Each is a function from a case to findings; a new one is a file here and a line in [`ALL`].

mod channels;
pub(crate) mod copies;
mod device_lists;
pub(crate) mod ends;
pub(crate) mod environment;
mod fabric_congestion;
mod gdr;
pub(crate) mod hang;
pub(crate) mod hello;
pub(crate) mod hosts;
mod interface;
mod known_faults;
mod launch;
pub(crate) mod launch_command;
pub(crate) mod links;
mod nic_far;
mod nic_unused;
mod odd_one;
mod p2p;
mod pcie_topology;
mod peers;
mod results;
mod saved;
mod shapes;
pub(crate) mod signatures;
pub(crate) mod skew;
mod sockets;
mod stacks;
pub(crate) mod start;
mod straggler;
pub(crate) mod transport;
mod versions;
pub(crate) mod watched;
mod wire_signs;
pub(crate) mod wire_test;
pub(crate) mod witnesses;

use crate::case::Case;
pub(crate) use crate::findings::{found, sound};
use busbw_model::Finding;

pub type Rule = fn(&Case) -> Vec<Finding>;

/// A rule with its name and what it goes by.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The name: that of its file, and of the function where a file has several.
    pub name: &'static str,
    pub basis: Basis,
    pub rule: Rule,
}

/// What findings rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Measured speed, results, or who took part: a run that ended well does not disprove it.
    Speed,
    /// What a machine is: no run disproves it.
    Machine,
    Log,
    /// Measured speed, as an answer to somebody who told the hardware.
    Answer,
}

const fn on_speed(name: &'static str, rule: Rule) -> Entry {
    Entry { name, basis: Basis::Speed, rule }
}

const fn on_log(name: &'static str, rule: Rule) -> Entry {
    Entry { name, basis: Basis::Log, rule }
}

pub const ALL: &[Entry] = &[
    on_speed("fabric_congestion", fabric_congestion::rule),
    on_speed("transport::measured", transport::measured),
    on_log("transport::logged", transport::logged),
    on_log("environment", environment::rule),
    on_speed("environment::forced", environment::forced),
    on_log("environment::unknown", environment::unknown),
    on_log("signatures", signatures::rule),
    on_log("known_faults", known_faults::rule),
    on_speed("shapes", shapes::rule),
    on_speed("skew", skew::rule),
    on_speed("peers", peers::rule),
    on_speed("device_lists", device_lists::rule),
    on_speed("launch::repeated", launch::repeated),
    on_log("launch::alone", launch::alone),
    on_log("launch::beyond", launch::beyond),
    on_log("launch::too_many", launch::too_many),
    on_log("interface::taken", interface::taken),
    on_log("interface::without_address", interface::without_address),
    on_speed("gdr", gdr::rule),
    on_log("nic_far", nic_far::rule),
    on_log("nic_unused", nic_unused::rule),
    on_log("p2p", p2p::rule),
    on_log("pcie_topology", pcie_topology::rule),
    on_log("channels", channels::rule),
    on_log("sockets", sockets::rule),
    on_log("odd_one::networks", odd_one::networks),
    on_speed("odd_one::apart", odd_one::apart),
    on_log("start", start::rule),
    on_speed("versions", versions::rule),
    Entry { name: "pcie_topology::apart", basis: Basis::Machine, rule: pcie_topology::apart },
    Entry { name: "hosts", basis: Basis::Machine, rule: hosts::rule },
    Entry { name: "copies", basis: Basis::Machine, rule: copies::rule },
    Entry { name: "copies::detours", basis: Basis::Machine, rule: copies::detours },
    Entry { name: "hello", basis: Basis::Machine, rule: hello::rule },
    Entry { name: "links", basis: Basis::Machine, rule: links::rule },
    on_speed("saved", saved::rule),
    on_speed("wire_test", wire_test::rule),
    on_speed("wire_test::stalls", wire_test::stalls),
    on_speed("wire_test::loses", wire_test::loses),
    on_log("wire_signs::small_packets", wire_signs::small_packets),
    on_log("wire_signs::counted", wire_signs::counted),
    on_log("witnesses", witnesses::rule),
    on_speed("witnesses::ras_errors", witnesses::ras_errors),
    on_log("stacks", stacks::rule),
    on_speed("watched", watched::rule),
    on_speed("straggler", straggler::rule),
    on_speed("results::wrong_data", results::wrong_data),
    on_speed("results::contradicting", results::contradicting),
    on_speed("results::below_minimum", results::below_minimum),
    on_log("results::too_small", results::too_small),
];
