//! `bench-tune`: how often racing finds a good setting, and in how many runs.

use busbw_benches::program;
use busbw_benches::results::{place, record};
use busbw_benches::tune::{TuneError, arms, measure, table};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Race the settings of the third field report over many seeds.
///
/// Run it from the repository's root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Seeds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The sweep: settings with mean and deviation.
    #[arg(long, value_name = "FILE", default_value = "tests/data/tune/lanta-socket-sweep.csv")]
    sweep: PathBuf,
    /// The result file; the table goes beside it, as .md [default: benches/results/tune-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), TuneError> {
    let report = measure(arms(&arguments.sweep)?, arguments.seeds);
    print!("{}", table(&report));
    let path = place(arguments.out.as_deref(), "tune", &report.origin);
    println!("written to {}", record(path, &report, Some(table(&report)))?);
    Ok(())
}
