//! The shortest ways to NICs: at each switch the links to neighbours that are one hop nearer.
//!
//! NICs on the same switches are reached over the same links but for the last hop, so that ways are searched once for all
//! of them.

use super::plant::{Plant, Vertex};
use crate::fabric::LinkId;
use crate::traffic::Port;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The next links towards NICs.
#[derive(Debug)]
pub struct NextHops {
    /// The group of NICs that a NIC belongs to: those cabled to the same switches.
    group_of: HashMap<Vertex, usize>,
    /// Per group and switch, the next links to switches that are nearer.
    towards: Vec<Vec<NextLinks>>,
    /// From a switch or NIC straight to a NIC.
    last: HashMap<(Vertex, Vertex), Vec<LinkId>>,
    /// From a NIC to the switches that are nearest to a group.
    first: HashMap<(Vertex, usize), Vec<LinkId>>,
}

/// Equal next links. Most switches are on no way to most groups.
type NextLinks = Box<[LinkId]>;

/// Of a switch that does not reach a group.
const FAR: u32 = u32::MAX;

impl NextHops {
    /// The ways of `ports`, pairs of sender and receiver. NICs without a cable are left out.
    pub fn find(plant: &Plant, ports: &[(Port, Port)]) -> NextHops {
        let pairs = ports.iter().filter_map(|(from, to)| Some((plant.nic(*from)?, plant.nic(*to)?)));
        let pairs: HashSet<(Vertex, Vertex)> = pairs.collect();
        let mut senders_to: BTreeMap<Vertex, Vec<Vertex>> = BTreeMap::new();
        for (from, to) in pairs {
            senders_to.entry(to).or_default().push(from);
        }
        let mut ways =
            NextHops { group_of: HashMap::new(), towards: Vec::new(), last: HashMap::new(), first: HashMap::new() };
        let mut groups: BTreeMap<Vec<Vertex>, Vec<Vertex>> = BTreeMap::new();
        for &nic in senders_to.keys() {
            groups.entry(ways.add_last_hops(plant, nic)).or_default().push(nic);
        }
        for (switches, nics) in groups {
            let distances = distances(plant, &switches);
            let group = ways.towards.len();
            ways.towards.push((0..distances.len()).map(|vertex| nearer(plant, &distances, vertex as Vertex)).collect());
            for nic in nics {
                ways.group_of.insert(nic, group);
                for &sender in senders_to.get(&nic).into_iter().flatten() {
                    ways.first.entry((sender, group)).or_insert_with(|| nearest(plant, &distances, sender));
                }
            }
        }
        ways
    }

    /// Notes the links that end at a NIC; returns the switches where they start.
    fn add_last_hops(&mut self, plant: &Plant, nic: Vertex) -> Vec<Vertex> {
        let mut switches: Vec<Vertex> = Vec::new();
        for &link in &plant.arriving[nic as usize] {
            let from = plant.links[link as usize].from;
            self.last.entry((from, nic)).or_default().push(link);
            if plant.is_switch(from) {
                switches.push(from);
            }
        }
        switches.sort_unstable();
        switches.dedup();
        switches
    }

    /// The equal next links from a switch or NIC towards a NIC; none where it is not reached.
    pub fn next(&self, at: Vertex, to: Vertex) -> &[LinkId] {
        if let Some(links) = self.last.get(&(at, to)) {
            return links;
        }
        let Some(&group) = self.group_of.get(&to) else { return &[] };
        match self.towards[group].get(at as usize) {
            Some(links) => links,
            None => self.first.get(&(at, group)).map_or(&[], Vec::as_slice),
        }
    }
}

/// Hops from each switch to the nearest of `switches`. NICs pass nothing on.
fn distances(plant: &Plant, switches: &[Vertex]) -> Vec<u32> {
    let count = (0..plant.vertices()).take_while(|&vertex| plant.is_switch(vertex as Vertex)).count();
    let mut distances = vec![FAR; count];
    let mut here = switches.to_vec();
    let mut hops = 0;
    for &switch in switches {
        distances[switch as usize] = 0;
    }
    while !here.is_empty() {
        hops += 1;
        let mut there = Vec::new();
        for &link in here.iter().flat_map(|&switch| &plant.arriving[switch as usize]) {
            let from = plant.links[link as usize].from;
            if let Some(distance) = distances.get_mut(from as usize).filter(|distance| **distance == FAR) {
                *distance = hops;
                there.push(from);
            }
        }
        here = there;
    }
    distances
}

/// The links from a switch to those that are one hop nearer, ordered by their names and then as listed.
fn nearer(plant: &Plant, distances: &[u32], switch: Vertex) -> NextLinks {
    let distance = distances[switch as usize];
    if distance == 0 || distance == FAR {
        return NextLinks::default();
    }
    sorted(plant, plant.leaving[switch as usize].iter().copied(), |to| {
        distances.get(to as usize) == Some(&(distance - 1))
    })
    .into_boxed_slice()
}

/// The links from a NIC to those of its switches that are nearest.
fn nearest(plant: &Plant, distances: &[u32], nic: Vertex) -> Vec<LinkId> {
    let leaving = || plant.leaving[nic as usize].iter().copied();
    let distance = |link: LinkId| distances.get(plant.links[link as usize].to as usize).copied().unwrap_or(FAR);
    match leaving().map(distance).min() {
        Some(least) if least != FAR => sorted(plant, leaving(), |to| distances.get(to as usize) == Some(&least)),
        _ => Vec::new(),
    }
}

fn sorted(plant: &Plant, links: impl Iterator<Item = LinkId>, leads_to: impl Fn(Vertex) -> bool) -> Vec<LinkId> {
    let mut chosen: Vec<LinkId> = links.filter(|&link| leads_to(plant.links[link as usize].to)).collect();
    chosen.sort_by_key(|&link| plant.links[link as usize].to);
    chosen
}
