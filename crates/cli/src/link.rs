//! `busbw link`: bandwidth and latency between hosts, every pair, and which of them is slow.

use crate::flags::{DryRun, Format, HostList, Output, PrometheusFile, Quiet, Screen};
use crate::output;
use crate::progress::Bar;
use crate::values::{duration, gbit_s, message_size};
use busbw_launch::Invocation;
use busbw_link::job::{self, Call};
use busbw_link::{Choice, Plan, Progress, RdmaChoice, judge};
use busbw_model::{Bytes, LinkRun, Verdict};
use busbw_report::{html, json, prometheus, text};
use clap::Args;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Measure bandwidth and latency between hosts, and name the slow host or link
///
/// Measures every pair of hosts, in rounds of disjoint pairs, over TCP or (with perftest) over RDMA. Compares numbers of
/// flows to find a limit per flow. It detects mpirun and srun (start one rank per NIC to measure); hosts given by name
/// are started with mpirun, or with srun inside an allocation.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Link {
    /// Hosts to measure; a:2 starts two ranks on host a
    #[arg(value_name = "HOST", conflicts_with = "hosts")]
    others: Vec<String>,

    #[command(flatten)]
    hosts: HostList,

    /// Start this many processes on this host
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "others"])]
    np: Option<usize>,

    #[command(flatten)]
    dry_run: DryRun,

    /// Measure TCP, over the interface that NCCL_SOCKET_IFNAME selects [default: RDMA if every host has an RDMA NIC]
    #[arg(long, conflicts_with = "rdma", help_heading = "What to measure")]
    tcp: bool,

    /// Measure RDMA, with perftest
    #[arg(long, help_heading = "What to measure")]
    rdma: bool,

    /// Measure RDMA read (ib_read_bw) instead of write
    #[arg(long, conflicts_with = "tcp", help_heading = "What to measure")]
    read: bool,

    /// Also measure both directions at the same time
    #[arg(long, help_heading = "What to measure")]
    both_ways: bool,

    /// Message sizes [default: several for two hosts, 4M for more; a matrix shows the best]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size, help_heading = "What to measure")]
    size: Vec<Bytes>,

    /// Numbers of flows to compare: TCP connections, or queue pairs [default: 1,2,4,8,16, for RDMA 1,4]
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = flows, help_heading = "What to measure")]
    flows: Vec<u32>,

    /// Measure each host with N others only, which still tells a slow host from its partners from 3 on [default: all pairs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "What to measure")]
    partners: Option<u16>,

    /// RDMA devices, with the port if it is not 1 (mlx5_0:2); the ranks of a host use them in turn
    #[arg(
        long = "devices",
        alias = "device",
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "What to measure"
    )]
    device: Vec<String>,

    /// What each direction should reach: 200G, 200Gbit/s or 25GB/s. Less than 85% of it is a failure
    #[arg(long, value_name = "RATE", value_parser = gbit_s, help_heading = "What to measure")]
    expect: Option<f64>,

    /// GID index of RoCE [default: the first RoCE v2 GID of an IPv4 address]
    #[arg(long, value_name = "INDEX", help_heading = "What to measure")]
    gid_index: Option<u32>,

    /// Duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "0.5", value_parser = duration)]
    seconds: Duration,

    /// Time after which a host that does not respond is reported as lost
    #[arg(short = 'T', long, value_name = "TIME", default_value = "10", value_parser = duration)]
    timeout: Duration,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    screen: Screen,

    #[command(flatten)]
    quiet: Quiet,

    #[command(flatten)]
    prometheus: PrometheusFile,
}

/// As many sockets as NCCL allows in a connection (MAX_SOCKETS in its `src/transport/net_socket.cc`).
const MOST_FLOWS: u32 = 64;

fn flows(text: &str) -> Result<u32, String> {
    let flows = text.parse().ok().filter(|flows| (1..=MOST_FLOWS).contains(flows));
    flows.ok_or_else(|| format!("give numbers from 1 to {MOST_FLOWS}"))
}

const EXAMPLES: &str = "Examples:
  busbw link a b                              two hosts: bandwidth by flows and sizes, latency
  busbw link --hosts a,b,c,d                  all pairs, as a matrix; the slow host is named
  busbw link --expect 200G a b                exit status 1 if a direction carries much less
  busbw link --rdma --devices mlx5_0 a b       RDMA by perftest (ib_write_bw, ib_write_lat)
  mpirun -np 32 -N 1 busbw link -o links.html
  srun -N 16 --ntasks-per-node=4 busbw link --rdma    one rank per NIC
  busbw link --np 2                           a test run on this host
  busbw link --json a b | jq '.links[0].gbit_s'

Exit status:
  0  every link was measured, and none is much slower than the others, its NIC's rate or --expect
  1  a link or host is slow, or could not be measured
  2  nothing could be measured, or bad usage
  77 not applicable: no RDMA device or no perftest for --rdma, no mpirun for --hosts";

impl Link {
    fn call(&self) -> Result<Call, String> {
        let transport = match (self.tcp, self.rdma || self.read) {
            (true, _) => Choice::Tcp,
            (false, true) => Choice::Rdma,
            (false, false) => Choice::Auto,
        };
        let plan = Plan {
            transport,
            sizes: ascending(&self.size),
            flows: ascending(&self.flows),
            rounds: self.partners.map(usize::from),
            read: self.read,
            both_ways: self.both_ways,
            expected_gbit_s: self.expect,
            duration: self.seconds,
            timeout: self.timeout,
            rdma: RdmaChoice { devices: self.device.clone(), gid_index: self.gid_index },
        };
        let hosts = self.hosts.or(&self.others);
        let invocation = Invocation::of_two_ends(hosts, self.np, self.dry_run.dry_run);
        let invocation = invocation.map_err(|error| error.to_string())?;
        Ok(Call { plan, invocation })
    }
}

fn ascending<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

pub fn run(flags: &Link) -> Result<ExitCode, output::Refusal> {
    let call = flags.call()?;
    let bar = flags.quiet.bar(1, "round {msg} {bar:30} {pos} of {len} pairs, {elapsed}");
    let ended = job::run(&call, &|name| std::env::var(name).ok(), &|progress| {
        if !flags.quiet.quiet {
            show(&bar, progress);
        }
    });
    drop(bar);
    output::finish(ended, |run| answer(flags, &run))
}

fn answer(flags: &Link, run: &LinkRun) -> Result<ExitCode, String> {
    let diagnosis = judge(run);
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_link(run, &diagnosis, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::link(run, &diagnosis)),
        _ => out.write_all(text::link(run, &diagnosis, &style).as_bytes()),
    })?;
    output::metrics(&flags.prometheus, "link", |metrics| prometheus::link(run, &diagnosis, metrics))?;
    let measured = run.links.iter().any(|link| link.outcome.is_ok());
    let fine = matches!(diagnosis.verdict, Verdict::Healthy | Verdict::NoErrors);
    Ok(match (measured, fine) {
        (false, _) => ExitCode::from(2),
        (true, false) => ExitCode::from(1),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// A bar on a terminal, else a line per pair where there are several.
fn show(bar: &Bar, progress: Progress) {
    let Progress { pairs, done, round, rounds } = progress;
    bar.show(done, pairs, format!("{round} of {rounds}"));
    if bar.is_hidden() && pairs > 1 {
        output::say(format_args!("{done} of {pairs} pairs, round {round} of {rounds}"));
    }
}
