//! `busbw profile -- COMMAND`: what a job's collectives cost.

use crate::flags::{Format, Look, Output};
use crate::{described, output};
use busbw_launch::attendant::Attendant;
use busbw_launch::host;
use busbw_model::{Bytes, Collective, Profile as Profiled, ProfileSource};
use busbw_predict::Cluster;
use busbw_profile::{Agent, Report, Trace};
use busbw_report::{html, json, text};
use clap::{Args, ValueHint};
use output::Refusal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Measure what a job's collectives cost: by size, by rank, who is waited for
///
/// Starts the job with busbw as NCCL's profiler (NCCL 2.23 and newer) and reads its events while it runs. Prints, when the job has
/// ended, the time in collectives per rank and per size, the operations that took longest, and the ranks that others waited for.
/// busbw bench on CPU cores and busbw.torch write the same events. Ranks on this host are seen.
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = "busbw profile [OPTIONS] -- <COMMAND>...")]
pub struct Profile {
    /// The command that starts the job: torchrun, mpirun, python. Its output, its signals and its exit status are passed on
    #[arg(last = true, value_name = "COMMAND", required = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,

    /// Also write every operation to a trace for ui.perfetto.dev
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,

    /// Description of the run's cluster (TOML), to compare with the expected speed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cluster: Option<PathBuf>,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    look: Look,
}

const EXAMPLES: &str = "Examples:
  busbw profile -- torchrun --nproc-per-node 8 train.py
  busbw profile --trace trace.json -- torchrun train.py   open the trace at ui.perfetto.dev
  busbw profile --cluster cluster.toml -- mpirun -np 8 all_reduce_perf -b 1M -e 1G -f 2
  busbw profile -o profile.html -- torchrun train.py      bars of where each rank's time went
  busbw profile -o profile.json -- busbw bench all_reduce --np 2 -b 1K -e 4M
  busbw profile --json=profile.json -- python train.py; jq '.operations[0]' profile.json

Exit status:
  2  the job could not be started, or bad usage
  The job's exit status otherwise, 128 + signal if one killed it";

/// How long the end of the job may go unnoticed where nothing wakes this process.
const LOOK_UP: Duration = Duration::from_millis(100);

/// What NCCL takes as the profiler plugin.
const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";

pub fn run(flags: &Profile) -> Result<ExitCode, Refusal> {
    if flags.output.is_json() && flags.output.file().is_none() {
        let told = "a job's output goes to standard output: write the answer elsewhere, with --json=FILE or -o FILE";
        return Err(told.to_owned().into());
    }
    let cluster = flags.cluster.as_ref().map(|path| described::cluster(std::slice::from_ref(path))).transpose()?;
    let trace = flags.trace.as_deref().map(trace).transpose()?;
    let (program, arguments) = flags.command.split_first().ok_or_else(|| "give the command of the job".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments);
    // Threads must leave signals to this one.
    let attendant = Attendant::begin()?;
    let agent = record(&mut command, Report::new(trace))?;
    let begun = Instant::now();
    let mut job = attendant.wrap(command, |_, _| {})?;
    let status = loop {
        if let Some(status) = job.wait(LOOK_UP)? {
            break status;
        }
    };
    let wall_us = begun.elapsed().as_secs_f64() * 1e6;
    job.finish();
    let profile = agent.finish().map_err(|error| format!("events: {error}"))?;
    let words: Vec<_> = flags.command.iter().map(|word| word.to_string_lossy()).collect();
    let host = host::name(&|name| std::env::var(name).ok());
    let mut profile = Profiled { job: words.join(" "), host, wall_us, exit_status: status, ..profile };
    if let Some(cluster) = &cluster {
        expect(&mut profile, cluster);
    }
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_profile(&profile, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::profile(&profile)),
        _ => out.write_all(text::profile(&profile, &style).as_bytes()),
    })?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

/// Has a job write events, which a report takes.
pub fn record(command: &mut Command, report: Report) -> Result<Agent, String> {
    let agent = Agent::begin(report).map_err(|error| format!("a folder for events: {error}"))?;
    command.env(busbw_profile::VARIABLE, agent.folder());
    match (std::env::var_os(PLUGIN), library()) {
        (Some(own), _) => output::say(format!("{PLUGIN}={} is set: NCCL's events are that profiler's", own.display())),
        (None, Some(library)) => {
            command.env(PLUGIN, library);
        }
        (None, None) => {}
    }
    Ok(agent)
}

fn trace(path: &Path) -> Result<Trace, String> {
    let file = File::create(path).and_then(|file| Trace::new(Box::new(BufWriter::new(file))));
    file.map_err(|error| format!("{}: {error}; choose a place that can be written", path.display()))
}

/// NCCL's plugin, where it lies beside this command, or in the folder of libraries beside that.
fn library() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let folder = here.parent()?;
    let names = ["libnccl-net-busbw.so", "../lib/libnccl-net-busbw.so", "libnccl_net_busbw.so"];
    names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Notes the expected time of NCCL's operations over all GPUs of the cluster.
fn expect(profile: &mut Profiled, cluster: &Cluster) {
    let mut expected = 0;
    for operation in &mut profile.operations {
        let described = operation.source == ProfileSource::Nccl && operation.ranks as usize == cluster.ranks();
        if described && operation.bytes > 0 && operation.collective != Collective::SendRecv {
            let rows = busbw_predict::predict(cluster, operation.collective, &[Bytes(operation.bytes)]).rows;
            operation.expected_us = rows.first().map(|row| row.time.0);
            expected += usize::from(operation.expected_us.is_some());
        }
    }
    if expected == 0 {
        let told = format!(
            "no operation is one of NCCL's over the {} ranks of the cluster that is described",
            cluster.ranks()
        );
        profile.notes.push(told);
    }
}
