//! A sweep: the race drawn round by round, its trials run or found in the store.

use crate::objective::{Better, Objective};
use crate::race::{Race, Rules};
use crate::runner::{Ended, LOG, Workload};
use crate::slurm::{JobError, Jobs};
use crate::space::Setting;
use crate::store::{Key, Outcome, Store, StoreError};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a sweep tries.
#[derive(Debug)]
pub struct Sweep<'a> {
    /// The settings, by number.
    pub settings: &'a [Setting],
    pub workload: &'a Workload,
    pub objective: &'a Objective,
    pub rules: Rules,
    /// Whether each setting runs once before it counts.
    pub warm_up: bool,
    /// When to stop, where time is limited.
    pub until: Option<Instant>,
    /// Slurm, where trials are jobs.
    pub jobs: Option<&'a Jobs>,
}

/// A trial that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub key: Key,
    pub outcome: Outcome,
}

/// What a sweep came to, so far or in the end.
#[derive(Debug)]
pub struct SweepResult {
    pub race: Race,
    /// Every trial in order, warm-up included.
    pub trials: Vec<Trial>,
    /// Why it stopped before it was decided or spent, if it did.
    pub stopped: Option<Stop>,
}

/// So many trials that end well without a value, before any has one, end the sweep: one may be bad luck.
const NO_VALUES: usize = 3;

/// Why a sweep stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Interrupted,
    OutOfTime,
}

/// Why a sweep cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Slurm(#[from] JobError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The first trials ran well and none gave a value: neither will the others.
    #[error("{reason} of the first {NO_VALUES} trials; the last one's output is {}; correct the objective, remove the store, and begin again", log.display())]
    NoValue { reason: String, log: PathBuf },
}

/// Hears of a sweep as it goes, and may stop it.
pub trait Watcher {
    /// So many trials are done, of so many at most.
    fn counts(&self, done: usize, most: usize);
    fn begins(&self, key: Key, setting: &Setting);
    /// What a queue says of a trial under way.
    fn queued(&self, told: &str);
    fn ended(&self, key: Key, setting: &Setting, outcome: &Outcome);
    fn stop(&self) -> bool;
}

