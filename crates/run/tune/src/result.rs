//! What a sweep found: settings in order, ties, the default's place, and a verdict in words.

use crate::race::{self, FULL_ROUNDS, Rules};
use crate::space::{Setting, Space};
use crate::statistics::{INTERVAL, Sample};
use crate::sweep::{Stop, SweepResult};
use busbw_model::{Measured, TrialCount, TunedSetting, TunedStanding, TunedVariable, Tuning};

/// What the sweep tried, to put a result into words.
#[derive(Debug)]
pub struct About<'a> {
    pub space: &'a Space,
    /// Its settings, by number.
    pub settings: &'a [Setting],
    pub measured: Measured,
    pub rules: &'a Rules,
    /// The command, for a shell.
    pub command: String,
}

pub fn result(about: &About, sweep: &SweepResult) -> Tuning {
    let mut settings: Vec<TunedSetting> = (0..about.settings.len()).map(|index| setting(about, sweep, index)).collect();
    let best = settings.iter().find(|setting| setting.standing == TunedStanding::Best).and_then(|best| best.mean);
    let sign = if about.measured.higher_is_better { -1.0 } else { 1.0 };
    for setting in &mut settings {
        setting.behind = best.zip(setting.mean).map(|(best, mean)| sign * (mean - best) / best.abs());
        // Dividing by a best value of zero gives no share.
        setting.behind = setting.behind.filter(|behind| behind.is_finite());
    }
    settings.sort_by(|a, b| order(a, sign).total_cmp(&order(b, sign)));
    let count = TrialCount {
        ran: sweep.trials.len(),
        failed: sweep.trials.iter().filter(|trial| trial.outcome.value().is_none()).count(),
        four_full_rounds: FULL_ROUNDS as usize * about.settings.len(),
    };
    let mut tuning = Tuning {
        summary: String::new(),
        space: about.space.name.clone(),
        command: about.command.clone(),
        objective: about.measured.clone(),
        variables: about.space.variables.iter().map(variable).collect(),
        settings,
        trials: count,
        method: format!(
            "{} at {:.0}% confidence; intervals: {INTERVAL}, 95%",
            race::TEST,
            about.rules.confidence * 100.0
        ),
    };
    tuning.summary = summary(&tuning, sweep, about.rules);
    tuning
}

fn variable(variable: &crate::space::Variable) -> TunedVariable {
    TunedVariable { name: variable.name.clone(), meaning: variable.meaning.clone(), values: variable.values.clone() }
}

fn setting(about: &About, sweep: &SweepResult, index: usize) -> TunedSetting {
    let trials = || sweep.trials.iter().filter(|trial| trial.key.setting == index);
    let values: Vec<f64> =
        trials().filter(|trial| trial.key.round > 0).filter_map(|trial| trial.outcome.value()).collect();
    let failures: Vec<String> = trials().filter_map(|trial| trial.outcome.failure()).collect();
    let sample = Sample::of(&values);
    TunedSetting {
        setting: about.settings[index].clone(),
        rounds: values.len(),
        failures: failures.len(),
        reason: failures.into_iter().next_back(),
        mean: sample.map(|sample| sample.mean),
        stddev: sample.and_then(|sample| sample.stddev),
        interval: sample.and_then(|sample| sample.half_width(0.95)),
        behind: None,
        standing: sweep.race.standing(index),
    }
}

/// The best first; what failed or has no value behind all others.
fn order(setting: &TunedSetting, sign: f64) -> f64 {
    let counts = !matches!(setting.standing, TunedStanding::Failed | TunedStanding::Unknown);
    setting.mean.filter(|_| counts).map_or(f64::INFINITY, |mean| sign * mean)
}

fn summary(tuning: &Tuning, sweep: &SweepResult, rules: &Rules) -> String {
    let Some(best) = tuning.best() else {
        return match sweep.stopped {
            Some(_) => format!("no result yet{}", ending(sweep, rules)),
            None => "no setting gave a result: every trial failed".into(),
        };
    };
    let words = match tuning.default_rank() {
        _ if best.setting.is_default() => "no setting is significantly better than the default".into(),
        Some((_, default)) if default.standing == TunedStanding::Tied => {
            format!("no setting is significantly better than the default; {} has the best mean", best.setting.name())
        }
        Some((rank, default)) => format!(
            "{} is best, {:.1}% better than the default, which is number {rank} of {}",
            best.setting.name(),
            improvement(tuning, best, default) * 100.0,
            tuning.settings.len()
        ),
        None => format!("{} is best", best.setting.name()),
    };
    let ties = tuning.settings.iter().filter(|setting| setting.standing == TunedStanding::Tied).count();
    let tied = match ties {
        0 => String::new(),
        1 => "; 1 setting is statistically tied with the best".to_string(),
        many => format!("; {many} settings are statistically tied with the best"),
    };
    words + &tied + ending(sweep, rules)
}

/// What the best gains over the default, as a share of the default.
fn improvement(tuning: &Tuning, best: &TunedSetting, default: &TunedSetting) -> f64 {
    let (Some(best), Some(default)) = (best.mean, default.mean) else { return 0.0 };
    let gain = if tuning.objective.higher_is_better { best - default } else { default - best };
    gain / default.abs()
}

fn ending(sweep: &SweepResult, rules: &Rules) -> &'static str {
    match sweep.stopped {
        Some(Stop::Interrupted) => " (interrupted: the same command continues)",
        Some(Stop::OutOfTime) => " (time limit reached: the same command with a higher limit continues)",
        None if rules.exhaustive || sweep.race.is_decided() => "",
        None => " (not decided within these trials: try more --rounds)",
    }
}
