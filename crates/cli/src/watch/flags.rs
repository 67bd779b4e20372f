//! Flags and help of `busbw watch`.

use crate::flags::{Attach, Output, Quiet, Sampling, TableFormat};
use crate::values;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Watch the ranks of a training job, and name who holds it up when it hangs
///
/// Starts a job and looks on, or looks on a job that runs on this host. It needs no change to the job. Once per interval it
/// reads the ranks' processes and connections; when nothing has moved between ranks for longer than the limit, or a rank ends
/// or is stopped, it takes stacks, keeps all facts in a folder and prints one line that names the rank, the host and what it
/// does. `busbw explain` answers about the folder; the page of that answer is report.html in it. The job goes on.
#[derive(Args)]
#[command(after_help = WATCH_EXAMPLES, override_usage = "busbw watch [OPTIONS] -- <COMMAND>...\n       busbw watch [OPTIONS] --attach [JOB] | --ras <ADDRESS[:PORT]>")]
pub struct Watch {
    /// The command that starts the job: torchrun, mpirun, python. Its output, its signals and its exit status are passed on
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["attach", "ras"], conflicts_with = "once", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,

    #[command(flatten)]
    pub attach: Attach,

    /// Ask NCCL's RAS (NCCL 2.24 and later) of a job at this address; the port is 28028, unless the job sets NCCL_RAS_ADDR
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub ras: Option<String>,

    /// How long nothing may move between ranks before the job is said to hang; never less than three times the longest
    /// standstill that the job overcame by itself
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::span)]
    pub stall: Duration,

    /// Folder for the facts, the stacks, the job's output and the page [default: busbw-watch/HOST]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,

    /// Also record the job's collectives: it runs with busbw as NCCL's profiler (NCCL 2.23 and newer). Names ranks that are late for
    /// each step while the job goes on, and in a hang the collective that each rank is in. busbw.torch and busbw bench record too.
    /// With --attach: of a job that was started with BUSBW_PROFILE=attach
    #[arg(long, conflicts_with = "ras")]
    pub profile: bool,

    /// Ask the job to end (SIGTERM) when somebody was named
    #[arg(long, requires = "command")]
    pub kill: bool,

    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub output: Output<TableFormat>,

    #[command(flatten)]
    pub quiet: Quiet,
}

const WATCH_EXAMPLES: &str = "Examples:
  busbw watch -- torchrun --nproc-per-node 8 train.py    start a job and look on
  busbw watch --stall 2min --kill -- torchrun train.py   end it when it hangs
  busbw watch --profile -- torchrun train.py              also name ranks that are late for each step
  busbw watch --attach                                   all ranks on this host, on a screen
  busbw watch --attach 4711 --once                       the job that process 4711 started
  busbw watch --attach --profile                         the same, if BUSBW_PROFILE=attach is set in it
  busbw watch --attach slurm:8812 --quiet                a Slurm job, beside it: srun --overlap --jobid 8812
  busbw watch --attach --json | jq '.ranks[].state'
  busbw watch --ras 10.0.0.1                             what NCCL's RAS tells of a job
  busbw explain busbw-watch/                             the answer again, of all hosts together

Exit status:
  0  the job goes on, or ended well
  1  somebody was named (--attach, --ras)
  2  there is no such job, a file cannot be written, or bad usage
  A job that busbw started: its exit status, 128 + signal if one killed it";
