//! The `busbw` command: parses flags and calls one function per subcommand.

#![deny(unsafe_code)]

mod accelerate;
mod bench;
mod check;
mod cli;
mod compare;
mod described;
mod doctor;
mod explain;
mod generate;
mod link;
mod memory;
mod monitor;
mod output;
mod plugin;
mod predict;
mod progress;
mod rules;
mod simulate;
mod sizes;
mod tune;
mod values;
mod verbs;

use clap::FromArgMatches;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

fn main() -> ExitCode {
    let result = bench::run_as_program().unwrap_or_else(run);
    match result {
        Ok(code) => code,
        Err(message) => {
            output::say(message);
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    // A limit of file sizes is then an error of the write, which names the file, and not the end of the process.
    let heard = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard).map_err(|error| error.to_string())?;
    let matches = verbs::matches();
    output::refuse_inputs(&matches)?;
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match &cli.command {
        cli::Command::Explain(flags) => explain::run(flags),
        cli::Command::Check(flags) => check::run(flags),
        cli::Command::Bench(bench) => bench::run(bench.collective, &bench.flags),
        cli::Command::Compare(flags) => compare::run(flags),
        cli::Command::Accelerate(flags) => accelerate::run(flags),
        cli::Command::Tune(flags) => tune::run(flags),
        cli::Command::Predict(flags) => predict::run(flags),
        cli::Command::Simulate(flags) => simulate::run(flags),
        cli::Command::Link(flags) => link::run(flags),
        cli::Command::Monitor(flags) => monitor::run(flags),
        cli::Command::Plugin(plugin::Plugin { verb: plugin::Verb::Check(flags) }) | cli::Command::Net(flags) => {
            plugin::check(flags)
        }
        cli::Command::Rules(flags) => rules::run(flags),
        cli::Command::Doctor(flags) => doctor::run(flags),
        cli::Command::Completions { shell } => generate::completions(*shell),
        cli::Command::Man { directory } => generate::man(directory.as_deref()),
    }
}
