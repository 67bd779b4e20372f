//! The flags of nccl-tests, with their meanings and defaults, and ours.

mod names;
mod value;

pub use names::{called_program, program};
pub use value::{OneOrAll, Root};

use crate::{Error, Result};
use busbw_model::{Bytes, Datatype, RedOp};
use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use value::{any_integer, choice, count, datatype, device_only, positive, redop, root, size, time};

/// What carries the collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// NCCL where the driver finds a GPU, else cpu. Default of programs named as nccl-tests names them
    Auto,
    /// busbw's own engine, on CPU cores: shared memory within a host, sockets between hosts. Default of busbw bench
    Cpu,
    /// NCCL, on GPUs
    Nccl,
}

/// As what the answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// nccl-tests' table
    Text,
    /// nccl-tests' JSON, as of -J
    Json,
}

impl BackendName {
    pub fn name(self) -> &'static str {
        match self {
            BackendName::Auto => "auto",
            BackendName::Cpu => "cpu",
            BackendName::Nccl => "nccl",
        }
    }
}

/// Flags of a benchmark. Short ones are nccl-tests'; numbers may also be hexadecimal (0x10).
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Flags {
    /// Threads per process; each runs --ngpus ranks
    #[arg(short = 't', long, value_name = "N", default_value = "1", value_parser = positive, help_heading = RANKS)]
    pub nthreads: u32,

    /// GPUs per thread; without GPUs, ranks per thread. Total ranks = processes x threads x this
    #[arg(short = 'g', long, value_name = "N", default_value = "1", value_parser = positive, help_heading = RANKS)]
    pub ngpus: u32,

    /// Engine that runs the collective. BUSBW_BACKEND says the same
    #[arg(long, value_enum, value_name = "NAME", help_heading = RANKS)]
    pub backend: Option<BackendName>,

    /// Start this many processes on this host
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "hosts", help_heading = RANKS)]
    pub np: Option<u32>,

    /// Hosts, as one list, with the ranks of each: a:8,b:8; started by mpirun, or by srun inside an allocation
    #[arg(long, value_name = "LIST", help_heading = RANKS)]
    pub hosts: Option<String>,

    /// Print the command lines, and run nothing
    #[arg(long, help_heading = RANKS)]
    pub dry_run: bool,

    /// Smallest size in bytes; K, M and G are binary. Default: 32M, or -e where that is less
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = size, help_heading = SIZES)]
    pub minbytes: Option<Bytes>,

    /// Largest size in bytes
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "32M", value_parser = size, help_heading = SIZES)]
    pub maxbytes: Bytes,

    /// Bytes added from one size to the next, if -f is not given
    #[arg(short = 'i', long, value_name = "SIZE", default_value = "1M", value_parser = size, help_heading = SIZES)]
    pub stepbytes: Bytes,

    /// Factor from one size to the next; 1 is off
    #[arg(short = 'f', long, value_name = "N", default_value = "1", value_parser = positive, help_heading = SIZES)]
    pub stepfactor: u32,

    /// Reduction: sum, prod, min, max, avg, mulsum (with --backend nccl) or all. For collectives that reduce
    #[arg(short = 'o', long, value_name = "OP", default_value = "sum", value_parser = redop, help_heading = OPERATION)]
    pub op: OneOrAll<RedOp>,

    /// Datatype: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "float", value_parser = datatype)]
    #[arg(help_heading = OPERATION)]
    pub datatype: OneOrAll<Datatype>,

    /// Root rank, or all (-1). For collectives with a root
    #[arg(short = 'r', long, value_name = "RANK", default_value = "0", value_parser = root)]
    #[arg(allow_negative_numbers = true, help_heading = OPERATION)]
    pub root: Root,

    /// Uneven exchange, by alltoallv: a shape of Megatron-LM's benchmark (W0 to W7), or a file of what each rank or expert
    /// receives, or of what each rank sends to each; busbw's sizes are what a rank sends in the mean
    #[arg(long, value_name = "SHAPE|FILE", value_hint = ValueHint::FilePath, help_heading = OPERATION)]
    pub load: Option<String>,

    /// Algorithm, by its name in NCCL_ALGO. Default: chosen by size and layout
    #[arg(long, value_name = "NAME", help_heading = OPERATION)]
    pub algo: Option<String>,

    /// Helper threads per connection between hosts (NCCL_SOCKET_NTHREADS). Default: chosen automatically
    #[arg(long, value_name = "N", value_parser = positive, help_heading = OPERATION)]
    pub threads: Option<u32>,

    /// Sockets per helper thread (NCCL_NSOCKS_PERTHREAD). Default: chosen automatically
    #[arg(long, value_name = "N", value_parser = positive, help_heading = OPERATION)]
    pub sockets: Option<u32>,

    /// Timed iterations
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = positive, help_heading = TIMING)]
    pub iters: u32,

    /// Untimed iterations before the timed ones, at each size
    #[arg(short = 'w', long = "warmup_iters", alias = "warmup-iters", value_name = "N", default_value = "1")]
    #[arg(value_parser = count, help_heading = TIMING)]
    pub warmup_iters: u32,

    /// Operations grouped in each iteration
    #[arg(short = 'm', long = "agg_iters", alias = "agg-iters", value_name = "N", default_value = "1")]
    #[arg(value_parser = positive, help_heading = TIMING)]
    pub agg_iters: u32,

    /// Number of times to run and print all sizes; 0: forever
    #[arg(short = 'N', long = "run_cycles", alias = "run-cycles", value_name = "N", default_value = "1")]
    #[arg(value_parser = count, help_heading = TIMING)]
    pub run_cycles: u32,

    /// Time to show: 0 rank 0's, 1 mean of all ranks, 2 shortest, 3 longest
    #[arg(short = 'a', long, value_name = "0-3", default_value = "1", value_parser = choice::<3>)]
    #[arg(help_heading = TIMING)]
    pub average: u8,

    /// 1: time every iteration, and show the minimum, the maximum, the 99th percentile (nearest rank) and the coefficient
    /// of variation
    #[arg(short = 'I', long = "per_iter_timing", alias = "per-iter-timing", value_name = "0|1", default_value = "0")]
    #[arg(value_parser = choice::<1>, help_heading = TIMING)]
    pub per_iter_timing: u8,

    /// Number of first iterations that -I ignores
    #[arg(short = 'K', long = "per_iter_skip", alias = "per-iter-skip", value_name = "N", default_value = "0")]
    #[arg(value_parser = count, help_heading = TIMING)]
    pub per_iter_skip: u32,

    /// 0: do not wait between iterations; 1: wait and barrier after each operation; 2: wait, no barrier; 3: wait and
    /// barrier after each iteration, not timed
    #[arg(short = 'z', long, value_name = "0-3", default_value = "0", value_parser = choice::<3>)]
    #[arg(help_heading = TIMING)]
    pub blocking: u8,

    /// 1: show the time that the call took, not the operation
    #[arg(short = 'C', long = "report_cputime", alias = "report-cputime", value_name = "0|1", default_value = "0")]
    #[arg(value_parser = choice::<1>, help_heading = TIMING)]
    pub report_cputime: u8,

    /// Number of repetitions of the whole run; shows mean, spread and 95% confidence interval of busbw per size
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, help_heading = TIMING)]
    pub repeat: u32,

    /// Number of times to check the results at each size; 0: off
    #[arg(short = 'c', long, value_name = "N", default_value = "1", value_parser = count, help_heading = RUN)]
    #[arg(aliases = ["ch", "che", "chec"])] // as nccl-tests' getopt takes them, which knows no --checksum
    pub check: u32,

    /// Check every message between hosts when it arrives (CRC-32C): a damaged byte ends the run and names both ranks.
    /// -c checks no timed operation. Use it where a network is in doubt: it costs a fifth more processor time.
    /// BUSBW_NET_CHECKSUM=1 does the same. Ranks of one host share memory and need none
    #[arg(long, help_heading = RUN)]
    pub checksum: bool,

    /// Time that the operations of one test may take: the iterations of a size, out of place or in place, its warm-up, or
    /// its check. A test that takes longer ends the job; 0: no limit
    #[arg(short = 'T', long, value_name = "TIME", default_value = "0", value_parser = time, help_heading = RUN)]
    pub timeout: Duration,

    /// Time without progress after which the job ends and names the rank at fault; 0: off
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = time, help_heading = RUN)]
    pub stall_timeout: Duration,

    /// 1: threads initialise their ranks in parallel
    #[arg(short = 'p', long = "parallel_init", alias = "parallel-init", value_name = "0|1", default_value = "0")]
    #[arg(value_parser = choice::<1>, help_heading = RUN)]
    pub parallel_init: u8,

    /// Start buffers at this element, to measure the cost of misalignment
    #[arg(short = 'u', long, value_name = "N", default_value = "0", value_parser = count, help_heading = RUN)]
    pub unalign: u32,

    /// 1: use the null stream (--backend nccl only)
    #[arg(short = 'y', long = "stream_null", alias = "stream-null", value_name = "0|1", default_value = "0")]
    #[arg(value_parser = choice::<1>, help_heading = RUN)]
    pub stream_null: u8,

    /// 1: print a time stamp at the end of each row
    #[arg(short = 'S', long = "report_timestamps", alias = "report-timestamps", value_name = "0|1")]
    #[arg(default_value = "0", value_parser = choice::<1>, help_heading = OUTPUT)]
    pub report_timestamps: u8,

    /// Also write the results as JSON (nccl-tests' file version 3). The name must end in .json. An existing file is not
    /// overwritten: .0, .1 and so on is added to the name
    #[arg(short = 'J', long = "output_file", alias = "output-file", value_name = "FILE")]
    #[arg(value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub output_file: Option<PathBuf>,

    /// Print JSON instead of text; --json=FILE writes it to a file, beside the answer
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = PRINTED, conflicts_with = "output_file")]
    #[arg(value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub json: Option<PathBuf>,

    /// Format of the answer [default: by the ending of the file of --output, else text]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT)]
    pub format: Option<Format>,

    /// Write the answer to a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub output: Option<PathBuf>,

    /// Also write the answer as metrics, for the textfile collector of node_exporter: a name that ends in .prom, in its
    /// folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub prometheus_file: Option<PathBuf>,

    /// 1: show the memory used
    #[arg(short = 'M', long, value_name = "0|1", default_value = "0", value_parser = choice::<1>)]
    #[arg(help_heading = OUTPUT)]
    pub memory: u8,

    /// Show the traffic of each NIC per size
    #[arg(long = "nic-traffic", alias = "nics", help_heading = OUTPUT)]
    pub nics: bool,

    /// Capture the iterations as a CUDA graph and launch it this many times; needs --backend nccl
    #[arg(short = 'G', long, value_name = "N", default_value = "0", value_parser = count, help_heading = GPU)]
    pub cudagraph: u32,

    /// Register buffers with NCCL: 1 local, 2 symmetric; needs --backend nccl
    #[arg(short = 'R', long = "local_register", alias = "local-register", value_name = "0-2", default_value = "0")]
    #[arg(value_parser = choice::<2>, help_heading = GPU)]
    pub local_register: u8,

    /// Number of the implementation that uses NCCL's device API, with -R 2; needs --backend nccl
    #[arg(short = 'D', long = "device_implementation", alias = "device-implementation", value_name = "N")]
    #[arg(default_value = "0", value_parser = count, help_heading = GPU)]
    pub device_implementation: u32,

    /// Number of CTAs of that implementation, 1 to 128; without -D, nothing depends on it
    #[arg(short = 'V', long = "device_cta_count", alias = "device-cta-count", value_name = "N", default_value = "16")]
    #[arg(value_parser = any_integer, allow_negative_numbers = true, help_heading = GPU)]
    pub device_cta_count: i64,

    /// Let several ranks share a GPU and communicate over the network, as if on different hosts; needs --backend nccl
    #[arg(long, help_heading = GPU)]
    pub share_gpus: bool,

    /// Path of libnccl.so.2 or of its folder. Default: searched on the library path, in CUDA's folders and PyTorch's
    /// packages; needs --backend nccl
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = GPU)]
    pub nccl_library: Option<PathBuf>,

    /// NCCL's CTA policy: 0 default, 1 efficiency, 2 zero; needs --backend nccl
    #[arg(short = 'x', long = "cta_policy", alias = "cta-policy", value_name = "0-2", value_parser = choice::<2>)]
    #[arg(help_heading = GPU)]
    pub cta_policy: Option<u8>,
}

