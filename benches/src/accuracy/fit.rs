//! Fits the measured constants anew: coordinate descent on the deviation of logarithms, held near the priors.

use super::measurement::{Measurement, Status};
use super::report::{Compared, compare};
use crate::random::Random;
use busbw_predict::Constants;
use toml::Value;

/// A constant that may move.
struct Knob {
    name: String,
    prior: f64,
    spread: f64,
}

/// The constants as text that can be changed: every `[measured]` entry is a knob.
struct Board {
    text: toml::Table,
    knobs: Vec<Knob>,
}

impl Board {
    fn new(text: &str) -> Option<Board> {
        let text: toml::Table = text.parse().ok()?;
        let knob = |(name, entry): (&String, &Value)| {
            let figure = |key: &str| entry.get(key).and_then(Value::as_float);
            Some(Knob { name: name.clone(), prior: figure("prior")?, spread: figure("spread")? })
        };
        let knobs = text.get("measured")?.as_table()?.iter().filter_map(knob).collect();
        Some(Board { text, knobs })
    }

    /// Where the constants stand, in spreads from the priors.
    fn position(&self) -> Vec<f64> {
        let value = |knob: &Knob| self.text["measured"][&knob.name]["value"].as_float().unwrap_or(knob.prior);
        self.knobs.iter().map(|knob| (value(knob) / knob.prior).ln() / knob.spread).collect()
    }

    fn value(knob: &Knob, position: f64) -> f64 {
        knob.prior * (position * knob.spread).exp()
    }

    fn constants(&self, position: &[f64]) -> Option<Constants> {
        let mut text = self.text.clone();
        for (knob, at) in self.knobs.iter().zip(position) {
            text["measured"][&knob.name]["value"] = Value::Float(Self::value(knob, *at));
        }
        Constants::parse(&text.to_string()).ok()
    }
}

/// How much one standard deviation from a prior costs, beside a table that is off: what helps publishers that are left out.
const PRIOR_WEIGHT: f64 = 0.6;
/// No row counts as more than this far off (in log): an outlier is not worth chasing.
const WORST: f64 = 0.9;
/// Large messages decide most runs.
const LARGE_WEIGHT: f64 = 2.0;
/// Beside good tables, a series of one machine counts this much.
const SERIES_WEIGHT: f64 = 0.35;

fn loss(board: &Board, position: &[f64], measurements: &[Measurement]) -> f64 {
    let Some(constants) = board.constants(position) else { return f64::INFINITY };
    let tables: f64 = compare(&constants, measurements).iter().map(table_loss).sum();
    tables + PRIOR_WEIGHT * position.iter().map(|at| at * at).sum::<f64>()
}

fn table_loss(compared: &Compared) -> f64 {
    let weight = if compared.status == Status::Scaling { SERIES_WEIGHT } else { 1.0 };
    let rows = compared.measured.iter().zip(&compared.predicted.rows);
    let off = |((size, time), row): (&(busbw_model::Bytes, busbw_model::Micros), &busbw_predict::PredictionRow)| {
        let weight = if size.0 >= 32 << 20 { LARGE_WEIGHT } else { 1.0 };
        weight * (row.time.0 / time.0).ln().abs().min(WORST)
    };
    weight * rows.map(off).sum::<f64>() / (compared.measured.len().max(1) as f64).sqrt()
}

/// What may be fitted to: good tables and series whole; of others the small sizes, which a slow network leaves alone.
fn usable(measurements: &[Measurement]) -> Vec<Measurement> {
    let part = |m: &Measurement| {
        let mut m = m.clone();
        if m.status == Status::Degraded {
            m.rows.retain(|(size, _)| size.0 <= 32 << 10);
        }
        m
    };
    let wanted = |m: &Measurement| m.status != Status::Unknown && !m.rows.is_empty();
    measurements.iter().map(part).filter(wanted).collect()
}

/// Where a fit begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the values of the text.
    Values,
    /// At the priors: nothing of any table is in them.
    Priors,
}

/// Fits the constants of a text (`constants.toml`) for a number of rounds. Gives the constants and a line per knob: name, value, prior.
pub fn fit(
    text: &str,
    measurements: &[Measurement],
    rounds: usize,
    start: Start,
) -> Option<(Constants, Vec<(String, f64)>)> {
    let board = Board::new(text)?;
    let measurements = usable(measurements);
    let mut position = match start {
        Start::Values => board.position(),
        Start::Priors => vec![0.0; board.knobs.len()],
    };
    let mut best = loss(&board, &position, &measurements);
    let mut steps = vec![0.3; position.len()];
    let mut random = Random::new(1);
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..position.len()).collect();
        random.shuffle(&mut order);
        for knob in order {
            let here = position[knob];
            let moved = [steps[knob], -steps[knob]].into_iter().find(|step| {
                position[knob] = here + step;
                let found = loss(&board, &position, &measurements);
                let better = found < best;
                if better {
                    best = found;
                } else {
                    position[knob] = here;
                }
                better
            });
            steps[knob] *= if moved.is_some() { 1.3 } else { 0.5 };
        }
    }
    let values =
        board.knobs.iter().zip(&position).map(|(knob, at)| (knob.name.clone(), Board::value(knob, *at))).collect();
    Some((board.constants(&position)?, values))
}

/// Predicts each good table with constants fitted without its publisher's tables: what to expect of unseen machines.
/// Constants start from their priors, so nothing of the left-out table is in them.
pub fn left_out(text: &str, measurements: &[Measurement], rounds: usize) -> Option<Vec<Compared>> {
    let mut all = Vec::new();
    for measurement in measurements.iter().filter(|m| m.status == Status::Good) {
        let constants = without(text, measurements, measurement.family(), rounds)?;
        all.extend(compare(&constants, std::slice::from_ref(measurement)));
    }
    Some(all)
}

/// Constants of which a publisher's tables know nothing.
pub(super) fn without(text: &str, measurements: &[Measurement], family: &str, rounds: usize) -> Option<Constants> {
    let others: Vec<Measurement> = measurements.iter().filter(|m| m.family() != family).cloned().collect();
    Some(fit(text, &others, rounds, Start::Priors)?.0)
}
