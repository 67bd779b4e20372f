//! Fabrics side by side: a cluster as it is, and as changes would make it.

use busbw_model::GBps;
use busbw_predict::{Cluster, Simulation};

/// A cluster, and what the simulation says of its fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What sets it apart: `as described`, or the change as it is asked for: `rail-optimised`.
    pub name: String,
    pub cluster: Cluster,
    pub simulation: Simulation,
}

/// A cluster as it is, and the alternatives that are compared with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub base: Scenario,
    /// The alternatives, in the order asked for.
    pub alternatives: Vec<Scenario>,
}

impl Comparison {
    /// The base and the alternatives.
    pub fn scenarios(&self) -> impl Iterator<Item = &Scenario> {
        std::iter::once(&self.base).chain(&self.alternatives)
    }

    /// What an alternative gains in the median of seeds.
    pub(crate) fn median_gain(&self, alternative: &Scenario) -> BusbwChange {
        BusbwChange { from: self.base.simulation.busbw.p50, to: alternative.simulation.busbw.p50 }
    }

    /// What an alternative gains where hashing is unlucky: in the 5th percentile of seeds.
    pub(crate) fn p5_gain(&self, alternative: &Scenario) -> BusbwChange {
        BusbwChange { from: self.base.simulation.busbw.p5, to: alternative.simulation.busbw.p5 }
    }

    /// What was assumed: first of the cluster as it is, then what alternatives add; each once.
    pub(crate) fn assumptions(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for scenario in self.scenarios() {
            for assumption in scenario.simulation.assumptions.iter().chain(&scenario.cluster.assumptions) {
                if !found.contains(&assumption.as_str()) {
                    found.push(assumption);
                }
            }
        }
        found
    }
}

/// A busbw before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BusbwChange {
    pub from: GBps,
    pub to: GBps,
}

impl BusbwChange {
    /// After over before; `None` where there was nothing before.
    pub fn factor(self) -> Option<f64> {
        let factor = self.to.0 / self.from.0;
        factor.is_finite().then_some(factor)
    }

    /// `24.00 → 192.00 GB/s, 8.00×`; `no change` where no digit of it would show.
    pub fn in_words(self) -> String {
        match self.in_short().as_str() {
            "no change" => "no change".into(),
            times => format!("{:.2} → {}, {times}", self.from.0, self.to),
        }
    }

    /// `8.00×`, or `no change`.
    pub fn in_short(self) -> String {
        match self.factor() {
            Some(factor) if (factor - 1.0).abs() < 0.005 => "no change".into(),
            Some(factor) => format!("{factor:.2}×"),
            None => "from nothing".into(),
        }
    }
}
