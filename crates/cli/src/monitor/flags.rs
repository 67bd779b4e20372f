//! Flags and help of `busbw monitor`.

use crate::values::time;
use busbw_monitor::{FASTEST, SLOWEST, SPEEDS};
use clap::{Args, ValueHint};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Live view of every port: traffic, who causes it, and error counters
///
/// Reads the counters of RDMA ports and network interfaces once per interval. Shows rates, pauses, congestion signals,
/// losses and errors, the queue pairs with their processes, and the load of the host. An error counter that increases
/// raises an alert with the code of a finding. Needs no root and changes nothing.
#[derive(Args)]
#[command(after_help = MONITOR_EXAMPLES)]
pub struct Monitor {
    /// Print one interval as text, which `busbw explain` reads, and exit
    #[arg(long)]
    pub once: bool,

    /// Print one line of JSON per interval (schema busbw.monitor/1)
    #[arg(long, conflicts_with = "once")]
    pub json: bool,

    /// Print only the summary at the end
    #[arg(short, long, conflicts_with_all = ["once", "json"])]
    pub quiet: bool,

    /// Time between samples: seconds, or with a unit (500ms, 1m)
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// Stop after N intervals
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "once")]
    pub count: Option<u64>,

    /// Only these RDMA devices and network interfaces; a * at the end matches any rest [default: all except lo, the
    /// host's ends of containers' interfaces, and virtual interfaces that are down]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub devices: Vec<String>,

    /// Record every sample to a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,

    /// Show a recording instead of this machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["root", "devices", "interval"])]
    pub replay: Option<PathBuf>,

    /// Speed of the replay, as a multiple of the recorded speed [default: 1 on the screen, no waiting otherwise]
    #[arg(long, value_name = "FACTOR", requires = "replay", value_parser = speed)]
    pub speed: Option<f64>,

    /// Write a trace for ui.perfetto.dev: rates per port, alerts, and jobs that move data
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perfetto: Option<PathBuf>,

    /// Overwrite an existing recording or trace
    #[arg(long)]
    pub force: bool,

    /// Serve Prometheus metrics (GET /metrics, busbw_*) on this port of 127.0.0.1, or on ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub prometheus: Option<SocketAddr>,

    /// A name that Prometheus may ask this host for; addresses, localhost and the host's own name are always answered
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "prometheus")]
    pub prometheus_host: Vec<String>,

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

    /// Read a captured copy of /sys and /proc instead of this machine's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Duration, String> {
    time(text).filter(|time| (FASTEST..=SLOWEST).contains(time)).ok_or_else(|| "give 50ms to 60m".into())
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| SPEEDS.contains(speed));
    speed.ok_or_else(|| format!("give a number from {} to {}", SPEEDS.start(), SPEEDS.end()))
}

/// A port alone is on the loopback interface.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse()).map_err(|_| "give a port, or ADDRESS:PORT with a numeric address".into())
}

const MONITOR_EXAMPLES: &str = "Examples:
  busbw monitor                              the screen; h shows its keys
  busbw monitor --once                       one second of this machine, as text
  busbw monitor --json -n 60 | jq '.alerts[]'
  busbw monitor --devices 'mlx5_*' --interval 500ms
  busbw monitor --quiet --record run.rec     while a job runs; Ctrl-C prints a summary
  busbw monitor --replay run.rec --speed 10
  busbw monitor --replay run.rec --perfetto run.json --quiet
  busbw monitor --quiet --prometheus 9820    curl http://127.0.0.1:9820/metrics

Exit status:
  0  ended as asked, by the count, the end of the recording, or Ctrl-C
  2  a file cannot be read or written, or bad usage";
