//! A whole run: two ranks test plugins by NCCL's rules, and then measure them in turn.

use crate::harness::{self, Subprocess, SubprocessCommand};
use crate::rules::{self, Rule, Run};
use crate::verdict::{Causes, failure, together};
use crate::wire::{Ending, Outcome, Setup, Side, Step};
use crate::{Error, Result};
use busbw_launch::Lookup;
use busbw_launch::{Invocation, JobRank, ProcessGroup, Rendezvous, Settings, Started};
use busbw_model::{
    Bytes, PartOffer, PluginBandwidth, PluginFigures, PluginOffer, PluginReport, PluginRun, RuleReport, UnusablePlugin,
};
use busbw_transport::{Cancellation, Exchange};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A plugin, with the variables that it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub path: PathBuf,
    pub settings: Vec<(String, String)>,
}

/// What to do with the plugins.
#[derive(Debug, Clone)]
pub struct Plan {
    pub candidates: Vec<Candidate>,
    /// The version of the interface to use; the newest that a plugin has without it.
    pub version: Option<u8>,
    pub device: i32,
    /// Names of the rules to try, from [`crate::rule_names`].
    pub rules: Vec<String>,
    /// Sizes of messages to measure; none to measure nothing.
    pub sizes: Vec<Bytes>,
    /// How often each size is measured with each plugin.
    pub repetitions: usize,
    /// How long each figure is measured.
    pub duration: Duration,
    pub in_flight: usize,
    /// A call or wait that takes longer is a failure.
    pub patience: Duration,
}

/// How the command was called.
pub struct Call {
    pub plan: Plan,
    pub invocation: Invocation,
    /// The arguments that make this program run [`crate::subprocess::run`].
    pub subprocess_arguments: Vec<OsString>,
}

/// How far rank 0 is.
pub struct Progress<'a> {
    pub done: usize,
    pub all: usize,
    pub doing: &'a str,
}

/// Runs it. `progress` is called for each step, on rank 0, which has the answer in the end.
///
/// # Errors
/// One line that says what failed, where, and what to do. A plugin that fails is no error, but a finding.
pub fn run(call: &Call, variable: Lookup<'_>, progress: &dyn Fn(Progress<'_>)) -> Result<Started<PluginRun>> {
    call.invocation.begin(variable)?.and_then(|job_rank| match job_rank.size {
        2 => take_part(call, &job_rank, variable, progress),
        size => Err(Error::Usage(format!(
            "plugins are tried between two ranks, and this job has {size}: start two, or name two hosts"
        ))),
    })
}

fn take_part(
    call: &Call,
    job_rank: &JobRank,
    variable: Lookup<'_>,
    progress: &dyn Fn(Progress<'_>),
) -> Result<Started<PluginRun>> {
    let timeout = harness::patience_of_ranks(call.plan.patience);
    let rendezvous = Rendezvous::open(job_rank, variable, Settings { timeout, ..Settings::default() })?;
    let world = rendezvous.join(0, Cancellation::new())?;
    let first = job_rank.rank == 0;
    let mut rank = Rank { call, side: Side::of_rank(job_rank.rank), world, done: 0, progress };
    let run = match rank.run() {
        Ok(run) => run,
        Err(error) => {
            let reason = rank.world.fail(&error.to_string());
            return Err(Error::Job(reason));
        }
    };
    rank.world.leave()?;
    Ok(if first { Started::Here(run) } else { Started::Ended(0) })
}

/// One of the two ranks. Both go through the same steps, as each sees what came of either side.
struct Rank<'a> {
    call: &'a Call,
    side: Side,
    world: ProcessGroup,
    done: usize,
    progress: &'a dyn Fn(Progress<'_>),
}

