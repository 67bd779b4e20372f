//! `bench-monitor`: what watching 16 ports costs.

use busbw_benches::ingest::Scratch;
use busbw_benches::monitor::{MonitorError, measure, table, write_result};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the processor time of `busbw monitor` on a generated tree of 16 RDMA ports, at one sample per second.
///
/// Run it from the repository's root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The busbw to measure.
    #[arg(long, value_name = "PATH", default_value = "target/release/busbw")]
    busbw: PathBuf,
    /// Samples of a run, one per second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    samples: u32,
    /// Runs of each view.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The result file; the table goes beside it, as .md [default: benches/results/monitor-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-monitor: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), MonitorError> {
    let temporary = std::env::temp_dir().display().to_string();
    let scratch = Scratch::new().map_err(|error| MonitorError::File { path: temporary, error })?;
    let report =
        measure(&arguments.busbw, arguments.samples, arguments.runs, scratch.path(), |step| eprintln!("{step}"))?;
    print!("{}", table(&report));
    let (json, tables) = write_result(&report, arguments.out.as_deref())?;
    println!("written to {} and {}", json.display(), tables.display());
    Ok(())
}
