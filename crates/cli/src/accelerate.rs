//! `busbw accelerate`: which way of averaging gradients is fastest on a network.

use crate::flags::{Look, Output, TableFormat};
use crate::output;
use busbw_model::{Bytes, GBps};
use busbw_predict::gradients::{Acceleration, Question, SELECT, Shape, Speeds, Step, TopK, Transport};
use busbw_report::{json, text};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::process::ExitCode;

/// Estimate which gradient all-reduce is fastest on your network
///
/// Compares four all-reduces (plain, two-level, top-k, two-level with top-k) by the bytes that each sends between hosts
/// and within them: images per second and scaling of the whole step, and the network speed below which each is faster
/// than plain. To train with one: busbw.torch.accelerate(ddp) or `import busbw.horovod as hvd` (docs/ddp.md,
/// docs/horovod.md).
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Accelerate {
    /// Number of nodes
    #[arg(long, alias = "hosts", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,

    /// Ranks (GPUs) of each host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: u32,

    /// Size of all gradients in float32: 528M
    #[arg(long, value_name = "SIZE", value_parser = gradients)]
    gradients: Bytes,

    /// Rate of a host's network in Gbit/s
    #[arg(long, value_name = "GBIT", value_parser = above_zero, required_unless_present = "measured_gbit")]
    network_gbit: Option<f64>,

    /// What arrives between two hosts in Gbit/s, as measured (`busbw link`), instead of an assumed share of the rate
    #[arg(long, value_name = "GBIT", value_parser = above_zero, conflicts_with_all = ["network_gbit", "transport"])]
    measured_gbit: Option<f64>,

    /// What carries the gradients between hosts
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',', default_value = "tcp,plugin")]
    transport: Vec<Carrier>,

    /// Forward and backward pass of a rank without communication, in ms: one GPU's batch size over its samples/s
    #[arg(long, value_name = "MS", value_parser = above_zero)]
    compute_ms: Option<f64>,

    /// Samples of a rank in a step, for samples (images) per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "compute_ms")]
    batch_size: Option<u32>,

    /// Top-k's share of the entries
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = share)]
    ratio: f64,

    /// Top-k's values travel as float16
    #[arg(long)]
    fp16: bool,

    /// Speed of a rank within its host in GB/s
    #[arg(long, value_name = "GBS", default_value = "100", value_parser = above_zero)]
    host_gbs: f64,

    /// Speed at which a rank selects entries, GB/s of gradients [default: 1.5]
    #[arg(long, value_name = "GBS", value_parser = above_zero)]
    select_gbs: Option<f64>,

    /// Speed at which a rank adds up messages, GB/s
    #[arg(long, value_name = "GBS", default_value = "100", value_parser = above_zero)]
    add_gbs: f64,

    /// Latency of a message between hosts in µs
    #[arg(long, value_name = "US", default_value = "50", value_parser = above_zero)]
    latency_us: f64,

    #[command(flatten)]
    output: Output<TableFormat>,

    #[command(flatten)]
    look: Look,
}

#[derive(Clone, Copy, ValueEnum)]
enum Carrier {
    /// Kernel TCP
    Tcp,
    /// A net plugin
    Plugin,
    /// InfiniBand or RoCE
    Rdma,
}

const EXAMPLES: &str = "Examples:
  busbw accelerate --nodes 2 --ranks-per-host 8 --gradients 528M --network-gbit 25 --compute-ms 510 --batch-size 128
  busbw accelerate --nodes 2 --ranks-per-host 8 --gradients 528M --measured-gbit 11 --compute-ms 510
  busbw accelerate --nodes 16 --ranks-per-host 8 --gradients 26G --network-gbit 3200 --transport rdma --host-gbs 450
  python -m busbw.synthetic --model vgg16 --batch-size 128 --sweep    measure it instead

Exit status:
  0  compared
  2  bad usage";

pub fn run(flags: &Accelerate) -> Result<ExitCode, String> {
    let answer = Acceleration::of(&flags.question());
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write(&answer, out);
    output::answer(&flags.output, json, |_, out| out.write_all(text::accelerate(&answer, &style).as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

impl Accelerate {
    fn question(&self) -> Question {
        let named = || self.transport.iter().map(|carrier| Transport::from(*carrier)).collect();
        Question {
            shape: Shape { hosts: self.nodes, ranks_per_host: self.ranks_per_host },
            gradients: self.gradients,
            line: GBps(self.measured_gbit.or(self.network_gbit).unwrap_or_default() / 8.0),
            transports: self.measured_gbit.map_or_else(named, |_| vec![Transport::Measured]),
            speeds: Speeds {
                host: GBps(self.host_gbs),
                select: self.select_gbs.map_or(SELECT, GBps),
                add: GBps(self.add_gbs),
                latency_us: self.latency_us,
            },
            top_k: TopK { ratio: self.ratio, value_bytes: if self.fp16 { 2 } else { 4 } },
            step: self.compute_ms.map(|compute_ms| Step { compute_ms, batch_size: self.batch_size }),
        }
    }
}

impl From<Carrier> for Transport {
    fn from(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Tcp => Transport::Tcp,
            Carrier::Plugin => Transport::Plugin,
            Carrier::Rdma => Transport::Rdma,
        }
    }
}

fn gradients(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: busbw_model::ParseBytesError| error.to_string())?;
    if size.0 > 0 { Ok(size) } else { Err("give the bytes of all gradients, such as 528M".into()) }
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "give a number above 0".into())
}

fn share(text: &str) -> Result<f64, String> {
    above_zero(text).ok().filter(|share| *share <= 1.0).ok_or_else(|| "give a share above 0 and up to 1".into())
}