impl Rank<'_> {
    fn run(&mut self) -> Result<PluginRun> {
        let plan = &self.call.plan;
        let hosts = [0, 1].map(|rank: usize| self.world.ranks().get(rank).map(|m| m.host.clone()).unwrap_or_default());
        let mut plugins = Vec::new();
        for candidate in &plan.candidates {
            plugins.push(self.examine(candidate)?);
        }
        name_apart(&mut plugins);
        self.measure(&mut plugins)?;
        Ok(PluginRun { hosts, plugins, in_flight: plan.in_flight })
    }

    /// What a plugin offers, and whether it keeps the rules. Each rule has processes of its own.
    fn examine(&mut self, candidate: &Candidate) -> Result<PluginReport> {
        let path = candidate.path.display().to_string();
        let offer = {
            let mut subprocess = self.start(candidate, &[], self.call.plan.version)?;
            offered(self.run_step(&mut subprocess, Step::Offer, &format!("{path}: offer"))?)
        };
        let mut rules = Vec::new();
        let mut causes = Causes::default();
        let offers = |rule: &Rule| offer.as_ref().is_ok_and(|offer| is_about(rule, offer));
        for (number, rule) in self.rules_to_try().filter(|(_, rule)| offers(rule)).collect::<Vec<_>>() {
            let mut told = Vec::new();
            let done = self.done;
            for version in offer.as_ref().map(|offer| self.versions(rule, offer)).unwrap_or_default() {
                let making = |error| Error::system("make what the plugin is to find", error);
                let made = rule.run.surroundings().make().map_err(making)?;
                let mut subprocess = self.start(candidate, &made.variables, version)?;
                self.done = done;
                let endings = self.run_step(&mut subprocess, Step::Rule(number), &format!("{path}: {}", rule.name))?;
                told.push((version, causes.outcome(rule, endings)));
            }
            let outcome = together(told);
            rules.push(RuleReport { rule: rule.name, asks: rule.asks, sources: rule.source.lines(), outcome });
        }
        let figures = match &offer {
            Ok(_) => Ok(PluginFigures::default()),
            Err(unusable) => Err(unusable.why.clone()),
        };
        let settings = candidate.settings.clone();
        Ok(PluginReport { label: label(candidate), path, settings, offer, rules, figures })
    }

    /// The rules that were asked for, with their numbers. A version that was asked for is one of the network's.
    fn rules_to_try(&self) -> impl Iterator<Item = (usize, &'static Rule)> + use<'_> {
        let plan = &self.call.plan;
        let asked = |rule: &Rule| plan.rules.iter().any(|name| name == rule.name);
        let of_version = |rule: &Rule| plan.version.is_none() || matches!(rule.run, Run::Network(_));
        rules::all().enumerate().filter(move |(_, rule)| asked(rule) && of_version(rule))
    }

    /// The versions to try a rule in: each has a process of its own, as NCCL takes one version of a file.
    fn versions(&self, rule: &Rule, offer: &PluginOffer) -> Vec<Option<u8>> {
        let of = |part: &Option<PartOffer>| part.iter().flat_map(|part| &part.versions).copied().map(Some).collect();
        match rule.run {
            Run::Network(_) => vec![self.call.plan.version],
            Run::Tuner(..) => of(&offer.tuner),
            Run::Profiler(..) => of(&offer.profiler),
        }
    }

    /// Measures all usable plugins, in turn at every step, so that what drifts touches all of them.
    fn measure(&mut self, plugins: &mut [PluginReport]) -> Result<()> {
        let plan = &self.call.plan;
        let Some(largest) = plan.sizes.iter().max() else { return Ok(()) };
        let connect = Step::Connect { most_bytes: largest.0 as usize, in_flight: plan.in_flight };
        let mut measured: Vec<Measured<'_>> = Vec::new();
        for (candidate, report) in plan.candidates.iter().zip(plugins) {
            if report.offer.as_ref().is_ok_and(|offer| offer.network.is_some()) {
                measured.push(Measured { subprocess: self.start(candidate, &[], plan.version)?, report });
            }
        }
        for plugin in &mut measured {
            self.measure_step(plugin, connect, |_, _| ())?;
        }
        for &size in &plan.sizes {
            for _ in 0..plan.repetitions {
                for plugin in &mut measured {
                    let step = Step::Bandwidth { bytes: size.0 as usize, duration: plan.duration };
                    self.measure_step(plugin, step, |figures, outcome| add_bandwidth(figures, size, &outcome))?;
                }
            }
        }
        for plugin in &mut measured {
            self.measure_step(plugin, Step::Latency { duration: plan.duration }, |figures, outcome| {
                if let [Outcome::Latency(latency), _] = outcome {
                    figures.latency = Some(latency);
                }
            })?;
            self.measure_step(plugin, Step::MessageRate { duration: plan.duration }, |figures, outcome| {
                if let [_, Outcome::MessageRate(rate)] = outcome {
                    figures.messages_per_second = Some(rate);
                }
            })?;
        }
        Ok(())
    }

    /// One step of a plugin that has not failed before; a failure is its last step.
    fn measure_step(
        &mut self,
        plugin: &mut Measured<'_>,
        step: Step,
        keep: impl FnOnce(&mut PluginFigures, [Outcome; 2]),
    ) -> Result<()> {
        let Ok(figures) = &mut plugin.report.figures else { return Ok(()) };
        let doing = format!("{}: {}", plugin.report.label, step.describe());
        let endings = self.run_step(&mut plugin.subprocess, step, &doing)?;
        match failure(&endings) {
            Some(wrong) => plugin.report.figures = Err(wrong.to_string()),
            None => keep(figures, endings.map(|ending| ending.outcome)),
        }
        Ok(())
    }

    /// Starts the process that loads a plugin; what is made for the test goes before what the plugin is given.
    fn start(&self, candidate: &Candidate, made: &[(String, String)], version: Option<u8>) -> Result<Subprocess> {
        let plan = &self.call.plan;
        let setup = Setup {
            path: candidate.path.clone(),
            version,
            device: plan.device,
            side: self.side,
            patience: plan.patience,
        };
        let environment = [&candidate.settings, made].concat();
        let command = SubprocessCommand {
            program: &self.call.invocation.program,
            arguments: &self.call.subprocess_arguments,
            environment: &environment,
        };
        Subprocess::start(&command, &setup)
    }

    fn run_step(&mut self, subprocess: &mut Subprocess, step: Step, doing: &str) -> Result<[Ending; 2]> {
        if self.world.rank() == 0 {
            (self.progress)(Progress { done: self.done, all: self.steps(), doing });
        }
        self.done += 1;
        harness::run_step(&mut self.world, subprocess, step)
    }

    /// Steps of a run in which no plugin fails.
    fn steps(&self) -> usize {
        let plan = &self.call.plan;
        let rules = self.rules_to_try().count();
        let figures = if plan.sizes.is_empty() { 0 } else { 3 + plan.sizes.len() * plan.repetitions };
        plan.candidates.len() * (1 + rules + figures)
    }
}

