//! `bench-tune`: how often racing finds a good setting, and in how many runs.

use busbw_benches::tune::{TuneError, arms, measure, table, write_result};
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
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-tune: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), TuneError> {
    let report = measure(arms(&arguments.sweep)?, arguments.seeds);
    print!("{}", table(&report));
    let (json, tables) = write_result(&report, arguments.out.as_deref())?;
    println!("written to {} and {}", json.display(), tables.display());
    Ok(())
}