impl Sweep<'_> {
    /// Runs the sweep from where the store stands.
    pub fn run(&self, store: &Store, watcher: &dyn Watcher) -> Result<SweepResult, SweepError> {
        let race = || Race::new(self.settings.len(), self.rules.clone());
        let mut result = SweepResult { race: race(), trials: Vec::new(), stopped: None };
        if self.warm_up {
            self.run_round(0, &race().next_round(), &mut result, store, watcher)?;
        }
        while result.stopped.is_none() {
            let round = result.race.next_round();
            if round.is_empty() {
                break;
            }
            self.run_round(result.race.round(), &round, &mut result, store, watcher)?;
        }
        Ok(result)
    }

    fn run_round(
        &self,
        round: u32,
        settings: &[usize],
        result: &mut SweepResult,
        store: &Store,
        watcher: &dyn Watcher,
    ) -> Result<(), SweepError> {
        let at_once = self.jobs.map_or(1, |jobs| jobs.at_once.get());
        for some in settings.chunks(at_once) {
            let keys: Vec<Key> = some.iter().map(|setting| Key { round, setting: *setting }).collect();
            let mut outcomes = BTreeMap::new();
            let mut missing = Vec::new();
            for key in &keys {
                match store.outcome(*key)? {
                    Some(outcome) => drop(outcomes.insert(*key, outcome)),
                    None => missing.push(*key),
                }
            }
            result.stopped = if missing.is_empty() { None } else { self.stop(watcher) };
            if result.stopped.is_none() {
                let warm_up = if self.warm_up { self.settings.len() } else { 0 };
                watcher.counts(result.trials.len() + outcomes.len(), warm_up + result.race.most_trials());
                let ran = self.run_trials(&missing, store, watcher)?;
                result.stopped = (ran.len() < missing.len()).then_some(Stop::Interrupted);
                outcomes.extend(ran);
            }
            // Keep finished trials even if others of the chunk were stopped.
            for (key, outcome) in outcomes {
                if round > 0 {
                    result.race.record(key.setting, outcome.value().map(|value| self.cost(value)));
                }
                result.trials.push(Trial { key, outcome });
            }
            self.has_values(&result.trials, store)?;
            if result.stopped.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn stop(&self, watcher: &dyn Watcher) -> Option<Stop> {
        if watcher.stop() {
            return Some(Stop::Interrupted);
        }
        self.until.is_some_and(|until| Instant::now() >= until).then_some(Stop::OutOfTime)
    }

    /// What a value costs: smaller is better.
    fn cost(&self, value: f64) -> f64 {
        match self.objective.better() {
            Better::Lower => value,
            Better::Higher => -value,
        }
    }

    /// Runs trials that have no outcome yet; those that were interrupted are not among the results.
    fn run_trials(
        &self,
        keys: &[Key],
        store: &Store,
        watcher: &dyn Watcher,
    ) -> Result<Vec<(Key, Outcome)>, SweepError> {
        let ended = match self.jobs {
            Some(jobs) => jobs.run(self, keys, store, watcher)?,
            None => keys
                .iter()
                .map(|key| self.run_here(*key, store, watcher).map(|ended| ended.map(|(e, time)| (*key, e, time))))
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect(),
        };
        let mut outcomes = Vec::new();
        for (key, ended, wall_time) in ended {
            let folder = store.trial_folder(key);
            let outcome = self.outcome(ended, wall_time, &folder)?;
            store.finish(key, &outcome)?;
            watcher.ended(key, &self.settings[key.setting], &outcome);
            outcomes.push((key, outcome));
        }
        Ok(outcomes)
    }

    fn run_here(
        &self,
        key: Key,
        store: &Store,
        watcher: &dyn Watcher,
    ) -> Result<Option<(Ended, Duration)>, SweepError> {
        let (setting, folder) = (&self.settings[key.setting], store.trial_folder(key));
        store.begin(key)?;
        watcher.begins(key, setting);
        let ran = self.workload.run(setting, &folder, &|| watcher.stop());
        let (ended, time) = ran.map_err(|source| SweepError::File { path: folder, source })?;
        Ok((ended != Ended::Interrupted).then_some((ended, time)))
    }

    fn outcome(&self, ended: Ended, wall_time: Duration, folder: &Path) -> Result<Outcome, SweepError> {
        let log = folder.join(LOG);
        match ended {
            Ended::Badly(reason) => return Ok(Outcome::Failed(reason)),
            Ended::Interrupted => return Ok(Outcome::Failed("interrupted".into())),
            Ended::TimedOut => return Ok(Outcome::TimedOut(self.workload.limit)),
            Ended::Well => {}
        }
        let output = fs::read(&log).map_err(|source| SweepError::File { path: log.clone(), source })?;
        Ok(match self.objective.value(&String::from_utf8_lossy(&output), wall_time) {
            Ok(value) => Outcome::Value(value),
            Err(reason) => Outcome::NoValue(reason.to_string()),
        })
    }

    /// Refuses to go on where the first trials ended well and none gave a value: the others would not either, perhaps after hours.
    fn has_values(&self, trials: &[Trial], store: &Store) -> Result<(), SweepError> {
        let without = |trial: &&Trial| matches!(trial.outcome, Outcome::NoValue(_));
        let (Some(last), None) = (
            trials.iter().filter(without).nth(NO_VALUES - 1),
            trials.iter().find(|trial| trial.outcome.value().is_some()),
        ) else {
            return Ok(());
        };
        let (reason, log) = (last.outcome.failure().unwrap_or_default(), store.trial_folder(last.key).join(LOG));
        Err(SweepError::NoValue { reason, log })
    }
}
