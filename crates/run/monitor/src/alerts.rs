//! Alerts: an error counter increased.

use crate::known::{Cause, Counter, Family, Known};
use crate::moment::{Alert, Device};
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

/// An alert that did not move for so long is over.
const QUIET_US: u64 = 10_000_000;
/// Alerts that are over are kept for the screen and the summary, so many.
const MOST_KEPT: usize = 1000;

/// Other thresholds than those of `counters.toml`, from a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds(BTreeMap<(Family, String), Threshold>);

/// What a file says of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", untagged)]
enum Threshold {
    PerSecond { per_second: f64 },
    Off { alert: bool },
}

/// A file of thresholds cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ThresholdError {
    /// It is no TOML of the right shape.
    #[error("{0}")]
    Shape(String),
    /// It names a counter that busbw has no alert for.
    #[error("no alert for {0}; `busbw monitor --list-alerts` prints all alerts")]
    Unknown(String),
}

impl Thresholds {
    /// Reads a file's text: `rdma.np_cnp_sent.per_second = 5000`, `tcp.RetransSegs.alert = false`.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        let families: BTreeMap<String, BTreeMap<String, Threshold>> = toml::from_str(text)
            .map_err(|error| ThresholdError::Shape(error.to_string().trim().replace('\n', "; ")))?;
        let mut thresholds = BTreeMap::new();
        for (family_name, counters) in families {
            for (name, threshold) in counters {
                let known = family(&family_name).and_then(|family| Some((family, Known::get().find(family, &name)?)));
                let found = known.map(|(family, at)| (family, &Known::get().counters()[at]));
                let Some((family, _)) = found.filter(|(_, counter)| counter.cause.is_some()) else {
                    return Err(ThresholdError::Unknown(format!("{family_name}.{name}")));
                };
                thresholds.insert((family, name), threshold);
            }
        }
        Ok(Thresholds(thresholds))
    }

    /// How fast a counter may move; none when it may move as it likes.
    fn of(&self, counter: &Counter, name: &str) -> Option<f64> {
        counter.cause.as_ref()?;
        let said = |name: &str| self.0.get(&(counter.family, name.to_owned()));
        match said(name).or_else(|| said(&counter.name)) {
            Some(Threshold::PerSecond { per_second }) => Some(*per_second),
            Some(Threshold::Off { alert: false }) => None,
            Some(Threshold::Off { alert: true }) | None => Some(counter.per_second),
        }
    }
}

fn family(name: &str) -> Option<Family> {
    Family::ALL.into_iter().find(|family| family.name() == name)
}

/// The counters that raise alerts, one per line, in the form of a file of thresholds.
pub fn list_alerts() -> String {
    let known = Known::get();
    let alerts = known.counters().iter().filter_map(|counter| Some((counter, known.cause(counter)?)));
    alerts
        .map(|(counter, cause)| {
            let quote = if counter.name.contains('#') { "\"" } else { "" };
            let name = format!("{}.{quote}{}{quote}", counter.family.name(), counter.name);
            let name = format!("{name}.per_second = {}", counter.per_second);
            format!("{name:<56} # {}: {}\n", cause.code, counter.meaning)
        })
        .collect()
}

/// The alerts that stand, and those that are over.
#[derive(Debug, Default)]
pub struct AlertLog {
    thresholds: Thresholds,
    standing: Vec<Alert>,
    over: VecDeque<Alert>,
}

impl AlertLog {
    pub fn new(thresholds: Thresholds) -> Self {
        AlertLog { thresholds, ..AlertLog::default() }
    }

    /// Takes note of how a counter moved, and raises an alert if that is too fast.
    pub fn note(&mut self, device: &Device, counter: &Counter, name: &str, moved: u64, per_second: f64, time_us: u64) {
        let too_fast = moved > 0 && self.thresholds.of(counter, name).is_some_and(|most| per_second > most);
        if let Some(cause) = Known::get().cause(counter).filter(|_| too_fast) {
            self.raise(device, name, &counter.meaning, cause, (moved, per_second), time_us);
        }
    }

    /// Raises an alert that a port went down.
    pub fn port_down(&mut self, device: &Device, state: &str, time_us: u64) {
        if let Some(cause) = Known::get().cause_named("down") {
            self.raise(device, "state", &format!("the port is {state}"), cause, (1, 0.0), time_us);
        }
    }

    fn raise(&mut self, device: &Device, name: &str, what: &str, cause: &Cause, how: (u64, f64), time_us: u64) {
        let (moved, per_second) = how;
        let same = self.standing.iter_mut().find(|alert| alert.device == *device && alert.counter == name);
        if let Some(alert) = same {
            alert.moved = alert.moved.saturating_add(moved);
            (alert.per_second, alert.last_us) = (per_second, time_us);
            return;
        }
        let alert = Alert {
            device: device.clone(),
            counter: name.to_owned(),
            what: what.to_owned(),
            code: cause.code,
            severity: cause.severity,
            meaning: cause.meaning.clone(),
            remedy: cause.remedy.clone(),
            since_us: time_us,
            last_us: time_us,
            moved,
            per_second,
        };
        self.standing.push(alert);
    }

    /// Ends the alerts that have been quiet.
    pub fn settle(&mut self, time_us: u64) {
        let is_over = |alert: &mut Alert| time_us.saturating_sub(alert.last_us) > QUIET_US;
        self.over.extend(self.standing.extract_if(.., is_over));
        let too_many = self.over.len().saturating_sub(MOST_KEPT);
        self.over.drain(..too_many);
        self.standing.sort_by_key(|alert| (std::cmp::Reverse(alert.severity), std::cmp::Reverse(alert.last_us)));
    }

    /// Those that stand, the worst first.
    pub fn standing(&self) -> &[Alert] {
        &self.standing
    }

    /// All of them, those that are over first.
    pub fn all(&self) -> impl Iterator<Item = &Alert> {
        self.over.iter().chain(&self.standing)
    }
}
