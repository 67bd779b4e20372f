//! Flags and help of `busbw monitor`.

use crate::flags::{CapturedRoot, HostList, Output, Quiet, Sampling, TableFormat};
use busbw_monitor::SPEEDS;
use clap::{ArgGroup, Args, ValueHint};
use std::path::PathBuf;

/// Live view of every port: traffic, who causes it, and error counters
///
/// Reads the counters of RDMA ports and network interfaces once per interval. Shows rates, pauses, congestion signals,
/// losses and errors, the queue pairs with their processes, and the load of the host. An error counter that increases
/// raises an alert with the code of a finding. Without a screen, prints text, which `busbw explain` reads, or one line of
/// JSON per interval (schema busbw.monitor/1); a summary follows. Needs no root and changes nothing.
#[derive(Args)]
#[command(after_help = MONITOR_EXAMPLES, group = ArgGroup::new("whose").args(["hosts", "prometheus"]))]
pub struct Monitor {
    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub output: Output<TableFormat>,

    #[command(flatten)]
    pub quiet: Quiet,

    /// Stop after N intervals
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "once")]
    pub count: Option<u64>,

    /// Only these RDMA devices and network interfaces; a * at the end matches any rest [default: all except lo, the
    /// host's ends of containers' interfaces, and virtual interfaces that are down]
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub devices: Vec<String>,

    /// Hosts to watch together on one screen. A host that goes away is named, and costs the others nothing
    #[arg(value_name = "HOST", conflicts_with_all = ["hosts", "record", "replay", "perfetto", "prometheus", "root"])]
    pub others: Vec<String>,

    #[command(flatten)]
    pub hosts: HostList,

    /// Record every sample to a file; - is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "hosts")]
    pub record: Option<PathBuf>,

    /// Show a recording instead of this machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["hosts", "root", "devices", "interval"])]
    pub replay: Option<PathBuf>,

    /// Speed of the replay, as a multiple of the recorded speed [default: 1 on the screen, no waiting otherwise]
    #[arg(long, value_name = "FACTOR", requires = "replay", value_parser = speed)]
    pub speed: Option<f64>,

    /// Write a trace for ui.perfetto.dev: rates per port, alerts, and jobs that move data
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "hosts")]
    pub perfetto: Option<PathBuf>,

    /// Overwrite an existing recording or trace
    #[arg(long)]
    pub force: bool,

    /// Serve what node_exporter has under its names too (node_infiniband_*, node_network_*, node_netstat_*, node_memory_*),
    /// for hosts where it does not run
    #[arg(long, requires = "prometheus")]
    pub node_exporter_names: bool,

    /// Print the counters that raise alerts, with their thresholds, and exit
    #[arg(long)]
    pub list_alerts: bool,

    /// Thresholds of the alerts (TOML; see docs/monitor.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub thresholds: Option<PathBuf>,

    #[command(flatten)]
    pub root: CapturedRoot,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| SPEEDS.contains(speed));
    speed.ok_or_else(|| format!("give a number from {} to {}", SPEEDS.start(), SPEEDS.end()))
}

const MONITOR_EXAMPLES: &str = "Examples:
  busbw monitor                              the screen; h shows its keys
  busbw monitor --once                       one second of this machine, as text
  busbw monitor --json -n 60 | jq '.alerts[]'
  busbw monitor --devices 'mlx5_*' --interval 500ms
  busbw monitor --json=run.jsonl             the screen, and JSON beside it
  busbw monitor --hosts a,b,c                several hosts on one screen
  busbw monitor --quiet --record run.rec     while a job runs; Ctrl-C prints a summary
  busbw monitor --replay run.rec --speed 10
  busbw monitor --replay run.rec --perfetto run.json --quiet
  busbw monitor --quiet --prometheus 9820    curl http://127.0.0.1:9820/metrics

Exit status:
  0  ended as asked, by the count, the end of the recording, or Ctrl-C
  2  a file cannot be read or written, no host answers, or bad usage";
