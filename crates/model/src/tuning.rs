//! What `busbw tune` found.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Settings that were tried, and which are best.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// What came out, in a sentence.
    pub summary: String,
    /// Name of the space of settings: built-in or of the file.
    pub space: String,
    /// The command, as it can be pasted into a shell.
    pub command: String,
    /// What was measured.
    pub objective: Measured,
    /// The variables with the values that were tried.
    pub variables: Vec<TunedVariable>,
    /// The settings, the best first; those without a result last.
    pub settings: Vec<TunedSetting>,
    /// What every trial counts for.
    pub trials: TrialCount,
    /// The test, the confidence and the interval, in words.
    pub method: String,
}

/// What was measured of every trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Measured {
    /// `wall time`, `busbw at 64 MiB`.
    pub name: String,
    /// `s`, `GB/s`, or nothing.
    pub unit: String,
    /// Whether greater values are better.
    pub higher_is_better: bool,
}

/// A variable that was varied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TunedVariable {
    /// `NCCL_SOCKET_NTHREADS`.
    pub name: String,
    /// What it does.
    pub meaning: Option<String>,
    /// The values that were tried.
    pub values: Vec<String>,
}

/// A combination of values. Empty: everything is left as it is, which is the default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Setting {
    /// Names and values, in the order of the space.
    pub assignments: Vec<(String, String)>,
}

/// A setting and what its trials gave.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TunedSetting {
    /// Names and values; empty for the default, which leaves everything as it is.
    #[serde(rename = "settings", serialize_with = "by_name")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub setting: Setting,
    /// Trials that gave a value.
    pub rounds: usize,
    /// Trials that failed, gave no value, or ran out of time.
    pub failures: usize,
    /// Why the last of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Mean value.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub stddev: Option<f64>,
    /// Half the width of the 95% interval of the mean.
    #[serde(rename = "ci95")]
    pub interval: Option<f64>,
    /// How much worse than the best it is, as a share; negative where it is not.
    pub behind: Option<f64>,
    /// The setting's place in the race: best, tied, worse or failed.
    pub standing: TunedStanding,
}

fn by_name<S: Serializer>(setting: &Setting, serializer: S) -> Result<S::Ok, S::Error> {
    setting.assignments.iter().map(|(name, value)| (name, value)).collect::<BTreeMap<_, _>>().serialize(serializer)
}

/// The result of a setting in the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TunedStanding {
    /// It has the best mean.
    Best,
    /// Statistically tied with the best.
    Tied,
    /// It is significantly worse than the best.
    Worse,
    /// It failed too often.
    Failed,
    /// No trial gave a value.
    Unknown,
}

/// Trials that ran, and what a full grid would have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrialCount {
    /// Trials that ran, warm-up included.
    pub ran: usize,
    /// Of these, failed or out of time.
    pub failed: usize,
    /// Trials of four full rounds of all settings.
    pub four_full_rounds: usize,
}

impl Setting {
    /// Whether it leaves everything as it is.
    pub fn is_default(&self) -> bool {
        self.assignments.is_empty()
    }

    /// `NCCL_ALGO=Ring NCCL_PROTO=LL`, or `default`.
    pub fn name(&self) -> String {
        if self.is_default() {
            return "default".into();
        }
        self.assignments.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// The channels that NCCL is to use, where this sets them.
    pub fn channels(&self) -> Option<&str> {
        self.value("NCCL_MAX_NCHANNELS").or_else(|| self.value("NCCL_MIN_NCHANNELS"))
    }

    /// The value of a variable, where this sets it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.assignments.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Tuning {
    /// The best setting.
    pub fn best(&self) -> Option<&TunedSetting> {
        self.settings.iter().find(|setting| setting.standing == TunedStanding::Best)
    }

    /// The setting to use: the best, or the default where the best is not told from it.
    pub fn choice(&self) -> Option<&Setting> {
        let default = self.settings.iter().find(|tuned| tuned.setting.is_default());
        let tied = default.filter(|default| default.standing == TunedStanding::Tied);
        tied.or(self.best()).map(|tuned| &tuned.setting)
    }

    /// The default with its rank from 1, where it was tried and has a value.
    pub fn default_rank(&self) -> Option<(usize, &TunedSetting)> {
        let found = self.settings.iter().enumerate().find(|(_, tuned)| tuned.setting.is_default());
        found.filter(|(_, setting)| setting.mean.is_some()).map(|(index, setting)| (index + 1, setting))
    }
}
