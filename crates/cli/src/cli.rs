//! Flags and help of subcommands.

use crate::flags::{HostList, JunitFile, Look, NamedCollective, Output, PrometheusFile, Quiet, RulesFile, Screen};
use crate::sizes::Sizes;
use crate::tuning_file::TuningFile;
use crate::values;
use busbw_bench::Flags;
use busbw_diagnose::{GpusOfHost, NicsOfHost};
use busbw_model::Bytes;
use busbw_predict::WhatIf;
use clap::{ArgAction, Args, ValueHint};
use std::num::{NonZero, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// Diagnose a run: what is wrong, the evidence, and the fix
///
/// Reads any mix of nccl-tests output (text or -J JSON), NCCL and RCCL logs (one file, or one per rank; whole or
/// excerpts; with the prefixes of mpirun, srun, torchrun or Kubernetes), `nvidia-smi topo -m`, NCCL topology XML,
/// perftest output, and the tables of RDMA checks and monitors. The format of each file is detected from its content.
#[derive(Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct Explain {
    /// Files or folders to read; - is standard input, which is read without any
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,

    /// Print what a finding's code means, how to confirm it and how to fix it, instead of a diagnosis; a part of a code
    /// lists those that have it
    #[arg(long, value_name = "CODE", conflicts_with = "files", value_parser = values::code(), hide_possible_values = true)]
    pub code: Option<String>,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub screen: Screen,

    #[command(flatten)]
    pub quiet: Quiet,

    #[command(flatten)]
    pub prometheus: PrometheusFile,

    #[command(flatten)]
    pub junit: JunitFile,

    /// Also print what to run next to answer open questions; JSON and HTML always include it
    #[arg(long)]
    pub advice: bool,

    /// Description of the run's cluster (TOML), to compare with the expected speed [default: what the inputs
    /// say]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cluster: Option<PathBuf>,

    /// Uneven exchange, by alltoallv: a shape of Megatron-LM's benchmark (W0 to W7), or a file of what each rank or expert
    /// receives, or of what each rank sends to each; busbw's sizes are what a rank sends in the mean
    #[arg(long, value_name = "SHAPE|FILE", value_hint = ValueHint::FilePath, requires = "cluster")]
    pub load: Option<String>,

    #[command(flatten)]
    pub rules: RulesFile,

    /// Number and rate in Gbit/s of each host's NICs, if the inputs do not say: 8x400G, 4x100; 400G where only the rate is known
    #[arg(long, value_name = "NICS", conflicts_with = "cluster")]
    pub nics: Option<NicsOfHost>,

    /// Number and model of each host's GPUs, if the inputs do not say: 8xH100, A100
    #[arg(long, value_name = "GPUS", conflicts_with = "cluster")]
    pub gpus: Option<GpusOfHost>,

    /// Threads that read the files [default: number of cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

const EXPLAIN_EXAMPLES: &str = "Examples:
  busbw explain run.log                      the output of one run: table, NCCL log, or both
  busbw explain rank*.log topo.txt           one log per rank, and `nvidia-smi topo -m`
  busbw explain with-rdma.log without.log    two runs on the same machines are compared
  busbw explain results/                     results of many nodes and pairs: which are slow, and by how much
  mpirun … all_reduce_perf 2>&1 | tee run.log | busbw explain -
  busbw explain --code gdr.disabled          what a finding means and how to fix it
  busbw explain --code roce                  the findings with this in their code
  busbw explain --advice run.log             with command lines to run next
  busbw explain --cluster c.toml run.log     compare the run with the speed expected on this cluster
  busbw explain --gpus 8xH100 --nics 8x400G table.txt   the same, if a table names neither
  busbw explain --cluster c.toml --load W1 run.log       which rank and NIC are hot in an alltoallv
  busbw explain --rules my.toml run.log      with your own signatures
  busbw explain --json run.log | jq '.findings[0]'
  busbw explain -o report.html --json=report.json run.log    a page and JSON

Best input: the whole output of all ranks, run with NCCL_DEBUG=INFO and sizes up to 8G
(-b 8 -e 8G -f 2).

Exit status:
  0  healthy, or no errors: nothing to do
  1  degraded or failed: there are findings of severity warning or error
  2  nothing readable, or bad usage
  3  undecided: the first line asks for what is missing";

/// Compare runs size by size: which is faster, by how much, and why
///
/// Compares every other run with the first. A run is the output of nccl-tests or busbw bench (text or -J JSON), a folder
/// with the files of one run, or the report of busbw doctor. If a run was repeated, its table gives confidence intervals
/// and a significance test. If runs have several collectives, name the one to compare.
#[derive(Args)]
#[command(after_help = COMPARE_EXAMPLES, override_usage = "busbw compare [OPTIONS] [COLLECTIVE] <RUN> <RUN>...")]
pub struct Compare {
    /// The runs: files or folders
    #[arg(required = true, num_args = 2.., value_name = "RUN", value_hint = ValueHint::AnyPath)]
    pub runs: Vec<PathBuf>,

    #[command(flatten)]
    pub collective: NamedCollective,

    /// Compare even if the collectives or the numbers of ranks differ
    #[arg(long)]
    pub anyway: bool,

    #[command(flatten)]
    pub tuning_file: TuningFile,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub screen: Screen,
}

const COMPARE_EXAMPLES: &str = "Examples:
  busbw compare with-rdma.log without.log            two tables, size by size
  busbw compare monday/ tuesday/ wednesday/          folders with all files of a run, including NCCL logs
  busbw compare yesterday.json busbw-report.json     reports of busbw doctor
  busbw compare all_reduce a.log b.log               one collective of several
  busbw compare default.log ring.log --tuning-table tuning.toml   apply what the second proves
  busbw compare -o compared.html a.log b.log
  busbw compare --json a.log b.log | jq '.rows[-1].ratio'

Exit status:
  0  compared
  2  the runs are not comparable, or bad usage";

/// Predict the speed of a cluster, size by size, and what limits it
///
/// Prints the table that nccl-tests should print on this cluster, with the physical limit, the algorithm and protocol
/// that NCCL would choose, and the bottleneck of each size. Measures nothing: the cluster need not exist. Without a
/// collective, the description's, else all_reduce.
#[derive(Args)]
#[command(after_help = PREDICT_EXAMPLES, override_usage = "busbw predict [OPTIONS] [COLLECTIVE] <CLUSTER>...")]
pub struct Predict {
    /// Description of the cluster (TOML), or NCCL logs and topologies to derive it from; - is standard input
    #[arg(required = true, value_name = "CLUSTER", value_hint = ValueHint::FilePath)]
    pub cluster: Vec<PathBuf>,

    /// Fit the model to this machine first: tables that were measured on the cluster, or on a part of it
    #[arg(long, value_name = "LOG", num_args = 1.., value_hint = ValueHint::FilePath)]
    pub calibrate: Vec<PathBuf>,

    /// Uneven exchange, by alltoallv: a shape of Megatron-LM's benchmark (W0 to W7), or a file of what each rank or expert
    /// receives, or of what each rank sends to each; busbw's sizes are what a rank sends in the mean
    #[arg(long, value_name = "SHAPE|FILE", value_hint = ValueHint::FilePath)]
    pub load: Option<String>,

    #[command(flatten)]
    pub tuning_file: TuningFile,

    #[command(flatten)]
    pub sizes: Sizes,

    #[command(flatten)]
    pub collective: NamedCollective,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub look: Look,
}

const PREDICT_EXAMPLES: &str = "Examples:
  busbw predict cluster.toml                             8 bytes to 8 GiB
  busbw predict cluster.toml -b 1M -e 16G -f 2           the sizes of an nccl-tests command line
  busbw predict alltoall cluster.toml                    or --collective alltoall
  busbw predict run.log                                  the cluster of a run
  busbw predict -o expected.html cluster.toml
  busbw predict cluster.toml --calibrate old/*.log       as this machine is: what else should it reach?
  busbw predict cluster.toml --load W2                   a mixture of experts whose hot experts share ranks
  busbw predict cluster.toml --tuning-table try.toml     which algorithms are worth measuring
  busbw predict --json cluster.toml | jq '.rows[-1].busbw_gbs'

A description that names an H100 cluster:
  nodes = 2
  gpus_per_node = 8
  gpu = \"H100\"
  intra = \"NVSwitch\"
  nics_per_node = 8
  nic_gbps = 400
  transport = \"ib\"

Exit status:
  0  predicted
  2  the cluster is not described, or bad usage";

/// Simulate large messages on the fabric under many hash seeds, and the gain of a change
///
/// Routes the flows of a run over the switches and links of the cluster, once per seed, with a hash per flow (ECMP).
/// Flows share a link fairly. Prints the distribution of busbw over the seeds, the links that limit it, and the gain of
/// every change.
#[derive(Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub struct Simulate {
    /// Description of the cluster (TOML), or NCCL logs and topologies to derive it from; - is standard input
    #[arg(required = true, value_name = "CLUSTER", value_hint = ValueHint::FilePath)]
    pub cluster: Vec<PathBuf>,

    /// A change to compare with the cluster as it is; numbers are examples. Each flag is one alternative
    #[arg(long, value_name = "CHANGE", value_parser = values::change())]
    pub what_if: Vec<WhatIf>,

    /// Take the rings from this log instead of predicting them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Uneven exchange, by alltoallv: a shape of Megatron-LM's benchmark (W0 to W7), or a file of what each rank or expert
    /// receives, or of what each rank sends to each; busbw's sizes are what a rank sends in the mean
    #[arg(long, value_name = "SHAPE|FILE", value_hint = ValueHint::FilePath, conflicts_with = "log")]
    pub load: Option<String>,

    /// Number of hash seeds
    #[arg(long, value_name = "N", default_value = "1000", value_parser = seeds)]
    pub seeds: NonZero<u32>,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub look: Look,

    #[command(flatten)]
    pub quiet: Quiet,
}

/// More seeds than this tell nothing more.
const MOST_SEEDS: u32 = 1_000_000;

fn seeds(text: &str) -> Result<NonZero<u32>, String> {
    let seeds = text.parse().ok().filter(|seeds: &NonZero<u32>| seeds.get() <= MOST_SEEDS);
    seeds.ok_or_else(|| format!("give a number from 1 to {MOST_SEEDS}"))
}

const SIMULATE_EXAMPLES: &str = "Examples:
  busbw simulate cluster.toml
  busbw simulate cluster.toml --what-if rail-optimised --what-if adaptive-routing
  busbw simulate cluster.toml --log run.log              with the rings of a real run
  busbw simulate cluster.toml --load W2                  where the senders of a mixture of experts meet
  busbw simulate cluster.toml --seeds 10000 -o fabric.html
  busbw simulate --json cluster.toml | jq .base.busbw_gbs

Exit status:
  0  simulated
  2  the cluster is not described, a change does not fit it, or bad usage";

/// Measure a collective with the flags and the table of nccl-tests
///
/// Runs on CPU cores with busbw's own engine, over shared memory within a host and TCP between hosts, or on GPUs with
/// NCCL (--backend nccl). It detects mpirun, srun and torchrun; --np starts ranks on this host, --hosts on others. A link
/// to busbw named all_reduce_perf (or like any other program of nccl-tests) behaves as that program: on GPUs where there
/// are some.
#[derive(Args)]
#[command(after_help = BENCH_EXAMPLES, args_override_self = true, infer_long_args = true, disable_version_flag = true)]
pub struct Bench {
    /// The collective, unless --collective names it
    #[arg(value_name = "COLLECTIVE", required_unless_present = "collective", value_parser = values::collective_first())]
    pub first: Option<String>,

    /// Hosts with the ranks of each: a:8 b:8
    #[arg(value_name = "HOST", conflicts_with_all = ["hosts", "np"])]
    pub others: Vec<String>,

    #[command(flatten)]
    pub collective: NamedCollective,

    #[command(flatten)]
    pub flags: Flags,

    /// Print version
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
}

const BENCH_EXAMPLES: &str = "Examples:
  busbw bench all_reduce --np 4 -b 8 -e 256M -f 2            four ranks on this host
  mpirun -np 16 -N 8 busbw bench all_reduce -b 8 -e 1G -f 2  under Open MPI or MPICH
  srun -n 4 busbw bench alltoall -b 1M -e 64M -f 4           under Slurm, with or without PMI
  torchrun --nproc-per-node 4 --no_python busbw bench all_gather -b 1M -e 64M -f 2
  busbw bench all_reduce a:8 b:8 -b 8 -e 1G -f 2             builds and runs the mpirun command line
  busbw bench all_reduce --hosts a:8,b:8 --dry-run           prints it
  busbw bench all_reduce --np 2 -b 64M -e 64M --repeat 10    with confidence intervals
  busbw bench alltoallv --np 4 --load W1                     a mixture of experts, a quarter of which is hot
  busbw bench all_reduce --np 2 -b 8 -f 2 --json | jq .average_bus_bandwidth
  ln -s $(command -v busbw) all_reduce_perf; mpirun -np 4 ./all_reduce_perf -b 8 -e 256M -f 2 -g 1

Exit status:
  0  every rank finished and nothing was wrong
  1  wrong results, NCCL_TESTS_MIN_BW missed, or a rank failed
  2  bad usage, the ranks could not connect, or the table cannot be printed
  77 not applicable: no GPU or no NCCL for --backend nccl, no mpirun for --hosts";

/// Check and measure this machine, or hosts, and diagnose the result
///
/// Checks the node (as `busbw check`). Then runs all-reduce from 8 bytes up: on the GPUs if nccl-tests is installed, else
/// on CPU cores with busbw's own engine. Then diagnoses both results (as `busbw explain`). The report as JSON is in
/// busbw-report.json, unless --json or --json=FILE puts it elsewhere.
///
/// With hosts, or in a job of mpirun, srun or torchrun: checks all hosts, measures the links between them (as `busbw
/// link`) and an all-reduce over all of them, with NCCL if all have GPUs, and gives one answer. A host that does not
/// respond is named, and the others are measured without it.
#[derive(Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Hosts to check and measure together
    #[arg(value_name = "HOST", conflicts_with = "hosts")]
    others: Vec<String>,

    #[command(flatten)]
    hosts: HostList,

    /// Start this many processes on each host [default: the number of cores, 2 to 8; with several hosts 1]
    #[arg(long, value_name = "N")]
    pub np: Option<NonZeroUsize>,

    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "64M", value_parser = largest_size)]
    pub max_bytes: String,

    /// Time after which a host that does not respond is reported as lost
    #[arg(short = 'T', long, value_name = "TIME", default_value = "20", value_parser = values::duration)]
    pub timeout: Duration,

    #[command(flatten)]
    pub rules: RulesFile,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub screen: Screen,

    #[command(flatten)]
    pub quiet: Quiet,
}

impl Doctor {
    /// The hosts that are named.
    pub fn named(&self) -> Option<String> {
        self.hosts.or(&self.others)
    }

    /// Whether what is on its way to the answer goes where the answer goes: not where that is for programs.
    pub fn shows(&self) -> bool {
        !(self.quiet.quiet || self.output.is_json() && self.output.file().is_none())
    }
}

/// A size as the benchmark takes it; its sizes begin with 8 bytes.
fn largest_size(text: &str) -> Result<String, String> {
    match text.parse::<Bytes>() {
        Ok(size) if size.0 < 8 => Err("sizes begin with 8 bytes; give 8 or more".into()),
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const DOCTOR_EXAMPLES: &str = "Examples:
  busbw doctor                       this machine, in a minute
  busbw doctor -e 1G                 up to 1 GiB
  busbw doctor --json | jq .verdict
  busbw doctor -o report.html        as a page
  busbw doctor --rules my.toml       with signatures and known faults of your own
  busbw doctor --hosts a,b,c         check, links, all-reduce over three hosts: one answer
  busbw doctor a b c -o cluster.html               and one page
  srun -N 4 --ntasks-per-node=8 busbw doctor          in a job: its hosts

Exit status:
  0  healthy, or no errors: nothing to do
  1  degraded or failed, or a check or the benchmark failed, or a host did not answer
  2  nothing could be measured, or bad usage
  3  undecided: the first line asks for what is missing
  77 not applicable: no mpirun for --hosts";
