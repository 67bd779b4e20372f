//! Flags and help of every subcommand. The man pages and shell completions are made from these.

use crate::monitor::Monitor;
use crate::sizes::Sizes;
use busbw_bench::Flags;
use busbw_diagnose::{GpusOfHost, NicsOfHost};
use busbw_model::{Bytes, Code, Collective};
use busbw_predict::WhatIf;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use std::num::{NonZero, NonZeroUsize};
use std::path::{Path, PathBuf};

/// How fast should collective communication be, how fast is it, why not, and what fixes it.
///
/// busbw reads what NCCL and the tools around it print, and says what is wrong with a run and what to do.
#[derive(Parser)]
#[command(name = "busbw", version, propagate_version = true, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Start with this machine, or with the output of a run, whatever it holds:\n  busbw doctor\n  busbw explain run.log\n\nbusbw COMMAND --help has examples."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Check(crate::check::Check),
    Explain(Explain),
    Compare(Compare),
    Tune(Box<crate::tune::Tune>),
    Accelerate(crate::accelerate::Accelerate),
    Predict(Predict),
    Simulate(Simulate),
    Bench(Box<Bench>),
    Link(Box<crate::link::Link>),
    Monitor(Monitor),
    Plugin(crate::plugin::Plugin),
    /// What `plugin check` was called before
    #[command(hide = true)]
    Net(Box<crate::plugin::Check>),
    Rules(crate::rules::Rules),
    Doctor(Doctor),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page of busbw, or write those of all subcommands into a directory
    #[command(after_help = "Examples:\n  busbw man | man -l -\n  busbw man --directory /usr/local/share/man/man1")]
    Man {
        /// Write a page per subcommand into this directory
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
}

const COMPLETIONS_EXAMPLES: &str = "Examples:
  busbw completions bash > ~/.local/share/bash-completion/completions/busbw
  busbw completions zsh > \"${fpath[1]}/_busbw\"
  busbw completions fish > ~/.config/fish/completions/busbw.fish";

/// Say what is wrong with a run, how it shows, and what fixes it
///
/// Reads any mix of nccl-tests output (text or -J JSON), NCCL and RCCL logs (one file, or one per rank; whole or excerpts;
/// with what mpirun, srun, torchrun or Kubernetes put in front), `nvidia-smi topo -m`, NCCL topology XML, perftest output,
/// and the tables of RDMA checks and monitors. What a file is, is told from its content.
#[derive(Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct Explain {
    /// Files to read, or folders, of which every file is; - is standard input
    #[arg(required_unless_present = "code", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,

    /// Print the page of a finding's code instead: what it means, how to confirm it, how to fix it
    #[arg(long, value_name = "CODE", conflicts_with = "files", value_parser = code)]
    pub code: Option<Code>,

    #[command(flatten)]
    pub output: Output,

    /// Say in the text as well what to run next where the inputs leave a question open; JSON and the page always do
    #[arg(long)]
    pub advice: bool,

    /// The cluster that the run was on (TOML), to compare tables with what it should reach [default: as far as the inputs
    /// tell]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cluster: Option<PathBuf>,

    /// A file of signatures of your own (TOML), to try before it is contributed; rules/README.md says how to write one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules: Option<PathBuf>,

    /// The NICs of a host, their number and rate, where the inputs do not tell: 8x400G, 4x100, 400G
    #[arg(long, value_name = "NICS", conflicts_with = "cluster")]
    pub nics: Option<NicsOfHost>,

    /// The GPUs of a host, where the inputs do not tell: 8xH100, A100
    #[arg(long, value_name = "GPUS", conflicts_with = "cluster")]
    pub gpus: Option<GpusOfHost>,

    #[command(flatten)]
    pub look: Look,

    /// Threads that read [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

fn code(name: &str) -> Result<Code, String> {
    Code::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Code::ALL.iter().map(|(_, name, _)| *name).collect();
        format!("choose one of {}", names.join(", "))
    })
}

const EXPLAIN_EXAMPLES: &str = "Examples:
  busbw explain run.log                      the output of one run: table, NCCL log, or both
  busbw explain rank*.log topo.txt           one log per rank, and `nvidia-smi topo -m`
  busbw explain with-rdma.log without.log    two runs on the same machines are compared
  busbw explain results/                     results of many nodes and pairs: who is slow, how far from the rest
  mpirun … all_reduce_perf 2>&1 | tee run.log | busbw explain -
  busbw explain --code gdr.disabled          what a finding means and how to fix it
  busbw explain --advice run.log             and what to run next, as command lines
  busbw explain --cluster c.toml run.log     how far the run is from what the cluster should reach
  busbw explain --gpus 8xH100 --nics 8x400G table.txt   the same, where a table names neither
  busbw explain --rules my.toml run.log      with signatures of your own
  busbw explain --json run.log | jq '.findings[0]'
  busbw explain --format html -o report.html run.log

