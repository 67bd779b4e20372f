//! The answer of `busbw simulate`.

use crate::description;
use crate::scenario::{BusbwChange, Comparison, Scenario};
use busbw_model::answer::Answer;
use busbw_predict::Simulation;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of a simulation and the alternatives to it, with a closing line feed. No number is rounded; one that is
/// not finite becomes `null`.
pub fn write_simulate(comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Simulate::new(comparison), out)
}

/// What `busbw simulate --format json` prints. Bandwidths are GB/s, 10^9 bytes per second (_gbs). No number is rounded; a number
/// that is not finite is null. Readers must accept fields that are not described here: they may be added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Simulate<'a> {
    /// The cluster in words, a part each, for people.
    cluster: Vec<String>,
    /// Ranks, one per GPU.
    nranks: usize,
    /// Hash seeds that were tried.
    #[schemars(range(min = 1))]
    seeds: usize,
    /// What was assumed of the cluster and of any alternative, a sentence each, each once.
    assumptions: Vec<&'a str>,
    /// The cluster as it is.
    base: Simulated<'a>,
    /// The cluster with the change of each --what-if, in the order given.
    alternatives: Vec<Alternative<'a>>,
}

impl Answer for Simulate<'_> {
    const SCHEMA: &'static str = "busbw.simulate/1";
}

/// What the simulation says of a fabric.
#[derive(Serialize, JsonSchema)]
struct Simulated<'a> {
    /// `as described`, or the change: `rail-optimised`.
    name: &'a str,
    #[serde(flatten)]
    simulation: &'a Simulation,
}

/// The cluster with a change.
#[derive(Serialize, JsonSchema)]
struct Alternative<'a> {
    #[serde(flatten)]
    simulated: Simulated<'a>,
    /// What the change gains over the base: in the median of seeds, and where hashing is unlucky.
    gain: Gains,
}

/// What a change gains.
#[derive(Serialize, JsonSchema)]
struct Gains {
    /// In the 5th percentile of seeds.
    p5: Gain,
    /// In the median of seeds.
    p50: Gain,
}

/// A busbw before and after.
#[derive(Serialize, JsonSchema)]
struct Gain {
    /// Before.
    from_busbw_gbs: f64,
    /// After.
    to_busbw_gbs: f64,
    /// After over before; null where there was nothing before.
    factor: Option<f64>,
}

impl<'a> Simulate<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let alternative = |scenario| Alternative {
            simulated: Simulated::new(scenario),
            gain: Gains {
                p5: Gain::from(comparison.p5_gain(scenario)),
                p50: Gain::from(comparison.median_gain(scenario)),
            },
        };
        let base = &comparison.base;
        Simulate {
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
        Simulated { name: &scenario.name, simulation: &scenario.simulation }
    }
}

impl From<BusbwChange> for Gain {
    fn from(gained: BusbwChange) -> Self {
        Gain { from_busbw_gbs: gained.from.0, to_busbw_gbs: gained.to.0, factor: gained.factor() }
    }
}
