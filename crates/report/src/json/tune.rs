//! The schema `busbw.tune/1`, described in `docs/schema/tune-1.schema.json`.

use busbw_model::{TrialCount, TunedSetting, TunedStanding, TunedVariable, Tuning};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.tune/1";

/// Writes the JSON of a sweep's result, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
///
/// # Errors
/// What the writer returns.
pub fn write_tune(tuning: &Tuning, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(tuning), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    summary: &'a str,
    space: &'a str,
    command: &'a str,
    objective: Objective<'a>,
    method: &'a str,
    best: Option<Setting<'a>>,
    default: Option<Setting<'a>>,
    variables: Vec<Variable<'a>>,
    settings: Vec<Setting<'a>>,
    trials: TrialCount,
}

#[derive(Serialize)]
struct Objective<'a> {
    name: &'a str,
    unit: &'a str,
    higher_is_better: bool,
}

#[derive(Serialize)]
struct Variable<'a> {
    name: &'a str,
    meaning: Option<&'a str>,
    values: &'a [String],
}

#[derive(Serialize)]
struct Setting<'a> {
    rank: usize,
    settings: BTreeMap<&'a str, &'a str>,
    rounds: usize,
    failures: usize,
    mean: Option<f64>,
    stddev: Option<f64>,
    ci95: Option<f64>,
    behind: Option<f64>,
    standing: TunedStanding,
    tied: bool,
}

impl<'a> Document<'a> {
    fn new(tuning: &'a Tuning) -> Self {
        let objective = &tuning.objective;
        Document {
            schema: SCHEMA,
            summary: &tuning.summary,
            space: &tuning.space,
            command: &tuning.command,
            objective: Objective {
                name: &objective.name,
                unit: &objective.unit,
                higher_is_better: objective.higher_is_better,
            },
            method: &tuning.method,
            best: tuning.best().map(|best| Setting::new(1, best)),
            default: tuning.default_rank().map(|(rank, setting)| Setting::new(rank, setting)),
            variables: tuning.variables.iter().map(Variable::new).collect(),
            settings: (1..).zip(&tuning.settings).map(|(rank, setting)| Setting::new(rank, setting)).collect(),
            trials: tuning.trials,
        }
    }
}

impl<'a> Variable<'a> {
    fn new(variable: &'a TunedVariable) -> Self {
        Variable { name: &variable.name, meaning: variable.meaning.as_deref(), values: &variable.values }
    }
}

impl<'a> Setting<'a> {
    fn new(rank: usize, setting: &'a TunedSetting) -> Self {
        Setting {
            rank,
            settings: setting.assignments.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            rounds: setting.rounds,
            failures: setting.failures,
            mean: setting.mean,
            stddev: setting.stddev,
            ci95: setting.interval,
            behind: setting.behind,
            standing: setting.standing,
            tied: matches!(setting.standing, TunedStanding::Best | TunedStanding::Tied),
        }
    }
}
