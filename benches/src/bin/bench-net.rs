//! `bench-net`: busbw's net plugin between two hosts of the lab, beside iperf3, bare sockets and other plugins.

use busbw_benches::net::{NETWORKS, Test, Ways, answer, ask, measure, table};
use busbw_benches::program::{self, FileError, Outcome};
use busbw_benches::results::{place, record};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure busbw's net plugin between two hosts of tests/lab/netlab (as root): without limits, with TCP flows limited to
/// 250 MB/s, on a line of 8 Gbit/s, and without limits while every core is busy, beside iperf3 with 1 to 16 streams and a bare ping-pong of sockets.
///
/// Run it from the repository's root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The busbw that measures.
    #[arg(long, value_name = "PATH", default_value = "target/release/busbw")]
    busbw: PathBuf,
    /// busbw's plugin.
    #[arg(long, value_name = "PATH", default_value = "target/release/libnccl-net-busbw.so")]
    plugin: PathBuf,
    /// Another plugin to compare with, over a grid of NCCL_SOCKET_NTHREADS × NCCL_NSOCKS_PERTHREAD.
    #[arg(long = "other", value_name = "PATH")]
    others: Vec<PathBuf>,
    /// Rounds; in each, every program runs once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each run of iperf3.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only this network; may be given several times [default: all].
    #[arg(long = "network", value_name = "NAME", value_parser = PossibleValuesParser::new(NETWORKS.map(|network| network.name)))]
    networks: Vec<String>,
    /// The result file; the tables go beside it, as .md [default: benches/results/net-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Answer a bare ping-pong at this address
    #[arg(long, hide = true)]
    answer: Option<String>,
    /// Ask in a bare ping-pong
    #[arg(long, hide = true)]
    ask: Option<String>,
    /// The bare ping-pong has a connection each way
    #[arg(long, hide = true)]
    each_way: bool,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let ways = Ways::each(arguments.each_way);
    if let Some(address) = &arguments.answer {
        return Ok(answer(address, ways).map_err(FileError::at(Path::new(address)))?);
    }
    if let Some(address) = &arguments.ask {
        println!("{}", ask(address, ways).map_err(FileError::at(Path::new(address)))?);
        return Ok(());
    }
    let whole = |path: &Path| std::path::absolute(path).map_err(FileError::at(path));
    let test = Test {
        busbw: whole(&arguments.busbw)?,
        own: std::env::current_exe().map_err(FileError::at(Path::new("bench-net")))?,
        plugin: whole(&arguments.plugin)?,
        others: arguments.others.iter().map(|path| whole(path)).collect::<Result<_, _>>()?,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        networks: arguments.networks.clone(),
    };
    let report = measure(&test, |step| eprintln!("{step}"))?;
    let table = table(&report);
    print!("{table}");
    let path = place(arguments.out.as_deref(), "net", &report.origin);
    println!("written to {}", record(path, &report, Some(table))?);
    Ok(())
}