Best input: the whole output of all ranks, run with NCCL_DEBUG=INFO and sizes up to 8G
(-b 8 -e 8G -f 2).

Exit status:
  0  healthy, or no errors: nothing calls for action
  1  degraded or failed: there are findings of severity warning or error
  2  nothing readable, or bad usage
  3  undecided: the first line asks what would decide";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, at a terminal
    Text,
    /// For programs; the schemas are in docs/schema
    Json,
    /// A page with pictures, for people elsewhere
    Html,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// Where an answer goes, and as what
#[derive(Args)]
pub struct Output {
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the answer to a file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Output {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// How a table is printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TableFormat {
    /// For people, at a terminal
    Text,
    /// For programs; the schemas are in docs/schema
    Json,
}

/// Where a table goes, and as what
#[derive(Args)]
pub struct TableOutput {
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = TableFormat::Text, value_name = "FORMAT")]
    format: TableFormat,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the answer to a file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl TableOutput {
    pub fn is_json(&self) -> bool {
        self.json || self.format == TableFormat::Json
    }

    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// How text looks
#[derive(Args)]
pub struct Look {
    /// Colour the text: on a terminal unless NO_COLOR is set, always, or never
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,

    /// Width of the text in columns [default: that of the terminal, else 100]
    #[arg(long, value_name = "COLUMNS")]
    pub width: Option<usize>,
}

/// Hold runs against each other: who is faster at which sizes, by how much, and why
///
/// The first run is the one that the others are held against. A run is the output of nccl-tests or of busbw bench (text or
/// -J JSON), a folder with the files of one run, or what busbw doctor saved. Repetitions within a run give intervals and a
/// test.
#[derive(Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct Compare {
    /// The runs: files or folders
    #[arg(required = true, num_args = 2.., value_name = "RUN", value_hint = ValueHint::AnyPath)]
    pub runs: Vec<PathBuf>,

    /// The collective to compare, of runs that hold several
    #[arg(long, value_name = "NAME", value_parser = collective)]
    pub collective: Option<Collective>,

    /// Compare different collectives or numbers of ranks too
    #[arg(long)]
    pub anyway: bool,

    #[command(flatten)]
    pub output: Output,
}

const COMPARE_EXAMPLES: &str = "Examples:
  busbw compare with-rdma.log without.log            two tables, size by size
  busbw compare monday/ tuesday/ wednesday/          folders: all files of a run, its NCCL logs too
  busbw compare yesterday.json busbw-report.json     what busbw doctor saved
  busbw compare --format html -o compared.html a.log b.log
  busbw compare --json a.log b.log | jq '.rows[-1].ratio'

Exit status:
  0  compared
  2  the runs are not comparable, or bad usage";

/// Say what a cluster should reach, size by size, and what limits it
///
/// Prints the table that nccl-tests should print there, with the physical limit, the algorithm and protocol that NCCL
/// would choose and the bottleneck of each size. Nothing is measured: the cluster need not exist.
#[derive(Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub struct Predict {
    /// A description of the cluster (TOML), or the NCCL logs and topologies to derive it from; - is standard input
    #[arg(required = true, value_name = "CLUSTER", value_hint = ValueHint::FilePath)]
    pub cluster: Vec<PathBuf>,

    #[command(flatten)]
    pub sizes: Sizes,

    /// The collective, by its name in nccl-tests [default: the description's, else all_reduce]
    #[arg(long, value_name = "NAME", value_parser = collective)]
    pub collective: Option<Collective>,

    #[command(flatten)]
    pub output: Output,
}

const PREDICT_EXAMPLES: &str = "Examples:
  busbw predict cluster.toml                             8 bytes to 8 GiB
  busbw predict cluster.toml -b 1M -e 16G -f 2           the sizes of an nccl-tests command line
  busbw predict cluster.toml --collective alltoall
  busbw predict run.log                                  what the cluster of a run should reach
  busbw predict --format html -o expected.html cluster.toml
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

