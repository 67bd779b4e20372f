//! How a machine differs from the published ones that the model was fitted on: four factors, from tables of its own.

use busbw_model::{Bytes, Collective, Micros};
use schemars::JsonSchema;
use serde::Serialize;

/// Factors on what the model predicts; each is 1 where a machine is as the published ones are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Calibration {
    /// On the time that small messages take.
    pub latency: f64,
    /// On what sizes between small and large lose.
    pub ramp: f64,
    /// On the bandwidth inside an NVLink domain or host.
    pub bandwidth_inside: f64,
    /// On the bandwidth between them.
    pub bandwidth_between: f64,
    /// The collective of the tables that they follow from; none if of several: other collectives differ less.
    pub collective: Option<Collective>,
}

/// How much of a factor, in log, holds for another collective: of published machines hardly anything of what a collective is off
/// says something about others.
const OF_ANOTHER_COLLECTIVE: f64 = 0.3;

impl Calibration {
    /// A machine like the published ones.
    pub const NONE: Calibration =
        Calibration { latency: 1.0, ramp: 1.0, bandwidth_inside: 1.0, bandwidth_between: 1.0, collective: None };

    /// Names in a description's `[calibration]`, with the values.
    pub fn factors(&self) -> [(&'static str, f64); 4] {
        let Calibration { latency, ramp, bandwidth_inside, bandwidth_between, .. } = *self;
        let names = ["latency", "ramp", "bandwidth_inside", "bandwidth_between"];
        let values = [latency, ramp, bandwidth_inside, bandwidth_between];
        std::array::from_fn(|at| (names[at], values[at]))
    }

    pub(crate) fn of([latency, ramp, bandwidth_inside, bandwidth_between]: [f64; 4]) -> Self {
        Calibration { latency, ramp, bandwidth_inside, bandwidth_between, collective: None }
    }

    /// The factors for one collective: a part of them where they were measured with another.
    pub(crate) fn of_collective(&self, asked: Collective) -> Self {
        // Both are a ring, once around.
        let kind = |one| if one == Collective::ReduceScatter { Collective::AllGather } else { one };
        if self.collective.is_none_or(|measured| kind(measured) == kind(asked)) {
            return *self;
        }
        Calibration::of(self.factors().map(|(_, factor)| factor.powf(OF_ANOTHER_COLLECTIVE)))
    }
}

/// A table of the machine, or of a part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredTable {
    pub collective: Collective,
    pub ranks: usize,
    pub rows: Vec<(Bytes, Micros)>,
}

/// What tables of a machine made of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Calibrated {
    /// The factors.
    pub factors: Calibration,
    /// Tables that they follow from.
    pub tables: usize,
    /// Rows of these.
    pub rows: usize,
    /// Median deviation of the predicted time before, as a share.
    pub error_before: f64,
    /// And after.
    pub error_after: f64,
}
