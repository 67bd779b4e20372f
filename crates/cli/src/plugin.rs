//! `busbw plugin check`: tests NCCL's plugins by NCCL's rules, and measures networks side by side.

use crate::flags::{DryRun, HostList, Look, Output, Quiet, TableFormat};
use crate::output;
use crate::values::{duration, message_size};
use busbw_launch::Invocation;
use busbw_model::{Bytes, PluginRun};
use busbw_plugin_check::{Call, Candidate, Plan, Progress, job, rule_names, subprocess};
use busbw_report::{json, text};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueHint};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Test and benchmark NCCL's plugins without a GPU
#[derive(Args)]
#[command(after_help = GROUP_EXAMPLES, arg_required_else_help = true)]
pub struct Plugin {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    Check(Box<Check>),
}

const GROUP_EXAMPLES: &str = "Examples:
  busbw plugin check libnccl-net-busbw.so
  busbw plugin check ./a.so ./b.so --measure-only";

/// Test network, tuner and profiler plugins by NCCL's rules, and measure networks side by side
///
/// Loads any libnccl-net*.so, libnccl-tuner*.so or libnccl-profiler*.so into processes of its own, on this host or on two
/// hosts, and calls whatever of the three it has as NCCL does, with faults. Then measures all networks in turn: bandwidth by
/// size, latency, message rate, and CPU time per 10^9 bytes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Path of a plugin; several plugins are compared. Environment variables follow an @:
    /// x.so@NCCL_SOCKET_NTHREADS=4,NCCL_NSOCKS_PERTHREAD=4
    #[arg(long = "plugin", value_name = "PATH", value_parser = candidate, value_hint = ValueHint::FilePath)]
    plugins: Vec<Candidate>,

    /// Plugins (what has .so in its name), and the two hosts [default: two processes on this host]
    #[arg(value_name = "PLUGIN|HOST", required_unless_present_any = ["plugins", "is_subprocess"],
          value_hint = ValueHint::FilePath)]
    arguments: Vec<String>,

    #[command(flatten)]
    hosts: HostList,

    #[command(flatten)]
    dry_run: DryRun,

    /// Version of the network's interface; tuner and profiler are left out then [default: the newest, as in NCCL]
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(6..=12))]
    interface: Option<u8>,

    /// Device number within the plugin
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = clap::value_parser!(i32).range(0..=255))]
    device: i32,

    /// Test the rules only
    #[arg(long, conflicts_with = "measure_only")]
    rules_only: bool,

    /// Test these rules only
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "measure_only",
          value_parser = PossibleValuesParser::new(rule_names()))]
    rule: Vec<String>,

    /// Measure only
    #[arg(long)]
    measure_only: bool,

    /// Message sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = message_size,
          default_value = "4K,64K,512K,4M,16M")]
    size: Vec<Bytes>,

    /// Number of measurements per size and plugin
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,

    /// Messages in flight while bandwidth is measured; NCCL uses 8
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u8).range(1..=32))]
    in_flight: u8,

    /// Duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "0.2", value_parser = duration)]
    seconds: Duration,

    /// Time after which a call or a wait counts as failed
    #[arg(short = 'T', long, value_name = "TIME", default_value = "10", value_parser = duration)]
    timeout: Duration,

    #[command(flatten)]
    output: Output<TableFormat>,

    #[command(flatten)]
    look: Look,

    #[command(flatten)]
    quiet: Quiet,

    /// Run as the process that loads a plugin
    #[arg(long = "subprocess", hide = true)]
    is_subprocess: bool,
}

const EXAMPLES: &str = "Examples:
  busbw plugin check libnccl-net-busbw.so             rules and figures, between two processes
  busbw plugin check libnccl-net-busbw.so a b         between two hosts
  busbw plugin check a.so b.so --measure-only         two plugins side by side
  busbw plugin check x.so@NCCL_NSOCKS_PERTHREAD=4 x.so --size 1M,64M
  busbw plugin check x.so --interface 8 --rules-only  as an older NCCL would load it
  busbw plugin check libnccl-tuner.so@NCCL_TUNER_CONFIG_FILE=/etc/nccl_tuner.conf
  busbw plugin check x.so --rules-only --rule order,tags -T 60
  busbw plugin check x.so --json | jq '.plugins[0].rules[] | select(.outcome == \"broken\")'

Exit status:
  0  every plugin works and keeps every tested rule
  1  a plugin cannot be loaded, breaks a rule, or failed during the measurement
  2  the ranks could not be started, or bad usage
  77 not applicable: no mpirun for --hosts";

fn candidate(text: &str) -> Result<Candidate, String> {
    let (path, settings) = text.split_once('@').unwrap_or((text, ""));
    let setting = |setting: &str| match setting.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{setting:?} is no NAME=VALUE; write {path}@NAME=VALUE,NAME=VALUE")),
    };
    let settings = settings.split(',').filter(|part| !part.is_empty()).map(setting).collect::<Result<_, _>>()?;
    // A bare name is a file here, not one to be looked for on the library path.
    let path = PathBuf::from(path);
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok(Candidate { path, settings })
}

impl Check {
    fn call(&self) -> Result<Call, String> {
        let mut sizes = if self.rules_only { Vec::new() } else { self.size.clone() };
        sizes.sort_unstable();
        sizes.dedup();
        let (named, hosts): (Vec<_>, Vec<_>) = self.arguments.iter().cloned().partition(|word| word.contains(".so"));
        let mut candidates = self.plugins.clone();
        for name in &named {
            candidates.push(candidate(name)?);
        }
        if candidates.is_empty() {
            return Err("name a plugin: busbw plugin check libnccl-net-busbw.so a b".into());
        }
        if !matches!(hosts.len(), 0 | 2) {
            return Err(format!(
                "name two hosts or none; {} is no plugin, for it has no .so in its name",
                hosts.join(", ")
            ));
        }
        let plan = Plan {
            candidates,
            version: self.interface,
            device: self.device,
            rules: self.rules(),
            sizes,
            repetitions: self.repeat.into(),
            duration: self.seconds,
            in_flight: self.in_flight.into(),
            patience: self.timeout,
        };
        let invocation = Invocation::of_two_ends(self.hosts.or(&hosts), Some(2), self.dry_run.dry_run);
        let invocation = invocation.map_err(|error| error.to_string())?;
        Ok(Call { plan, invocation, subprocess_arguments: ["plugin", "check", "--subprocess"].map(Into::into).into() })
    }

    fn rules(&self) -> Vec<String> {
        match (self.measure_only, self.rule.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => rule_names().map(str::to_owned).collect(),
            (false, false) => self.rule.clone(),
        }
    }
}

pub fn check(flags: &Check) -> Result<ExitCode, output::Refusal> {
    if flags.is_subprocess {
        return Ok(subprocess::run());
    }
    let call = flags.call()?;
    let bar = flags.quiet.bar(1, "{bar:30} {pos} of {len}, {elapsed}, {wide_msg}");
    let show = |progress: Progress<'_>| bar.show(progress.done, progress.all, progress.doing.to_owned());
    let ended = job::run(&call, &|name| std::env::var(name).ok(), &show);
    drop(bar);
    output::finish(ended, |run| answer(flags, &run))
}

fn answer(flags: &Check, run: &PluginRun) -> Result<ExitCode, String> {
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_net_plugins(run, out);
    output::answer(&flags.output, json, |_, out| out.write_all(text::net_plugins(run, &style).as_bytes()))?;
    let fine = run.plugins.iter().all(|plugin| plugin.keeps_the_rules() && plugin.figures.is_ok());
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