/// Say what the fabric gives large messages over many hash seeds, and what a change gains
///
/// Routes the flows of a run over the switches and links of the cluster, as a hash per flow (ECMP) spreads them, once per
/// seed, and shares the links fairly. Prints the busbw that comes out as a distribution, the links that decide it, and
/// the gain of every change.
#[derive(Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub struct Simulate {
    /// A description of the cluster (TOML), or the NCCL logs and topologies to derive it from; - is standard input
    #[arg(required = true, value_name = "CLUSTER", value_hint = ValueHint::FilePath)]
    pub cluster: Vec<PathBuf>,

    /// A change to compare with the cluster as it is: rail-optimised, adaptive-routing, nics=8, qps=4 ... Several flags
    /// are several alternatives
    #[arg(long, value_name = "CHANGE")]
    pub what_if: Vec<WhatIf>,

    /// Take the rings from this log, instead of those that NCCL would build
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Hash seeds
    #[arg(long, value_name = "N", default_value = "1000", value_parser = seeds)]
    pub seeds: NonZero<u32>,

    #[command(flatten)]
    pub output: Output,
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
  busbw simulate cluster.toml --log run.log              the rings of a run that was
  busbw simulate cluster.toml --seeds 10000 --format html -o fabric.html
  busbw simulate --json cluster.toml | jq .base.busbw_gbs

Exit status:
  0  simulated
  2  the cluster is not described, a change does not fit it, or bad usage";

/// Measure a collective, as nccl-tests does: the same flags, the same table
///
/// Runs on cores with the embedded engine, over shared memory within a host and TCP between hosts. Under mpirun, srun and
/// torchrun it takes its place by itself; --np starts ranks on this host, --hosts on others. A link to busbw that is called
/// all_reduce_perf (or any other program of nccl-tests) behaves as that program.
#[derive(Args)]
#[command(after_help = BENCH_EXAMPLES, args_override_self = true, infer_long_args = true, disable_version_flag = true)]
pub struct Bench {
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, alltoallv, sendrecv, gather, scatter or
    /// hypercube
    #[arg(value_name = "COLLECTIVE", value_parser = collective)]
    pub collective: Collective,

    #[command(flatten)]
    pub flags: Flags,
}

pub fn collective(name: &str) -> Result<Collective, String> {
    Collective::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Collective::ALL.into_iter().map(Collective::name).collect();
        format!("choose one of {}", names.join(", "))
    })
}

const BENCH_EXAMPLES: &str = "Examples:
  busbw bench all_reduce --np 4 -b 8 -e 256M -f 2            four ranks on this host
  mpirun -np 16 -N 8 busbw bench all_reduce -b 8 -e 1G -f 2  under Open MPI or MPICH
  srun -n 4 busbw bench alltoall -b 1M -e 64M -f 4           under Slurm, with or without PMI
  torchrun --nproc-per-node 4 --no_python busbw bench all_gather -b 1M -e 64M -f 2
  busbw bench all_reduce --hosts a:8,b:8 -b 8 -e 1G -f 2     builds and runs the mpirun command line
  busbw bench all_reduce --hosts a:8,b:8 --dry-run           prints it
  busbw bench all_reduce --np 2 -e 64M --repeat 10           with confidence intervals
  ln -s $(command -v busbw) all_reduce_perf; mpirun -np 4 ./all_reduce_perf -b 8 -e 256M -f 2 -g 1

Exit status:
  0  every rank finished and nothing was wrong
  1  wrong results, NCCL_TESTS_MIN_BW missed, or a rank failed
  2  bad usage, or the ranks could not meet";

/// Check this machine, measure it, and say what is wrong with it
///
/// Checks the node as `busbw check` does. Runs all-reduce over sizes from 8 bytes up: on the GPUs with nccl-tests where both
/// are there, else with the embedded engine on the cores. Then explains its own result with all that the check found, as
/// `busbw explain` does.
#[derive(Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Ranks of the embedded engine [default: the number of cores, 2 to 8]
    #[arg(long, value_name = "N")]
    pub np: Option<NonZeroUsize>,

    /// Largest size to measure; K, M and G are binary
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", default_value = "64M", value_parser = largest_size)]
    pub max_bytes: String,

    /// Print the answer as JSON (schema busbw.explain/1) instead of text
    #[arg(long)]
    pub json: bool,

    /// Where the JSON report goes
    #[arg(short, long, value_name = "FILE", default_value = "busbw-report.json", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
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

Exit status:
  0  healthy, or no errors: nothing calls for action
  1  degraded or failed, a check that failed, or the benchmark did
  2  nothing could be measured, or bad usage
  3  undecided: the first line asks what would decide";
