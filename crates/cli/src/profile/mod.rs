//! `busbw profile`: what a job's collectives cost, of a job that it starts, that runs already, or that several hosts have traces of.

mod attached;
mod started;

pub use started::record;

use crate::flags::{Attach, Format, Look, Output};
use crate::{described, output, values};
use busbw_model::{Bytes, Collective, Profile as Profiled, ProfileSource};
use busbw_predict::Cluster;
use busbw_profile::{Report, Trace};
use busbw_report::{html, json, text};
use clap::{Args, ValueHint};
use output::Refusal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measure what a job's collectives cost: by size, by rank, who is waited for
///
/// Starts the job with busbw as NCCL's profiler (NCCL 2.23 and newer) and reads its events while it runs, or looks on a job that runs
/// on this host. Prints, in the end, the time in collectives per rank and per size, the operations that took longest, and the
/// ranks that others waited for. busbw bench on CPU cores and busbw.torch write the same events. Ranks on this host are seen;
/// --merge puts the traces of several hosts together. A job can be looked on while it runs if BUSBW_PROFILE=attach is in its
/// environment.
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Profile {
    /// The command that starts the job: torchrun, mpirun, python. Its output, its signals and its exit status are passed on
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["attach", "merge"], value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,

    #[command(flatten)]
    attach: Attach,

    /// Duration of each measurement [default: until Ctrl-C or the end of the job]
    #[arg(long, value_name = "TIME", requires = "attach", value_parser = values::span)]
    seconds: Option<Duration>,

    /// Put the traces together that busbw profile --trace wrote on several hosts
    #[arg(long, value_name = "TRACE", num_args = 1.., conflicts_with_all = ["command", "attach"], value_hint = ValueHint::FilePath)]
    merge: Vec<PathBuf>,

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

const USAGE: &str = "busbw profile [OPTIONS] -- <COMMAND>...
       busbw profile [OPTIONS] --attach [JOB]
       busbw profile [OPTIONS] --merge <TRACE>...";

const EXAMPLES: &str = "Examples:
  busbw profile -- torchrun --nproc-per-node 8 train.py
  busbw profile --trace trace.json -- torchrun train.py   open the trace at ui.perfetto.dev
  busbw profile --cluster cluster.toml -- mpirun -np 8 all_reduce_perf -b 1M -e 1G -f 2
  busbw profile -o profile.html -- torchrun train.py      bars of where each rank's time went
  busbw profile -o profile.json -- busbw bench all_reduce --np 2 -b 1K -e 4M
  busbw profile --json=profile.json -- python train.py; jq '.operations[0]' profile.json

A job that runs, started with BUSBW_PROFILE=attach in its environment:
  busbw profile --attach --seconds 30                     all ranks on this host
  busbw profile --attach slurm:8812 --seconds 30          a Slurm job's ranks on this host
  busbw profile --attach 4711                             the job that process 4711 started

Several hosts, in a folder that they share:
  srun --overlap --jobid 8812 --ntasks-per-node 1 sh -c \\
    'busbw profile --attach slurm:8812 --seconds 30 --trace traces/$(hostname).json'
  busbw profile --merge traces/*.json

Exit status:
  0  --attach, --merge: the answer is there
  2  the job could not be started, or keeps no events; a file cannot be read or written; bad usage
  A job that busbw started: its exit status, 128 + signal if one killed it";

/// How long the end of the job may go unnoticed where nothing wakes this process.
const LOOK_UP: Duration = Duration::from_millis(100);

pub fn run(flags: &Profile) -> Result<ExitCode, Refusal> {
    let cluster = flags.cluster.as_ref().map(|path| described::cluster(std::slice::from_ref(path))).transpose()?;
    let mut profile = match (flags.command.is_empty(), flags.merge.is_empty()) {
        (false, _) => started::run(flags)?,
        (true, true) => attached::run(flags)?,
        (true, false) => busbw_profile::merge(&flags.merge, flags.report()?).map_err(|error| error.to_string())?,
    };
    if let Some(cluster) = &cluster {
        expect(&mut profile, cluster);
    }
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write(&profile, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::profile(&profile)),
        _ => out.write_all(text::profile(&profile, &style).as_bytes()),
    })?;
    Ok(ExitCode::from(u8::try_from(profile.exit_status.unwrap_or(0)).unwrap_or(1)))
}

impl Profile {
    /// A report, which writes the trace that is asked for.
    fn report(&self) -> Result<Report, String> {
        if let Some(own) = self.trace.as_ref().filter(|own| self.merge.contains(own)) {
            return Err(format!("--trace {}: that is one of the traces to read; write another file", own.display()));
        }
        Ok(Report::new(self.trace.as_deref().map(trace).transpose()?))
    }
}

fn trace(path: &Path) -> Result<Trace, String> {
    let file = File::create(path).and_then(|file| Trace::new(Box::new(BufWriter::new(file))));
    file.map_err(|error| format!("{}: {error}; choose a place that can be written", path.display()))
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
