//! `busbw tune`: runs a command over a space of settings and says which are best.

mod files;
mod flags;
mod progress;

pub use flags::Tune;

use crate::flags::Format;
use crate::{check, output};
use busbw_model::Tuning;
use busbw_report::{html, json, text};
use busbw_tune::import::import;
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
use busbw_tune::tuning_table::tuning_table;
use flags::DEFAULT;
use progress::Progress;
use std::fs;
use std::io::Write;
use std::path::Path;
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
    if let Some(table) = &flags.import {
        return imported(flags, table);
    }
    let plan = plan(flags)?;
    if flags.dry_run.dry_run {
        return output::write(None, |out| out.write_all(listing(&plan).as_bytes())).map(|()| ExitCode::SUCCESS);
    }
    if let Some(program) = flags.missing_program() {
        return Err(format!("{program}: no such program here; correct the command behind --"));
    }
    if plan.jobs.is_some() {
        busbw_tune::slurm::ask_the_controller().map_err(|e| e.to_string())?;
    }
    let store = Store::open(&flags.store(), &plan.identity(flags)).map_err(|e| e.to_string())?;
    let progress = Progress::new(flags.quiet.quiet)?;
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
        measured: plan.objective.measured(flags.unit.as_deref()),
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
    if swept.stopped != Some(Stop::Interrupted) {
        let table = tuning_table(&plan.settings, &swept.trials, &plan.rules, &store);
        files::write(flags, store.folder(), &plan.workload, &tuning, table.as_ref())?;
    }
    let answered = tuning.best().is_some() && swept.stopped.is_none();
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The statistics of a sweep that somebody else made.
fn imported(flags: &Tune, table: &Path) -> Result<ExitCode, String> {
    let name = table.display().to_string();
    let text = fs::read(table).map_err(|e| format!("--import {name}: {e}; check the path"))?;
    let tuning = import(&name, &text, &flags.wanted(), flags.rules())
        .map_err(|errors| errors.iter().map(|error| format!("{name}: {error}")).collect::<Vec<_>>().join("\n"))?;
    print(flags, &tuning)?;
    Ok(if tuning.best().is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
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
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_tune(tuning, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::tune(tuning)),
        _ => out.write_all(text::tune(tuning, &style).as_bytes()),
    })
}