/// A plugin that is being measured.
struct Measured<'a> {
    subprocess: Subprocess,
    report: &'a mut PluginReport,
}

fn add_bandwidth(figures: &mut PluginFigures, size: Bytes, outcome: &[Outcome; 2]) {
    let [Outcome::Bandwidth { cpu_s_per_gb: sending, .. }, Outcome::Bandwidth { gb_per_s, cpu_s_per_gb: receiving }] =
        outcome
    else {
        return;
    };
    let rows = &mut figures.bandwidth;
    let at = rows.iter().position(|row| row.size == size).unwrap_or_else(|| {
        rows.push(PluginBandwidth { size, gb_per_s: Vec::new(), cpu_s_per_gb: Vec::new() });
        rows.len() - 1
    });
    rows[at].gb_per_s.push(*gb_per_s);
    rows[at].cpu_s_per_gb.push(sending + receiving);
}

fn offered(endings: [Ending; 2]) -> std::result::Result<PluginOffer, UnusablePlugin> {
    let failed = failure(&endings).map(|wrong| wrong.to_string());
    match (failed, endings.map(|ending| ending.outcome)) {
        (_, [Outcome::Unusable(unusable), _] | [_, Outcome::Unusable(unusable)]) => Err(unusable),
        (Some(why), _) => Err(UnusablePlugin { why, logged: Vec::new() }),
        (None, [Outcome::Offer(offer), Outcome::Offer(_)]) => Ok(offer),
        (None, _) => Err(UnusablePlugin { why: "it did not say what it offers".into(), logged: Vec::new() }),
    }
}

fn is_about(rule: &Rule, offer: &PluginOffer) -> bool {
    match rule.run {
        Run::Network(_) => offer.network.is_some(),
        Run::Tuner(..) => offer.tuner.is_some(),
        Run::Profiler(..) => offer.profiler.is_some(),
    }
}

/// `libnccl-net-busbw.so` is called busbw; others by what is left of their names.
fn label(candidate: &Candidate) -> String {
    let name = candidate.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = match name.strip_suffix(".so") {
        Some(stem) => stem.trim_start_matches("libnccl-net-").trim_start_matches("lib").to_owned(),
        None => name,
    };
    let values: Vec<&str> = candidate.settings.iter().map(|(_, value)| value.as_str()).collect();
    if values.is_empty() { stem } else { format!("{stem} {}", values.join("×")) }
}

/// Plugins of one name get numbers.
fn name_apart(plugins: &mut [PluginReport]) {
    let labels: Vec<String> = plugins.iter().map(|plugin| plugin.label.clone()).collect();
    for (at, plugin) in plugins.iter_mut().enumerate() {
        if labels.iter().filter(|label| **label == plugin.label).count() > 1 {
            plugin.label = format!("{} ({})", plugin.label, at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_plugins_apart() {
        let candidate = |path: &str, settings: &[(&str, &str)]| Candidate {
            path: path.into(),
            settings: settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        };
        for (candidate, expected) in [
            (candidate("/opt/libnccl-net-busbw.so", &[]), "busbw"),
            (candidate("libnccl-net.so", &[]), "nccl-net"),
            (candidate("/lib/libc.so.6", &[]), "libc.so.6"),
            (candidate("x.so", &[("NCCL_SOCKET_NTHREADS", "4"), ("NCCL_NSOCKS_PERTHREAD", "2")]), "x 4×2"),
        ] {
            assert_eq!(label(&candidate), expected);
        }
    }
}
