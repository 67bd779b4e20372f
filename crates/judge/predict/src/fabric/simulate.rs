//! From a cluster and its flows to a simulation.

use super::limits::{Direction, NodeLimits, payload};
use super::seeds::{Hashed, SAME, Tally, tally};
use super::spread::{Spread, spread};
use super::{FlowEnds, Network};
use crate::cluster::{Cluster, Routing};
use crate::load::Busiest;
use crate::simulation::{Distribution, FlowEntropy, LinkLoad, Options, Simulation, SimulationError};
use crate::traffic::{Port, Traffic, streams_per_connection};
use busbw_model::GBps;
use std::num::NonZero;

/// Routes the flows of `traffic` over the fabric of `cluster` under many hash seeds: what busbw large messages reach.
pub fn simulate(cluster: &Cluster, traffic: &Traffic, options: &Options) -> Result<Simulation, SimulationError> {
    let limits = NodeLimits::new(cluster, traffic)?;
    let routed = Routed::new(cluster, traffic)?;
    let hashed = routed.hashed(traffic, options.entropy, streams_per_connection(cluster))?;
    let unshared = limits.busbw();
    let (levels, mut links) = match cluster.fabric.routing {
        Routing::Adaptive => routed.adaptive(traffic, unshared),
        Routing::Hash => routed.over_seeds(&hashed, options, unshared),
    };
    // If no flow has a choice of paths, all seeds give the same result, so only one was simulated.
    let seeds = options.seeds.get() as usize;
    let of_seed = |seed: usize| levels.get(seed).or(levels.first()).copied().unwrap_or(f64::INFINITY);
    let per_seed: Vec<GBps> = (0..seeds).map(|seed| GBps(of_seed(seed).min(unshared))).collect();
    if let Some(ports) = ports(&limits, &per_seed) {
        links.push(ports);
    }
    links.sort_by(|a, b| worst_first(a).partial_cmp(&worst_first(b)).unwrap_or(std::cmp::Ordering::Equal));
    links.truncate(Simulation::MAX_LINKS);
    let none = Distribution { min: GBps(0.0), p5: GBps(0.0), p50: GBps(0.0), p95: GBps(0.0), max: GBps(0.0) };
    Ok(Simulation {
        busbw: Distribution::of(&per_seed).unwrap_or(none),
        per_seed,
        unshared: GBps(unshared),
        flows: hashed.len(),
        links,
        busiest: traffic.load.as_ref().and_then(|load| Busiest::of(load, cluster)),
        assumptions: assumptions(cluster, traffic, options),
    })
}

/// What sorts a link before others: it decides more often, it carries more for its rate.
fn worst_first(link: &LinkLoad) -> [f64; 3] {
    [-link.decides, -(link.flows_max as f64) / link.rate.0, -link.flows_mean / link.rate.0]
}

/// The flows of a run with their ends on a fabric.
pub struct Routed {
    pub network: Network,
    pub journeys: Vec<FlowEnds>,
}

impl Routed {
    pub fn new(cluster: &Cluster, traffic: &Traffic) -> Result<Routed, SimulationError> {
        let payload = cluster.nics.as_ref().map_or(1.0, |nics| payload(nics.transport));
        let ends: Vec<(Port, Port)> = traffic.flows.iter().map(|flow| (flow.from, flow.to)).collect();
        let network = Network::new(cluster, payload, &ends)?;
        let journeys = ends.iter().map(|&(from, to)| network.journey(from, to)).collect::<Result<_, _>>()?;
        Ok(Routed { network, journeys })
    }

    /// The flows that switches tell apart.
    pub fn hashed(
        &self,
        traffic: &Traffic,
        entropy: FlowEntropy,
        streams: u32,
    ) -> Result<Vec<Hashed>, SimulationError> {
        let streams_of = |connections: u32| match entropy {
            FlowEntropy::NicPair => streams,
            FlowEntropy::QueuePair => streams.saturating_mul(connections.max(1)),
        };
        let count: u64 = traffic.flows.iter().map(|flow| u64::from(streams_of(flow.connections))).sum();
        if count > Traffic::MAX_FLOWS as u64 {
            return Err(SimulationError::TooManyFlows);
        }
        let mut hashed = Vec::with_capacity(count as usize);
        for (number, (flow, &journey)) in (0u32..).zip(traffic.flows.iter().zip(&self.journeys)) {
            let streams = streams_of(flow.connections);
            let share = flow.share / f64::from(streams);
            hashed.extend((0..streams).map(|stream| Hashed::new(journey, number, stream, share)));
        }
        Ok(hashed)
    }

