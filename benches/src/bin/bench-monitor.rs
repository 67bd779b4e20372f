//! `bench-monitor`: what watching 16 ports costs.

use busbw_benches::monitor::{measure, table};
use busbw_benches::program::{self, Outcome};
use busbw_benches::results::{place, record};
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
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let report =
        measure(&arguments.busbw, arguments.samples, arguments.runs, scratch.path(), |step| eprintln!("{step}"))?;
    print!("{}", table(&report));
    let path = place(arguments.out.as_deref(), "monitor", &report.origin);
    println!("written to {}", record(path, &report, Some(table(&report)))?);
    Ok(())
}
