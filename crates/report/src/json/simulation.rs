//! The schema `busbw.simulate/1`, described in `docs/schema/simulate-1.schema.json`.

use crate::description;
use crate::scenario::{Comparison, Gained, Scenario};
use busbw_predict::{Distribution, LinkLoad};
use serde::Serialize;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.simulate/1";

/// Writes the JSON of a simulation and the alternatives to it, with a closing line feed. No number is rounded; one that is
/// not finite becomes `null`.
///
/// # Errors
/// What the writer returns.
pub fn write_simulate(comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(comparison), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    cluster: Vec<String>,
    nranks: usize,
    seeds: usize,
    assumptions: Vec<&'a str>,
    base: Simulated<'a>,
    alternatives: Vec<Alternative<'a>>,
}

#[derive(Serialize)]
struct Simulated<'a> {
    name: &'a str,
    busbw_gbs: Spread,
    unshared_busbw_gbs: f64,
    flows: usize,
    links: Vec<Link<'a>>,
    busbw_gbs_per_seed: Vec<f64>,
}

#[derive(Serialize)]
struct Alternative<'a> {
    #[serde(flatten)]
    simulated: Simulated<'a>,
    gain: Gains,
}

#[derive(Serialize)]
struct Spread {
    min: f64,
    p5: f64,
    p50: f64,
    p95: f64,
    max: f64,
}

#[derive(Serialize)]
struct Link<'a> {
    name: &'a str,
    rate_gbs: f64,
    flows_mean: f64,
    flows_max: usize,
    decides: f64,
}

#[derive(Serialize)]
struct Gains {
    p5: Gain,
    p50: Gain,
}

#[derive(Serialize)]
struct Gain {
    from_busbw_gbs: f64,
    to_busbw_gbs: f64,
    factor: Option<f64>,
}

impl<'a> Document<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let alternative = |scenario| Alternative {
            simulated: Simulated::new(scenario),
            gain: Gains {
                p5: Gain::from(comparison.p5_gain(scenario)),
                p50: Gain::from(comparison.median_gain(scenario)),
            },
        };
        let base = &comparison.base;
        Document {
            schema: SCHEMA,
            cluster: description::parts(&base.cluster),
            nranks: base.cluster.ranks(),
            seeds: base.simulation.per_seed.len(),
            assumptions: comparison.assumptions(),
            base: Simulated::new(base),
            alternatives: comparison.alternatives.iter().map(alternative).collect(),
        }
    }
}

impl<'a> Simulated<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let simulation = &scenario.simulation;
        Simulated {
            name: &scenario.name,
            busbw_gbs: Spread::from(simulation.busbw),
            unshared_busbw_gbs: simulation.unshared.0,
            flows: simulation.flows,
            links: simulation.links.iter().map(Link::new).collect(),
            busbw_gbs_per_seed: simulation.per_seed.iter().map(|busbw| busbw.0).collect(),
        }
    }
}

impl From<Distribution> for Spread {
    fn from(busbw: Distribution) -> Self {
        let Distribution { min, p5, p50, p95, max } = busbw;
        Spread { min: min.0, p5: p5.0, p50: p50.0, p95: p95.0, max: max.0 }
    }
}

impl<'a> Link<'a> {
    fn new(link: &'a LinkLoad) -> Self {
        Link {
            name: &link.name,
            rate_gbs: link.rate.0,
            flows_mean: link.flows_mean,
            flows_max: link.flows_max,
            decides: link.decides,
        }
    }
}

impl From<Gained> for Gain {
    fn from(gained: Gained) -> Self {
        Gain { from_busbw_gbs: gained.from.0, to_busbw_gbs: gained.to.0, factor: gained.factor() }
    }
}
