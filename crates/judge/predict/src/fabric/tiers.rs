//! Fabrics whose shape is a rule: one switch, leaves and spines, three levels, rails, a switch per host.
//!
//! Links are numbered so that those among which a switch chooses stand next to each other: a way is found by arithmetic,
//! without tables.

use super::naming::Names;
use super::{FlowEnds, LinkId, check_links, check_rate};
use crate::cluster::{Cluster, Cores, Uplinks, Wiring};
use crate::simulation::SimulationError;
use crate::traffic::Port;
use std::ops::Range;

/// A fabric of leaves, joined in one of four ways.
#[derive(Debug)]
pub struct Tiers {
    leaves: Leaves,
    joined: Joined,
    names: Names,
}

/// Which leaf a NIC is on.
#[derive(Debug, Clone, Copy)]
enum Leaves {
    OfNodes { nodes_per_leaf: u32 },
    OfRails { nodes_per_group: u32, rails: u32 },
}

#[derive(Debug)]
enum Joined {
    Apart,
    /// Each to each: `[from][to][link]`.
    Directly {
        leaves: u32,
        between: Bundle,
    },
    /// Over spines: up `[leaf][spine][link]`, down the same.
    OverSpines {
        spines: Spines,
    },
    /// Over the spines of a pod, and between pods over cores: core links up `[pod][spine][core][link]`, down
    /// `[pod][core][spine][link]`.
    OverCores {
        spines: Spines,
        leaves_per_pod: u32,
        cores: u32,
        core_up: Bundle,
        core_down: Bundle,
    },
}

#[derive(Debug)]
struct Spines {
    count: u32,
    up: Bundle,
    down: Bundle,
}

/// Links of one tier in one direction.
#[derive(Debug, Clone, Copy)]
struct Bundle {
    first: LinkId,
    end: LinkId,
    /// Parallel links between two switches.
    parallel: u32,
    rate: f64,
}

impl Bundle {
    /// `pairs` pairs of switches with parallel links, numbered from `first`.
    fn new(first: LinkId, pairs: Option<usize>, uplinks: &Uplinks, payload: f64) -> Result<Bundle, SimulationError> {
        if uplinks.count == 0 {
            return Err(SimulationError::Zero { of: "parallel links between switches" });
        }
        let links = pairs.and_then(|pairs| pairs.checked_mul(uplinks.count)?.checked_add(first as usize));
        let end = check_links(links)?;
        let rate = check_rate(uplinks.rate.0 * payload, "links between switches")?;
        Ok(Bundle { first, end, parallel: uplinks.count as u32, rate })
    }

    /// The links of pairs `pair` to `pair + pairs`.
    fn of(&self, pair: u32, pairs: u32) -> Range<LinkId> {
        let first = self.first + pair * self.parallel;
        first..first + pairs * self.parallel
    }

    /// Which pair of switches a link joins.
    fn pair(&self, link: LinkId) -> u32 {
        (link - self.first) / self.parallel.max(1)
    }
}

impl Tiers {
    /// The tiers of a wiring that is not a list of cables.
    pub fn new(wiring: &Wiring, cluster: &Cluster, payload: f64) -> Result<Tiers, SimulationError> {
        let nodes = cluster.nodes.max(1);
        let rails = cluster.nics.as_ref().map_or(1, |nics| nics.count).max(1);
        let (leaves, count) = leaves(wiring, nodes, rails)?;
        let joined = match wiring {
            _ if count == 1 => Joined::Apart,
            Wiring::SingleSwitch | Wiring::Explicit { .. } => Joined::Apart,
            Wiring::RailOptimised { spines: 0, .. } => Joined::Apart,
            Wiring::RailOptimised { spines, uplinks, .. } | Wiring::LeafSpine { spines, uplinks, cores: None, .. } => {
                Joined::OverSpines { spines: Spines::new(count, *spines, uplinks, payload)? }
            }
            Wiring::LeafSpine { spines, uplinks, cores: Some(cores), .. } => {
                over_cores(count, Spines::new(count, *spines, uplinks, payload)?, cores, payload)?
            }
            Wiring::HostToSwitch { between } => Joined::Directly {
                leaves: check_links(Some(count))?,
                between: Bundle::new(0, count.checked_mul(count), between, payload)?,
            },
        };
        Ok(Tiers { leaves, joined, names: Names::of(wiring, rails) })
    }

