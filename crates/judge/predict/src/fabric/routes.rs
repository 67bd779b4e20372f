//! The way and the rate of every flow under one seed, with all links filled: what the quick way of many seeds is compared with.

use super::LinkId;
use super::fair::{Demand, fair_rates};
use super::hash::FlowHash;
use super::limits::{Direction, NodeLimits};
use super::seeds::Hashed;
use super::simulate::Routed;
use crate::cluster::{Cluster, Routing};
use crate::simulation::{FlowEntropy, SimulationError};
use crate::traffic::{Port, Traffic, streams_per_connection};
use busbw_model::GBps;
use std::collections::HashMap;

/// A flow that switches distinguish from others, its way and its rate.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowRoute {
    pub from: Port,
    pub to: Port,
    /// Bytes per byte of busbw.
    pub share: f64,
    /// Its max-min fair rate, flows of a link weighted by their shares.
    pub rate: GBps,
    /// The links between switches on its way, in order; all that it is spread over, with adaptive routing.
    pub links: Vec<RouteLink>,
}

/// A link on a flow's way.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteLink {
    /// Its two ends, as in `LinkLoad`.
    pub name: String,
    /// What it carries of all flows, payload.
    pub rate: GBps,
    /// The part of the flow that it carries.
    pub part: f64,
}

/// The ways of all flows under hash seed `seed` and their rates while all of them last.
///
/// The busbw of that seed in a [`crate::Simulation`] is that of the flow with the least rate for its share.
pub fn flow_routes(
    cluster: &Cluster,
    traffic: &Traffic,
    entropy: FlowEntropy,
    seed: u32,
) -> Result<Vec<FlowRoute>, SimulationError> {
    let limits = NodeLimits::new(cluster, traffic)?;
    let routed = Routed::new(cluster, traffic)?;
    let hashed = routed.hashed(traffic, entropy, streams_per_connection(cluster))?;
    let ways: Vec<Vec<(LinkId, f64)>> = hashed.iter().map(|flow| way(&routed, cluster, flow, seed)).collect();
    let ends = ends(traffic, &hashed);
    let mut rates: Vec<f64> = (0..routed.network.links() as LinkId).map(|link| routed.network.rate(link)).collect();
    let demands = demands(&hashed, &ways, &ends, &limits, &mut rates);
    let of_flow = fair_rates(&rates, &demands);
    let link = |&(link, part): &(LinkId, f64)| RouteLink {
        name: routed.network.name(link),
        rate: GBps(routed.network.rate(link)),
        part,
    };
    let flows = hashed.iter().zip(&ends).zip(ways.iter().zip(of_flow));
    Ok(flows
        .map(|((flow, &(from, to)), (way, rate))| FlowRoute {
            from,
            to,
            share: flow.share,
            rate: GBps(rate),
            links: way.iter().map(link).collect(),
        })
        .collect())
}

/// The links of a flow with the part that each carries.
fn way(routed: &Routed, cluster: &Cluster, flow: &Hashed, seed: u32) -> Vec<(LinkId, f64)> {
    let mut links = Vec::new();
    match cluster.fabric.routing {
        Routing::Hash => {
            let choose = FlowHash::new(u64::from(seed), flow.identity).choices();
            routed.network.walk(flow.journey, choose, |link| links.push((link, 1.0)));
        }
        Routing::Adaptive => {
            routed.network.spread(flow.journey, |range, part| links.extend(range.map(|link| (link, part))));
        }
    }
    links
}

fn ends(traffic: &Traffic, hashed: &[Hashed]) -> Vec<(Port, Port)> {
    let of_flow = |number: usize| traffic.flows.get(number).map(|flow| (flow.from, flow.to));
    hashed.iter().filter_map(|stream| of_flow(stream.flow())).collect()
}

/// What flows ask of links, with the ports of NICs added to `rates` as links.
fn demands(
    hashed: &[Hashed],
    ways: &[Vec<(LinkId, f64)>],
    ends: &[(Port, Port)],
    limits: &NodeLimits,
    rates: &mut Vec<f64>,
) -> Vec<Demand> {
    let mut ports: HashMap<(Port, Direction), LinkId> = HashMap::new();
    let mut demands = Vec::with_capacity(hashed.len());
    for ((flow, way), &(from, to)) in hashed.iter().zip(ways).zip(ends) {
        let mut uses = way.clone();
        for port in [(from, Direction::Sending), (to, Direction::Receiving)] {
            let link = *ports.entry(port).or_insert_with(|| {
                rates.push(limits.port_rate);
                rates.len() as LinkId - 1
            });
            uses.push((link, 1.0));
        }
        demands.push(Demand { weight: flow.share, limit: limits.others * flow.share, uses });
    }
    demands
}
