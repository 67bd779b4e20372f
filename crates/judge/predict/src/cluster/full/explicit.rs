//! An explicit fabric: every switch and cable listed.

use super::Hosts;
use super::ends::{End, nics};
use crate::cluster::facts::NetworkFacts;
use crate::cluster::rate::Unit;
use crate::cluster::section::DescriptionError;
use crate::cluster::section::{Section, Stated};
use crate::cluster::{Cable, CableEnd, Uplinks, Wiring};
use std::collections::{BTreeMap, BTreeSet};

/// More cables than any fabric that is written by hand.
const MOST_CABLES: usize = 1_000_000;

/// Reads `[[fabric.switch]]` and `[[fabric.link]]`.
pub(super) fn read(section: &Section, hosts: &Hosts, network: &NetworkFacts) -> Result<Wiring, DescriptionError> {
    let count = network.count.or(hosts.machine.and_then(|machine| machine.nics)).ok_or_else(|| {
        section.error(section.at(), "an explicit fabric needs the NICs counted", "write count = 4 in [nic]")
    })?;
    if hosts.nodes.saturating_mul(count) > MOST_CABLES {
        return Err(too_many(section, section.at()));
    }
    let switches = switches(section)?;
    let mut list = CableList { section, nodes: hosts.nodes, nics: count, switches, cables: Vec::new() };
    for link in section.sections("link")? {
        list.add(&link)?;
        link.finish()?;
    }
    list.check_reach()?;
    let mut names: Vec<(usize, String)> = list.switches.into_iter().map(|(name, index)| (index, name)).collect();
    names.sort_unstable();
    Ok(Wiring::Explicit { switches: names.into_iter().map(|(_, name)| name).collect(), links: list.cables })
}

/// The switches by name, with their index.
fn switches(section: &Section) -> Result<BTreeMap<String, usize>, DescriptionError> {
    let mut found = BTreeMap::new();
    for switch in section.sections("switch")? {
        let name = switch.required_text("name", "\"leaf0\"")?;
        switch.finish()?;
        if End::read(name.value) != End::Switch(name.value) {
            let message = format!("a switch cannot be called {}, which is the name of a NIC", name.value);
            return Err(section.error(name.at, message, "write another name"));
        }
        let index = found.len();
        if found.insert(name.value.to_string(), index).is_some() {
            let message = format!("two switches are called {}", name.value);
            return Err(section.error(name.at, message, "write another name for one of them"));
        }
    }
    Ok(found)
}

fn too_many(section: &Section, at: usize) -> DescriptionError {
    let message = format!("the fabric has more than {MOST_CABLES} links");
    section.error(at, message, "write wiring = \"leaf-spine\" or \"rail-optimised\"")
}

/// `count = 4` and `rate = "400 Gbit/s"` of parallel links.
pub(super) fn links_of(section: &Section) -> Result<Uplinks, DescriptionError> {
    let rate = section.rate("rate", Unit::Bits)?;
    let rate = rate.ok_or_else(|| section.missing("rate", "write rate = \"400 Gbit/s\""))?;
    let count = section.at_least_one("count", "1")?.map_or(1, |count| count.value);
    Ok(Uplinks { count, rate: rate.value })
}

/// The cables of an explicit fabric while they are read.
struct CableList<'a, 'b> {
    section: &'b Section<'a>,
    nodes: usize,
    nics: usize,
    switches: BTreeMap<String, usize>,
    cables: Vec<Cable>,
}

impl CableList<'_, '_> {
    fn add(&mut self, link: &Section) -> Result<(), DescriptionError> {
        let (from, to) = (link.required_text("from", "\"node0.nic0\"")?, link.required_text("to", "\"leaf0\"")?);
        let uplinks = links_of(link)?;
        if End::read(from.value).is_many() && End::read(to.value).is_many() {
            let message = "both ends of a link stand for several NICs";
            return Err(self.section.error(to.at, message, "write * at one end only"));
        }
        let (from_ends, to_ends) = (self.ends(from)?, self.ends(to)?);
        if self.cables.len() + from_ends.len() * to_ends.len() > MOST_CABLES {
            return Err(too_many(self.section, from.at));
        }
        for a in &from_ends {
            for b in &to_ends {
                if a == b {
                    let message = format!("a link joins {} with itself", from.value);
                    return Err(self.section.error(to.at, message, "write the other end"));
                }
                self.cables.push(Cable { from: a.clone(), to: b.clone(), uplinks });
            }
        }
        Ok(())
    }

