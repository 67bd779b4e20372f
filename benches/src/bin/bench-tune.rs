//! `bench-tune`: how often racing finds a good setting, and in how many runs.

use busbw_benches::program::{self, FileError, Outcome};
use busbw_benches::results::{place, record};
use busbw_benches::tune::{hosts, simulated};
use busbw_model::Bytes;
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Race the settings of the third field report over many seeds, or with --lab those of `busbw tune sockets` on two hosts.
///
/// Run it from the repository's root. --lab needs root, and Open MPI.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Seeds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "lab")]
    seeds: u64,
    /// The sweep: settings with mean and deviation.
    #[arg(long, value_name = "FILE", default_value = "tests/data/tune/lanta-socket-sweep.csv", conflicts_with = "lab")]
    sweep: PathBuf,
    /// Race on two hosts of the lab whose TCP flows carry 250 MB/s, beside the whole grid.
    #[arg(long)]
    lab: bool,
    /// The busbw to measure, with --lab.
    #[arg(long, value_name = "PATH", default_value = "target/release/busbw")]
    busbw: PathBuf,
    /// The size of the all-reduce, with --lab.
    #[arg(long, default_value = "64M")]
    size: Bytes,
    /// Iterations of a trial, with --lab.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Rounds of the whole grid, with --lab.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Races, with --lab.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    races: u32,
    /// The result file; the table goes beside it, as .md [default: benches/results/tune-DATE.json, with --lab tune-lab-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    if arguments.lab { on_hosts(arguments) } else { simulate(arguments) }
}

fn simulate(arguments: &Arguments) -> Outcome<()> {
    let report = simulated::measure(simulated::arms(&arguments.sweep)?, arguments.seeds);
    let tables = simulated::table(&report);
    print!("{tables}");
    let path = place(arguments.out.as_deref(), "tune", &report.origin);
    println!("written to {}", record(path, &report, Some(tables))?);
    Ok(())
}

fn on_hosts(arguments: &Arguments) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let test = hosts::Test {
        busbw: fs::canonicalize(&arguments.busbw).map_err(FileError::at(&arguments.busbw))?,
        size: arguments.size,
        iterations: arguments.iterations,
        rounds: arguments.rounds,
        races: arguments.races,
    };
    let report = hosts::measure(test, scratch.path(), |step| eprintln!("{step}"))?;
    let tables = hosts::table(&report);
    print!("{tables}");
    let path = place(arguments.out.as_deref(), "tune-lab", &report.origin);
    println!("written to {}", record(path, &report, Some(tables))?);
    Ok(())
}