    fn over_seeds(&self, flows: &[Hashed], options: &Options, ceiling: f64) -> (Vec<f64>, Vec<LinkLoad>) {
        let chooses = self.journeys.iter().any(|&journey| self.network.chooses(journey));
        let seeds = if chooses { options.seeds.get() } else { 1 };
        let cores = || std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let tally = tally(&self.network, flows, seeds, ceiling, options.threads.unwrap_or_else(cores));
        let links = self.worst(&tally);
        (tally.levels, links)
    }

    /// The links that were worst over the seeds.
    fn worst(&self, tally: &Tally) -> Vec<LinkLoad> {
        let seeds = tally.levels.len().max(1) as f64;
        let load = |(link, of_link): (u32, &super::seeds::LinkTally)| LinkLoad {
            name: String::new(),
            rate: GBps(self.network.rate(link)),
            flows_mean: of_link.flows as f64 / seeds,
            flows_max: of_link.most as usize,
            decides: f64::from(of_link.decided) / seeds,
        };
        let used = (0u32..).zip(&tally.links).filter(|(_, of_link)| of_link.most > 0);
        let mut loads: Vec<(u32, LinkLoad)> = used.map(|(link, of_link)| (link, load((link, of_link)))).collect();
        loads.sort_by(|a, b| worst_first(&a.1).partial_cmp(&worst_first(&b.1)).unwrap_or(std::cmp::Ordering::Equal));
        loads.truncate(Simulation::MAX_LINKS);
        loads.into_iter().map(|(link, load)| LinkLoad { name: self.network.name(link), ..load }).collect()
    }

    fn adaptive(&self, traffic: &Traffic, ceiling: f64) -> (Vec<f64>, Vec<LinkLoad>) {
        let Spread { level, mut groups } = spread(&self.network, traffic, &self.journeys);
        let deciding = level.min(ceiling) * (1.0 + SAME);
        groups.sort_by(|a, b| a.level.total_cmp(&b.level).then(a.links.start.cmp(&b.links.start)));
        let load = |group: &super::spread::Group| LinkLoad {
            name: match group.links.len() {
                1 => self.network.name(group.links.start),
                more => format!("{} and {} links like it", self.network.name(group.links.start), more - 1),
            },
            rate: GBps(self.network.rate(group.links.start)),
            flows_mean: group.flows_mean,
            flows_max: group.flows,
            decides: if group.level <= deciding { 1.0 } else { 0.0 },
        };
        (vec![level], groups.iter().take(Simulation::MAX_LINKS).map(load).collect())
    }
}

/// The busiest NIC ports, where they decide in some seeds.
fn ports(limits: &NodeLimits, per_seed: &[GBps]) -> Option<LinkLoad> {
    let decided = per_seed.iter().filter(|busbw| limits.ports <= busbw.0 * (1.0 + SAME)).count();
    let &(port, direction) = limits.busiest.first().filter(|_| decided > 0)?;
    let way = match direction {
        Direction::Sending => "sending",
        Direction::Receiving => "receiving",
    };
    let others = match limits.busiest.len() - 1 {
        0 => String::new(),
        1 => " and one NIC port as busy".to_string(),
        more => format!(" and {more} NIC ports as busy"),
    };
    Some(LinkLoad {
        name: format!("{port}, {way}{others}"),
        rate: GBps(limits.port_rate),
        flows_mean: limits.port_flows as f64,
        flows_max: limits.port_flows,
        decides: decided as f64 / per_seed.len().max(1) as f64,
    })
}

fn assumptions(cluster: &Cluster, traffic: &Traffic, options: &Options) -> Vec<String> {
    let mut assumptions = traffic.assumptions.clone();
    let (Some(nics), false) = (&cluster.nics, traffic.flows.is_empty()) else { return assumptions };
    let percent = payload(nics.transport) * 100.0;
    assumptions.push(format!("Links carry {percent} % of their rate as payload."));
    if cluster.fabric.routing == Routing::Hash {
        let known_by = match options.entropy {
            FlowEntropy::NicPair => "the addresses of the two NICs, so all channels between two NICs take the same way",
            FlowEntropy::QueuePair => "the queue pair, so every channel goes its own way",
        };
        assumptions.push(format!(
            "Switches hash flows evenly and independently of each other; a flow is known by {known_by}."
        ));
        if streams_per_connection(cluster) > 1 {
            let streams = streams_per_connection(cluster);
            assumptions.push(format!("Each connection is {streams} streams, which switches tell apart."));
        }
    }
    assumptions.push(
        "Links share their rate fairly; pauses, ECN and loss, which make a full link slower, are left out.".into(),
    );
    assumptions
}
