//! `busbw tune`: runs a command over a space of settings and says which are best.

mod files;
mod flags;
mod progress;

pub use flags::Tune;

use crate::cli::Format;
use crate::{check, explain, output};
use busbw_model::Tuning;
use busbw_report::{html, json, text};
use busbw_tune::objective::Objective;
use busbw_tune::outputs::quoted;
use busbw_tune::race::Rules;
use busbw_tune::result::{About, result};
use busbw_tune::runner::Workload;
use busbw_tune::script::SilentMpirun;
use busbw_tune::slurm::Jobs;
use busbw_tune::space::{Setting, Space};
use busbw_tune::store::Store;
use busbw_tune::sweep::{Stop, Sweep};
use flags::DEFAULT;
use progress::Progress;
use std::process::ExitCode;
use std::time::Instant;

/// All that a sweep needs, checked before anything runs.
struct Plan {
    space: Space,
    settings: Vec<Setting>,
    objective: Objective,
    rules: Rules,
    workload: Workload,
    jobs: Option<Jobs>,
}

/// Runs the subcommand. The exit status is 1 where no setting gave a result, or the sweep was stopped.
pub fn run(flags: &Tune) -> Result<ExitCode, String> {
    let plan = plan(flags)?;
    if flags.dry_run {
        return output::write(None, |out| out.write_all(listing(&plan).as_bytes())).map(|()| ExitCode::SUCCESS);
    }
    if let Some(program) = flags.missing_program() {
        return Err(format!("{program}: no such program here; correct the command behind --"));
    }
    let store = Store::open(&flags.store(), &plan.identity(flags)).map_err(|e| e.to_string())?;
    let progress = Progress::new()?;
    plan.silent_mpirun().iter().for_each(|found| progress.warn(found));
    let sweep = Sweep {
        settings: &plan.settings,
        workload: &plan.workload,
        objective: &plan.objective,
        rules: plan.rules.clone(),
        warm_up: flags.warm_up,
        until: flags.max_time.map(|time| Instant::now() + time),
        jobs: plan.jobs.as_ref(),
    };
    let swept = sweep.run(&store, &progress);
    progress.finish();
    let swept = swept.map_err(|e| e.to_string())?;
    let about = About {
        space: &plan.space,
        settings: &plan.settings,
        objective: &plan.objective,
        rules: &plan.rules,
        command: plan.command(),
    };
    let tuning = result(&about, &swept);
    print(flags, &tuning)?;
    if tuning.best().is_none()
        && swept.stopped.is_none()
        && let Some(fault) = plan.workload.hosts().and_then(check::hosts::at_fault)
    {
        return Err(fault);
    }
    // Out of time, the best setting so far is the result. After an interruption the race can still continue: no file yet.
    if let Some(best) = tuning.best().filter(|_| swept.stopped != Some(Stop::Interrupted)) {
        files::write(flags, store.folder(), &plan.workload, &best.setting)?;
    }
    let answered = tuning.best().is_some() && swept.stopped.is_none();
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn plan(flags: &Tune) -> Result<Plan, String> {
    let space = flags.space()?;
    let mut settings = space.settings().map_err(|e| e.to_string())?;
    if !flags.no_default {
        settings.insert(DEFAULT, Setting::default());
    }
    Ok(Plan {
        objective: flags.objective()?,
        rules: flags.rules(),
        workload: flags.workload(),
        jobs: flags.jobs()?,
        space,
        settings,
    })
}

impl Plan {
    /// What a store holds the trials of: with anything else they could not be compared.
    fn identity(&self, flags: &Tune) -> Vec<(&'static str, String)> {
        let settings: Vec<String> = self.settings.iter().map(Setting::name).collect();
        vec![
            ("command", self.command()),
            ("space", settings.join("\n")),
            ("objective", format!("{:?}", self.objective)),
            ("--seed, --exhaustive, --warm-up, --confidence or --tolerance", flags.order()),
        ]
    }

    /// An mpirun that would not hand the settings on; under Slurm the scripts are elsewhere, perhaps.
    fn silent_mpirun(&self) -> Option<SilentMpirun> {
        let variables: Vec<String> = self.space.variables.iter().map(|variable| variable.name.clone()).collect();
        SilentMpirun::find(&self.workload, &variables)
    }

    fn command(&self) -> String {
        self.workload.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// What would run: every setting with its command line.
fn listing(plan: &Plan) -> String {
    let line = |setting: &Setting| {
        let words: Vec<String> = plan.workload.words_for(setting).iter().map(|word| quoted(word)).collect();
        format!("{}  {}\n", setting.name(), words.join(" "))
    };
    plan.settings.iter().map(line).collect()
}

fn print(flags: &Tune, tuning: &Tuning) -> Result<(), String> {
    output::write(flags.output.file(), |out| match flags.output.format() {
        Format::Json => json::write_tune(tuning, out),
        Format::Html => output::page(out, &html::tune(tuning)),
        Format::Text => {
            let style = explain::looked(&flags.output.look, flags.output.file());
            out.write_all(text::tune(tuning, &style).as_bytes())
        }
    })
}