fn has_ending(file: &Path, ending: &str) -> bool {
    file.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

/// What `--json` has for its file where it has none.
const PRINTED: &str = "-";
/// Where nccl-tests' sizes begin (`minBytes` of its `src/common.cu`).
const DEFAULT_MIN_BYTES: u64 = 32 << 20;
/// More ranks in a process are a slip of the keyboard: no host has as many cores.
const MOST_RANKS_PER_PROCESS: usize = 4096;

const RANKS: &str = "Ranks";
const SIZES: &str = "Sizes";
const OPERATION: &str = "Operation";
const TIMING: &str = "Timing";
const RUN: &str = "Run";
const OUTPUT: &str = "Output";
const GPU: &str = "GPU only";

/// The command that nccl-tests' programs are: flags and nothing else.
#[derive(Debug, Parser)]
#[command(no_binary_name = false, disable_version_flag = true, max_term_width = 100)]
struct Program {
    #[command(flatten)]
    flags: Flags,
}

/// clap's command of a program of nccl-tests, to parse with or to make help and manual from. As with getopt, the last
/// of a repeated flag counts and long flags may be cut short.
pub fn command(name: &'static str) -> clap::Command {
    Program::command().name(name).bin_name(name).args_override_self(true).infer_long_args(true)
}

impl Default for Flags {
    /// nccl-tests' defaults, and ours: those of a command line without flags.
    fn default() -> Self {
        Program::parse_from(["busbw"]).flags
    }
}

impl Flags {
    /// Reads a command line of nccl-tests; the first argument is the program's name.
    ///
    /// # Errors
    /// clap's error, which is also how `--help` ends; it names the flag, the value and what is allowed. Flags that
    /// contradict each other are found by [`Flags::check`].
    pub fn parse<I>(name: &'static str, argv: I) -> std::result::Result<Self, clap::Error>
    where
        I: IntoIterator<Item: Into<OsString> + Clone>,
    {
        Flags::from_arg_matches(&command(name).try_get_matches_from(argv)?)
    }

    /// Looks for flags that contradict each other, or what carries the collective.
    pub fn check(&self) -> Result<()> {
        self.check_sizes()?;
        if self.ranks_per_process() > MOST_RANKS_PER_PROCESS {
            let (allowed, ranks) = (MOST_RANKS_PER_PROCESS, self.ranks_per_process());
            let allowed =
                format!("with -g,--ngpus {} these are {ranks} ranks in a process; {allowed} are allowed", self.ngpus);
            return Err(Error::flag("-t,--nthreads", self.nthreads, allowed));
        }
        if self.per_iter_skip > 0 && self.per_iter_timing == 0 {
            return Err(Error::flag("-K,--per_iter_skip", self.per_iter_skip, "needs -I 1"));
        }
        if self.per_iter_skip >= self.iters {
            let allowed = format!("at most {} of {} iterations (-n) can be left out", self.iters - 1, self.iters);
            return Err(Error::flag("-K,--per_iter_skip", self.per_iter_skip, allowed));
        }
        if self.dry_run && self.hosts.is_none() {
            return Err(Error::flag(
                "--dry-run",
                "",
                "shows how ranks are started on other hosts; name them by --hosts",
            ));
        }
        if let Some(file) = self.json_file().filter(|file| !has_ending(file, "json")) {
            return Err(Error::flag("-J,--output_file", file.display(), "the name must end in .json"));
        }
        self.check_graphs()?;
        device_only(self)
    }

    /// The file that JSON goes to beside the table.
    pub fn json_file(&self) -> Option<&Path> {
        let json = self.json.as_deref().filter(|file| *file != Path::new(PRINTED));
        self.output_file.as_deref().or(json)
    }

    /// Whether JSON is printed, instead of the table.
    pub fn prints_json(&self) -> bool {
        let by_ending = || self.output.as_deref().is_some_and(|file| has_ending(file, "json"));
        self.json.as_deref() == Some(Path::new(PRINTED))
            || self.format.map_or_else(by_ending, |format| format == Format::Json)
    }

    /// A graph runs as a whole: nothing can be waited for, or timed, in between.
    fn check_graphs(&self) -> Result<()> {
        let given = [
            ("-z,--blocking", u32::from(self.blocking)),
            ("-I,--per_iter_timing", self.per_iter_timing.into()),
            ("-y,--stream_null", self.stream_null.into()),
        ];
        match given.into_iter().find(|(_, value)| self.cudagraph > 0 && *value > 0) {
            Some((flag, value)) => Err(Error::flag(flag, value, "does not go with graphs (-G); leave one of them out")),
            None => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let (min, max) = (self.min_bytes(), self.maxbytes.0);
        if min > max {
            let allowed = format!("must not be above -e,--maxbytes, which is {max}");
            return Err(Error::flag("-b,--minbytes", min, allowed));
        }
        if min < max && self.stepfactor > 1 && min == 0 {
            return Err(Error::flag(
                "-b,--minbytes",
                0,
                "does not grow by a factor (-f); begin with 1 or more, or use -i",
            ));
        }
        if min < max && self.stepfactor <= 1 && self.stepbytes.0 == 0 {
            return Err(Error::flag("-i,--stepbytes", 0, "the step must be above 0"));
        }
        Ok(())
    }

    /// What ranks must have in common, in nccl-tests' words.
    pub fn signature(&self) -> String {
        format!(
            "-t {} -g {} -b {} -e {} -i {} -f {} -o {:?} -d {:?} -r {:?} -n {} -w {} -m {} -N {} -a {} -I {} -c {} -z {} -u {} \
             --repeat {} --nics {} -G {} -R {}",
            self.nthreads,
            self.ngpus,
            self.min_bytes(),
            self.maxbytes.0,
            self.stepbytes.0,
            self.stepfactor,
            self.op,
            self.datatype,
            self.root,
            self.iters,
            self.warmup_iters,
            self.agg_iters,
            self.run_cycles,
            self.average,
            self.per_iter_timing,
            self.check,
            self.blocking,
            self.unalign,
            self.repeat,
            self.nics,
            self.cudagraph,
            self.local_register
        )
    }

    /// Ranks of each process, a thread each.
    pub fn ranks_per_process(&self) -> usize {
        self.nthreads as usize * self.ngpus as usize
    }

    /// Operations of all timed iterations.
    pub fn operations(&self) -> usize {
        self.iters as usize * self.agg_iters as usize
    }

    /// How long a job may stand still; `None`: for ever.
    pub fn patience(&self) -> Option<Duration> {
        (!self.stall_timeout.is_zero()).then_some(self.stall_timeout)
    }

    /// Where sizes begin: what `-b` says, else nccl-tests' default, or `-e` where that is less.
    pub fn min_bytes(&self) -> u64 {
        self.minbytes.map_or(DEFAULT_MIN_BYTES.min(self.maxbytes.0), |given| given.0)
    }

    /// What carries the operations, once [`Flags::settle_backend`] has settled it.
    pub fn is_on_gpus(&self) -> bool {
        self.backend == Some(BackendName::Nccl)
    }

    /// What is done otherwise than the flags say, a line each.
    pub fn adjustments(&self) -> Vec<String> {
        let lowered = (self.min_bytes() < DEFAULT_MIN_BYTES && self.minbytes.is_none())
            .then(|| format!("minBytes is {}, as -e: it is below -b's default of 32M", self.min_bytes()));
        // As of `run` of nccl-tests 2.19.6's `src/common.cu`.
        let ctas = self.device_cta_count;
        let replaced = (!(1..=128).contains(&ctas))
            .then(|| format!("device_cta_count (-V) is 16, its default: {ctas} is not between 1 and 128"));
        lowered.into_iter().chain(replaced).collect()
    }

    /// The sizes of the sweep, up to `max` bytes.
    pub fn sizes(&self, min: u64, max: u64) -> impl Iterator<Item = u64> {
        let (factor, step) = (u64::from(self.stepfactor), self.stepbytes.0);
        let next = move |size: &u64| if factor > 1 { size.checked_mul(factor) } else { size.checked_add(step) };
        let sizes = std::iter::successors(Some(min), next).take_while(move |size| *size <= max);
        sizes.take(if min < max { usize::MAX } else { 1 })
    }
}

#[cfg(test)]
mod tests;
