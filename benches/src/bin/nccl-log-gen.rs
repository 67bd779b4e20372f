//! `nccl-log-gen`: writes a deterministic NCCL log of any size.

use busbw_benches::nccl_log::{GenerateError, NCCL_RELEASE, Prefix, Shape, write_log};
use busbw_benches::program;
use busbw_model::Bytes;
use clap::Parser;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Write an NCCL log of many ranks, as all_reduce_perf prints it under NCCL_DEBUG=INFO.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Ranks of a communicator.
    #[arg(long, default_value_t = 16384)]
    ranks: u32,
    /// GPUs, and NICs, of a node.
    #[arg(long, default_value_t = 8)]
    gpus_per_node: u32,
    /// Channels of a communicator.
    #[arg(long, default_value_t = 32)]
    channels: u32,
    /// The NCCL release whose lines are written.
    #[arg(long, value_parser = [NCCL_RELEASE], default_value = NCCL_RELEASE)]
    nccl: String,
    /// Write further communicators until the log has this size (for example 1G); without it one.
    #[arg(long)]
    bytes: Option<Bytes>,
    /// The same flags and seed give the same bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The launcher's label in front of every line.
    #[arg(long, value_enum, default_value_t = Prefix::None)]
    prefix: Prefix,
    /// Cut ring orders after 127 bytes and lines after 1,023, as NCCL 2.27 does; without it they are whole.
    #[arg(long)]
    cut: bool,
    /// Where to write; - is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), String> {
    let shape = Shape {
        ranks: arguments.ranks,
        gpus_per_node: arguments.gpus_per_node,
        channels: arguments.channels,
        bytes: arguments.bytes,
        seed: arguments.seed,
        prefix: arguments.prefix,
        cut: arguments.cut,
    };
    let path = arguments.output;
    let mut out: Box<dyn Write> = if path.as_os_str() == "-" {
        Box::new(io::stdout().lock())
    } else {
        Box::new(File::create(&path).map_err(|error| format!("{} cannot be created: {error}", path.display()))?)
    };
    let started = Instant::now();
    match write_log(&shape, &mut out) {
        Ok(written) => {
            let seconds = started.elapsed().as_secs_f64();
            eprintln!(
                "{} in {seconds:.2} s ({:.0} MB/s), {} communicator(s) of {} ranks",
                Bytes(written.bytes),
                written.bytes as f64 / seconds / 1e6,
                written.communicators,
                shape.ranks
            );
            Ok(())
        }
        // `nccl-log-gen -o - | head` is no error.
        Err(GenerateError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
