//! The answer of `busbw tune`.

use busbw_model::answer::Answer;
use busbw_model::{Measured, TrialCount, TunedSetting, TunedStanding, TunedVariable, Tuning};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of a sweep's result, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
pub fn write_tune(tuning: &Tuning, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Tune::new(tuning), out)
}

/// What `busbw tune --format json` prints. Means, deviations and intervals are in the objective's unit; shares are of the best
/// mean. No number is rounded. Readers must accept fields that are not described here: they may be added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Tune<'a> {
    /// What came out, in a sentence.
    summary: &'a str,
    /// The space's name.
    space: &'a str,
    /// The command, quoted for a shell.
    command: &'a str,
    /// What was measured of every trial.
    objective: &'a Measured,
    /// The test, its confidence, and the interval.
    method: &'a str,
    /// The best setting; null without a result.
    best: Option<Setting<'a>>,
    /// The setting that sets nothing; null where it was left out or gave no value.
    default: Option<Setting<'a>>,
    /// What was varied.
    variables: &'a [TunedVariable],
    /// The best first; those without a result last.
    settings: Vec<Setting<'a>>,
    /// Trials that ran, and what a full grid would have taken.
    trials: TrialCount,
}

impl Answer for Tune<'_> {
    const SCHEMA: &'static str = "busbw.tune/1";
}

/// A setting and what its trials gave.
#[derive(Serialize, JsonSchema)]
struct Setting<'a> {
    /// Its place among the settings.
    #[schemars(range(min = 1))]
    rank: usize,
    #[serde(flatten)]
    setting: &'a TunedSetting,
    /// The best, or statistically tied with it.
    tied: bool,
}

impl<'a> Tune<'a> {
    fn new(tuning: &'a Tuning) -> Self {
        Tune {
            summary: &tuning.summary,
            space: &tuning.space,
            command: &tuning.command,
            objective: &tuning.objective,
            method: &tuning.method,
            best: tuning.best().map(|best| Setting::new(1, best)),
            default: tuning.default_rank().map(|(rank, setting)| Setting::new(rank, setting)),
            variables: &tuning.variables,
            settings: (1..).zip(&tuning.settings).map(|(rank, setting)| Setting::new(rank, setting)).collect(),
            trials: tuning.trials,
        }
    }
}

impl<'a> Setting<'a> {
    fn new(rank: usize, setting: &'a TunedSetting) -> Self {
        Setting { rank, setting, tied: matches!(setting.standing, TunedStanding::Best | TunedStanding::Tied) }
    }
}
