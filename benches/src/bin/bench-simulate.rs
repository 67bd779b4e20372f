//! `bench-simulate`: times the simulation of a fabric from 512 to 65,536 GPUs, on one core.

use busbw_benches::program::{self, FileError, Outcome};
use busbw_benches::results::{place, record};
use busbw_benches::simulate::{Case, Report, measure, table};
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time the simulation of a three-level fabric as it grows from 512 to 65,536 GPUs, on one core.
///
/// Run it from the repository's root, on a machine that does nothing else.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Measured runs of each case.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// The largest cluster.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(512..))]
    gpus: u32,
    /// Simulate one case once, of --gpus GPUs, and print the lowest busbw found. The benchmark calls itself so.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["runs", "out"])]
    only: Option<Case>,
    /// The result file; the table goes beside it, as .md [default: benches/results/simulate-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(case) = arguments.only {
        println!("{}", case.simulate(arguments.gpus)?);
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let own = std::env::current_exe().map_err(FileError::at(Path::new("bench-simulate")))?;
    let measured = measure(&own, arguments.gpus, arguments.runs, scratch.path(), |step| eprintln!("{step}"))?;
    let report = Report::new(&measured);
    print!("{}", table(&report));
    let path = place(arguments.out.as_deref(), "simulate", &report.origin);
    println!("written to {}", record(path, &report, Some(table(&report)))?);
    Ok(())
}