    pub fn links(&self) -> usize {
        self.bundles().last().map_or(0, |bundle| bundle.end as usize)
    }

    fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        let bundles: [Option<&Bundle>; 4] = match &self.joined {
            Joined::Apart => [None; 4],
            Joined::Directly { between, .. } => [Some(between), None, None, None],
            Joined::OverSpines { spines } => [Some(&spines.up), Some(&spines.down), None, None],
            Joined::OverCores { spines, core_up, core_down, .. } => {
                [Some(&spines.up), Some(&spines.down), Some(core_up), Some(core_down)]
            }
        };
        bundles.into_iter().flatten()
    }

    pub fn rate(&self, link: LinkId) -> f64 {
        self.bundles().find(|bundle| link < bundle.end).map_or(f64::INFINITY, |bundle| bundle.rate)
    }

    pub fn name(&self, link: LinkId) -> String {
        let Some((tier, bundle)) = self.bundles().enumerate().find(|(_, bundle)| link < bundle.end) else {
            return format!("link {link}");
        };
        let pair = bundle.pair(link);
        let ends = match (&self.joined, tier) {
            (Joined::Apart, _) => String::new(),
            (Joined::Directly { leaves, .. }, _) => self.names.direct(pair / leaves, pair % leaves),
            (Joined::OverSpines { spines }, 0) => self.names.up(pair / spines.count, None, pair % spines.count),
            (Joined::OverSpines { spines }, _) => self.names.down(pair / spines.count, None, pair % spines.count),
            (Joined::OverCores { spines, leaves_per_pod, cores, .. }, _) => {
                let (leaf, spine) = (pair / spines.count, pair % spines.count);
                let pod = Some(leaf / leaves_per_pod);
                let of_pod = pair / (spines.count * cores);
                match tier {
                    0 => self.names.up(leaf, pod, spine),
                    1 => self.names.down(leaf, pod, spine),
                    2 => self.names.core_up(of_pod, pair / cores % spines.count, pair % cores),
                    _ => self.names.core_down(of_pod, spine, pair / spines.count % cores),
                }
            }
        };
        match bundle.parallel {
            1 => ends,
            parallel => format!("{ends}, link {}", (link - bundle.first) % parallel),
        }
    }

    /// The leaves of a flow's two ends; none where they are not joined.
    pub fn journey(&self, from: Port, to: Port) -> Option<FlowEnds> {
        let journey = FlowEnds { from: self.leaves.of(from), to: self.leaves.of(to) };
        if journey.from == journey.to {
            return Some(journey);
        }
        let mut reaches = !matches!(self.joined, Joined::Apart);
        self.spread(journey, |links, _| reaches &= !links.is_empty());
        reaches.then_some(journey)
    }

    pub fn walk(&self, journey: FlowEnds, mut choose: impl FnMut(u32) -> u32, mut take: impl FnMut(LinkId)) {
        let FlowEnds { from, to } = journey;
        if from == to {
            return;
        }
        // Takes one of the links and says which it is among them.
        let mut step = |links: Range<LinkId>| {
            let chosen = choose(links.len() as u32);
            take(links.start + chosen);
            chosen
        };
        match &self.joined {
            Joined::Apart => (),
            Joined::Directly { leaves, between } => {
                step(between.of(from * leaves + to, 1));
            }
            Joined::OverSpines { spines } => {
                let spine = step(spines.above(from)) / spines.up.parallel;
                step(spines.down.of(to * spines.count + spine, 1));
            }
            Joined::OverCores { spines, leaves_per_pod, cores, core_up, core_down } => {
                let mut spine = step(spines.above(from)) / spines.up.parallel;
                let (pod, other) = (from / leaves_per_pod, to / leaves_per_pod);
                if pod != other {
                    let core = step(core_up.of((pod * spines.count + spine) * cores, *cores)) / core_up.parallel;
                    let first = (other * cores + core) * spines.count;
                    spine = step(core_down.of(first, spines.count)) / core_down.parallel;
                }
                step(spines.down.of(to * spines.count + spine, 1));
            }
        }
    }

    /// All links of a tier among which a flow can choose are alike, so that each gets the same part of it.
    pub fn spread(&self, journey: FlowEnds, mut add: impl FnMut(Range<LinkId>, f64)) {
        let FlowEnds { from, to } = journey;
        if from == to {
            return;
        }
        let mut evenly = |links: Range<LinkId>| {
            let part = 1.0 / links.len().max(1) as f64;
            add(links, part);
        };
        match &self.joined {
            Joined::Apart => (),
            Joined::Directly { leaves, between } => evenly(between.of(from * leaves + to, 1)),
            Joined::OverSpines { spines } => {
                evenly(spines.above(from));
                evenly(spines.below(to));
            }
            Joined::OverCores { spines, leaves_per_pod, cores, core_up, core_down } => {
                evenly(spines.above(from));
                let (pod, other) = (from / leaves_per_pod, to / leaves_per_pod);
                if pod != other {
                    evenly(core_up.of(pod * spines.count * cores, spines.count * cores));
                    evenly(core_down.of(other * cores * spines.count, cores * spines.count));
                }
                evenly(spines.below(to));
            }
        }
    }
}