    fn ends(&self, end: Stated<&str>) -> Result<Vec<CableEnd>, DescriptionError> {
        match End::read(end.value) {
            End::Switch(name) => {
                let index = self.switches.get(name).ok_or_else(|| self.no_switch(end))?;
                Ok(vec![CableEnd::Switch(*index)])
            }
            End::Nics(node, nic) => {
                let beyond = |one: Option<usize>, count: usize| one.is_some_and(|one| one >= count);
                if beyond(node, self.nodes) || beyond(nic, self.nics) {
                    let (nodes, nics) = (self.nodes, self.nics);
                    let message = format!("{} is not there: there are {nodes} nodes with {nics} NICs each", end.value);
                    let last = format!("count from 0; the last is node{}.nic{}", nodes - 1, nics - 1);
                    return Err(self.section.error(end.at, message, last));
                }
                Ok(nics(node, nic, self.nodes, self.nics).collect())
            }
        }
    }

    fn no_switch(&self, end: Stated<&str>) -> DescriptionError {
        let mut names: Vec<&str> = self.switches.keys().take(9).map(String::as_str).collect();
        if names.len() == 9 {
            names[8] = "…";
        }
        let remedy = match names.is_empty() {
            true => "write [[fabric.switch]] with its name".to_string(),
            false => format!("write one of {}, or a NIC such as node0.nic0", names.join(", ")),
        };
        self.section.error(end.at, format!("there is no switch {}", end.value), remedy)
    }

    /// Every NIC must reach some NIC of every other node. Rails need not meet.
    fn check_reach(&self) -> Result<(), DescriptionError> {
        let mut groups = Groups::default();
        for cable in &self.cables {
            groups.join(self.index(&cable.from), self.index(&cable.to));
        }
        let mut reached: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let all: Vec<(usize, usize)> =
            (0..self.nodes).flat_map(|node| (0..self.nics).map(move |nic| (node, nic))).collect();
        for (node, nic) in &all {
            let group = groups.of(self.index(&CableEnd::Nic { node: *node, nic: *nic }));
            reached.entry(group).or_default().insert(*node);
        }
        let partial = |nodes: &BTreeSet<usize>| nodes.len() < self.nodes;
        for (node, nic) in all {
            let group = groups.of(self.index(&CableEnd::Nic { node, nic }));
            let Some(nodes) = reached.get(&group).filter(|nodes| partial(nodes)) else { continue };
            let other = (0..self.nodes).find(|other| !nodes.contains(other)).unwrap_or_default();
            let message = format!("node{node}.nic{nic} reaches no NIC of node{other} over the links");
            let remedy = format!("write [[fabric.link]] from node{node}.nic{nic} to a switch that leads there");
            return Err(self.section.error(self.section.at(), message, remedy));
        }
        Ok(())
    }

    /// Switches first, then NICs.
    fn index(&self, end: &CableEnd) -> usize {
        match end {
            CableEnd::Switch(index) => *index,
            CableEnd::Nic { node, nic } => self.switches.len() + node * self.nics + nic,
        }
    }
}

/// Which ends are connected: a forest with path halving.
#[derive(Default)]
struct Groups(BTreeMap<usize, usize>);

impl Groups {
    fn of(&mut self, end: usize) -> usize {
        let mut at = end;
        while let Some(parent) = self.0.get(&at).copied() {
            if let Some(grandparent) = self.0.get(&parent).copied() {
                self.0.insert(at, grandparent);
            }
            at = parent;
        }
        at
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        if a != b {
            self.0.insert(a, b);
        }
    }
}
