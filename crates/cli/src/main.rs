//! The `busbw` command: parses flags and calls one function per subcommand.

#![deny(unsafe_code)]

mod accelerate;
mod advise;
mod bench;
mod check;
mod cli;
mod command;
mod compare;
mod described;
mod doctor;
mod explain;
mod flags;
mod generate;
#[cfg(test)]
mod grammar;
mod link;
mod memory;
mod monitor;
mod output;
mod plugin;
mod predict;
mod profile;
mod progress;
mod recorded;
mod rules;
mod simulate;
mod sizes;
mod tune;
mod tuning_file;
mod values;
mod verbs;
mod watch;

use busbw_launch::launcher::LaunchedRank;
use clap::FromArgMatches;
use command::{Cli, Command};
use output::Refusal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

fn main() -> ExitCode {
    tell_unknown_variables();
    let marked = LaunchedRank::begin(&|name| std::env::var(name).ok());
    let code = bench::run_as_program().unwrap_or_else(run).unwrap_or_else(|refusal| {
        output::say(refusal.message);
        ExitCode::from(refusal.status)
    });
    if let Some(marked) = marked {
        // An exit code does not tell its number.
        marked.end((0..u8::MAX).find(|&status| ExitCode::from(status) == code).unwrap_or(u8::MAX));
    }
    code
}

/// Names variables that look like ours and are not, once for a job.
fn tell_unknown_variables() {
    let unknown = busbw_transport::variables::unknown_here();
    if !unknown.is_empty() && output::speaks_for_the_job() {
        unknown.iter().for_each(output::say);
    }
}

fn run() -> Result<ExitCode, Refusal> {
    // A limit of file sizes is then an error of the write, which names the file, and not the end of the process.
    let heard = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard).map_err(|error| error.to_string())?;
    let matches = match verbs::matches() {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => output::refuse(&error),
        Err(help) => {
            output::write(None, |_| help.print())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    output::refuse_loss(&matches)?;
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| output::refuse(&error));
    Ok(match &cli.command {
        Command::Explain(flags) => explain::run(flags)?,
        Command::Check(flags) => check::run(flags)?,
        Command::Bench(flags) => bench::run(flags)?,
        Command::Advise(flags) => advise::run(flags)?,
        Command::Compare(flags) => compare::run(flags)?,
        Command::Accelerate(flags) => accelerate::run(flags)?,
        Command::Tune(flags) => tune::run(flags)?,
        Command::Predict(flags) => predict::run(flags)?,
        Command::Simulate(flags) => simulate::run(flags)?,
        Command::Link(flags) => link::run(flags)?,
        Command::Monitor(flags) => monitor::run(flags)?,
        Command::Watch(flags) => watch::run(flags)?,
        Command::Profile(flags) => profile::run(flags)?,
        Command::Plugin(plugin::Plugin { verb: plugin::Verb::Check(flags) }) | Command::Net(flags) => {
            plugin::check(flags)?
        }
        Command::Rules(flags) => rules::run(flags)?,
        Command::Doctor(flags) => doctor::run(flags)?,
        Command::Completions { shell } => generate::completions(*shell)?,
        Command::Man { directory } => generate::man(directory.as_deref())?,
    })
}