impl Spines {
    fn new(leaves: usize, count: usize, uplinks: &Uplinks, payload: f64) -> Result<Spines, SimulationError> {
        let pairs = leaves.checked_mul(count);
        let up = Bundle::new(0, pairs, uplinks, payload)?;
        let down = Bundle::new(up.end, pairs, uplinks, payload)?;
        Ok(Spines { count: count as u32, up, down })
    }

    fn above(&self, leaf: u32) -> Range<LinkId> {
        self.up.of(leaf * self.count, self.count)
    }

    fn below(&self, leaf: u32) -> Range<LinkId> {
        self.down.of(leaf * self.count, self.count)
    }
}

fn over_cores(leaves: usize, spines: Spines, cores: &Cores, payload: f64) -> Result<Joined, SimulationError> {
    if cores.leaves_per_pod == 0 {
        return Err(SimulationError::Zero { of: "leaves per pod" });
    }
    let pods = leaves.div_ceil(cores.leaves_per_pod);
    let pairs = pods.checked_mul(spines.count as usize).and_then(|pairs| pairs.checked_mul(cores.switches));
    let core_up = Bundle::new(spines.down.end, pairs, &cores.uplinks, payload)?;
    let core_down = Bundle::new(core_up.end, pairs, &cores.uplinks, payload)?;
    // A pod of more leaves than there are is the only one.
    let leaves_per_pod = cores.leaves_per_pod.min(leaves) as u32;
    Ok(Joined::OverCores { spines, leaves_per_pod, cores: cores.switches as u32, core_up, core_down })
}

/// The rule that puts NICs on leaves, and the number of leaves.
fn leaves(wiring: &Wiring, nodes: usize, rails: usize) -> Result<(Leaves, usize), SimulationError> {
    let per_leaf = match wiring {
        Wiring::SingleSwitch | Wiring::Explicit { .. } => nodes,
        Wiring::HostToSwitch { .. } => 1,
        Wiring::LeafSpine { nodes_per_leaf, .. } => *nodes_per_leaf,
        Wiring::RailOptimised { nodes_per_group, .. } => {
            let groups = nodes.checked_div(*nodes_per_group).ok_or(SimulationError::Zero { of: "nodes per group" })?;
            let groups = groups + usize::from(!nodes.is_multiple_of(*nodes_per_group));
            let count = groups.checked_mul(rails);
            let (nodes_per_group, rails) = (nodes_per_group.min(&nodes), rails);
            let rule = Leaves::OfRails { nodes_per_group: check_links(Some(*nodes_per_group))?, rails: rails as u32 };
            return Ok((rule, check_links(count)? as usize));
        }
    };
    if per_leaf == 0 {
        return Err(SimulationError::Zero { of: "nodes per leaf" });
    }
    let nodes_per_leaf = check_links(Some(per_leaf.min(nodes)))?;
    Ok((Leaves::OfNodes { nodes_per_leaf }, nodes.div_ceil(per_leaf)))
}

impl Leaves {
    fn of(self, port: Port) -> u32 {
        match self {
            Leaves::OfNodes { nodes_per_leaf } => port.node / nodes_per_leaf,
            Leaves::OfRails { nodes_per_group, rails } => port.node / nodes_per_group * rails + port.nic,
        }
    }
}
