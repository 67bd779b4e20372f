//! `bench-ingest`: times busbw beside wc and rg on one log, or on a log of 16,384 ranks.

use busbw_benches::ingest::{
    Answer, Entry, Report, SCALE_GOAL_S, Subject, alternate, count, print_table, scale, side_by_side,
};
use busbw_benches::measure::output_path;
use busbw_benches::nccl_log::{Prefix, Shape, Written, write_log};
use busbw_benches::program::{self, FileError, Outcome};
use busbw_benches::results::{place, record};
use busbw_model::Bytes;
use clap::Parser;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time `busbw explain` beside `wc -l` and `rg -c` on one log.
///
/// The commands run in turn, once to warm caches and then --runs times. Run it from the repository's root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The busbw to measure.
    #[arg(long, value_name = "PATH", default_value = "target/release/busbw")]
    busbw: PathBuf,
    /// The log to read; without it one is generated and removed at the end.
    #[arg(long, conflicts_with_all = ["size", "scale"])]
    file: Option<PathBuf>,
    /// Read this log, repeated until it has the size.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "scale"])]
    repeat: Option<PathBuf>,
    /// The size of the generated or repeated log.
    #[arg(long, conflicts_with = "scale", default_value = "1G")]
    size: Bytes,
    /// Time busbw alone on one communicator of 16,384 ranks and 32 channels.
    #[arg(long)]
    scale: bool,
    /// Ranks of a generated communicator [default: 1024, with --scale 16384].
    #[arg(long)]
    ranks: Option<u32>,
    /// GPUs of a generated node.
    #[arg(long, default_value_t = 8)]
    gpus_per_node: u32,
    /// Channels of a generated communicator.
    #[arg(long, default_value_t = 32)]
    channels: u32,
    /// The seed of a generated log.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cut long lines of a generated log as NCCL 2.27 does.
    #[arg(long)]
    cut: bool,
    /// Measured runs of each command.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// The result file [default: benches/results/ingest-DATE.json, with --scale scale-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let file = arguments.file.clone().unwrap_or_else(|| scratch.path().join("nccl.log"));
    // Whether the programs are there is found out before a large file is written.
    let mut entries =
        if arguments.scale { scale(&arguments.busbw, &file)? } else { side_by_side(&arguments.busbw, &file)? };
    let generated = match (&arguments.file, &arguments.repeat) {
        (Some(_), _) => None,
        (None, Some(log)) => {
            repeat(log, arguments.size, &file)?;
            None
        }
        (None, None) => Some(generate(arguments, &file)?),
    };
    let subject = describe(&file, generated)?;
    alternate(&mut entries, usize::from(arguments.runs), scratch.path(), |step| eprintln!("{step}"))?;
    let report = conclude(arguments, subject, &entries, scratch.path());
    print!("{}", print_table(&report));
    let path = place(arguments.out.as_deref(), report.mode, &report.origin);
    println!("written to {}", record(path, &report, None)?);
    Ok(())
}

fn generate(arguments: &Arguments, file: &Path) -> Outcome<(Shape, Written)> {
    let shape = Shape {
        ranks: arguments.ranks.unwrap_or(if arguments.scale { 16_384 } else { 1024 }),
        gpus_per_node: arguments.gpus_per_node,
        channels: arguments.channels,
        bytes: (!arguments.scale).then_some(arguments.size),
        seed: arguments.seed,
        prefix: Prefix::None,
        cut: arguments.cut,
    };
    eprintln!("generating a log of communicators of {} ranks", shape.ranks);
    let mut out = File::create(file).map_err(FileError::at(file))?;
    let written = write_log(&shape, &mut out)?;
    Ok((shape, written))
}

/// Writes a log again and again, as a job's output goes on.
fn repeat(log: &Path, size: Bytes, file: &Path) -> Outcome<()> {
    let text = fs::read(log).map_err(FileError::at(log))?;
    let times = size.0.div_ceil(text.len().max(1) as u64);
    let mut out = File::create(file).map_err(FileError::at(file))?;
    Ok((0..times).try_for_each(|_| out.write_all(&text)).map_err(FileError::at(file))?)
}

fn describe(file: &Path, generated: Option<(Shape, Written)>) -> Outcome<Subject> {
    let bytes = fs::metadata(file).map_err(FileError::at(file))?.len();
    let (shape, written) = generated.unzip();
    Ok(Subject {
        bytes,
        lines: count("wc", &["-l"], file)?,
        // The scale benchmark does not need rg.
        channel_lines: count("rg", &["-c", "Channel"], file).unwrap_or(None),
        shape,
        written,
    })
}

fn conclude(arguments: &Arguments, subject: Subject, entries: &[Entry], scratch: &Path) -> Report {
    if arguments.scale {
        Report::new("scale", subject, entries, None, Some(SCALE_GOAL_S))
    } else {
        // The last command of a round is busbw, so the last output is its JSON.
        let answer = Answer::read(&output_path(scratch));
        let mode = if arguments.repeat.is_some() { "training" } else { "ingest" };
        Report::new(mode, subject, entries, answer, None)
    }
}
