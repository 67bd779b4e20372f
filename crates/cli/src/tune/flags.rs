//! Flags of `busbw tune`.

use crate::flags::{DryRun, NamedCollective, Output, Quiet, Screen};
use crate::{output, values};
use busbw_model::{Bytes, Collective};
use busbw_probe::Program;
use busbw_tune::import::Wanted;
use busbw_tune::objective::{Better, Objective};
use busbw_tune::race::Rules;
use busbw_tune::runner::Workload;
use busbw_tune::slurm::Jobs;
use busbw_tune::space::Space;
use clap::{Args, ValueHint};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run a command with many settings, and find the fastest
///
/// Runs each setting once, in random order, then the better ones again, until a significance test finds the best or the
/// limit of rounds, trials or time is reached: never more trials than four runs of every setting. The default (nothing
/// set) runs at least twice. Results are stored: after an interruption, the same command continues. A trial that fails
/// or times out never counts as fast, and ends no sweep. Where algorithm and protocol are tuned, the file for the tuner
/// plugin is for all_reduce, or the collective that is named.
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = "busbw tune [OPTIONS] [COLLECTIVE] [SPACE] -- <COMMAND>...")]
pub struct Tune {
    /// A built-in space (sockets, ib, algo, channels) or a TOML file
    #[arg(value_names = ["COLLECTIVE", "SPACE"], num_args = 0..=2, value_parser = values::space())]
    #[arg(value_hint = ValueHint::FilePath, required_unless_present_any = ["var", "import"])]
    space: Vec<String>,

    /// The command to run, after --; {NAME} is replaced by a variable's value, and all variables are set in its
    /// environment
    #[arg(last = true, required_unless_present = "import", value_name = "COMMAND")]
    command: Vec<String>,

    /// A variable and its values; adds to the space, or replaces the values there
    #[arg(long, value_name = "NAME=VALUE,VALUE")]
    var: Vec<String>,

    /// Only run settings for which this holds: 'NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD <= 64'
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<String>,

    /// Accept NCCL_* variables and values that NCCL does not know, as those of the CPU engine
    #[arg(long)]
    unchecked: bool,

    /// Do not run the default, which sets nothing
    #[arg(long)]
    pub no_default: bool,

    /// Minimize the last number in the output that matches this expression [default: minimize the wall time]
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["maximize", "busbw"], help_heading = "What is best")]
    minimize: Option<String>,

    /// Maximize the last number in the output that matches this expression
    #[arg(long, value_name = "REGEX", conflicts_with = "busbw", help_heading = "What is best")]
    maximize: Option<String>,

    /// Maximize busbw at this size in the command's nccl-tests table
    #[arg(long, value_name = "SIZE", help_heading = "What is best")]
    busbw: Option<Bytes>,

    /// Unit of the number, for the answer [default: what the expression names]
    #[arg(long, value_name = "UNIT", help_heading = "What is best")]
    pub unit: Option<String>,

    /// Confidence needed to drop a setting, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = clap::value_parser!(u8).range(50..=99), help_heading = "How long")]
    confidence: u8,

    /// Stop when the winner is surely within this many percent of the best
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent, help_heading = "How long")]
    tolerance: f64,

    /// Most rounds to run, and as many trials as N full rounds take [default: the trials of 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "How long")]
    rounds: Option<u32>,

    /// Most trials to run, without warm-up
    #[arg(long, value_name = "N", help_heading = "How long")]
    max_trials: Option<NonZeroUsize>,

    /// Start no trial after this time: 90s, 30min, 2h
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "How long")]
    pub max_time: Option<Duration>,

    /// Run every setting in every round
    #[arg(long, help_heading = "How long")]
    exhaustive: bool,

    /// Ignore the first run of each setting
    #[arg(long, help_heading = "How long")]
    pub warm_up: bool,

    /// Seed of the random order
    #[arg(long, value_name = "N", default_value = "1", help_heading = "How long")]
    seed: u64,

    /// Time after which a trial counts as failed: 90s, 30min, 2h
    #[arg(short = 'T', long, value_name = "TIME", default_value = "1h", value_parser = duration, help_heading = "How long")]
    timeout: Duration,

    /// Run every trial as a Slurm job, submitted by sbatch
    #[arg(long, help_heading = "Slurm")]
    slurm: bool,

    /// Partition of the jobs
    #[arg(long, value_name = "NAME", requires = "slurm", help_heading = "Slurm")]
    partition: Option<String>,

    /// Number of nodes
    #[arg(long, value_name = "N", requires = "slurm", help_heading = "Slurm")]
    nodes: Option<NonZeroUsize>,

    /// Time limit of each job, in sbatch's form: 30, 2:00:00
    #[arg(long, value_name = "LIMIT", requires = "slurm", help_heading = "Slurm")]
    time: Option<String>,

    /// Account of the jobs
    #[arg(long, value_name = "NAME", requires = "slurm", help_heading = "Slurm")]
    account: Option<String>,

    /// A job script with #SBATCH lines and preparation; {run} is replaced by the trial
    #[arg(long, value_name = "FILE", requires = "slurm", value_hint = ValueHint::FilePath, help_heading = "Slurm")]
    template: Option<PathBuf>,

    /// Most jobs in the queue at once; jobs must not share the resource that they measure
    #[arg(long, value_name = "N", default_value = "1", requires = "slurm", help_heading = "Slurm")]
    jobs: NonZeroUsize,

    /// Folder for trials, logs and the files with the best setting
    #[arg(long, value_name = "DIR", default_value = "busbw-tune", value_hint = ValueHint::DirPath)]
    store: PathBuf,

    #[command(flatten)]
    collective: NamedCollective,

    /// Run nothing: print the statistics of a table (CSV) with a column per variable, and value (a row for each trial),
    /// or mean, stddev and rounds (a row for each setting). --minimize or --maximize COLUMN names another column
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["space", "command", "var", "slurm", "busbw", "dry_run"])]
    pub import: Option<PathBuf>,

    #[command(flatten)]
    pub dry_run: DryRun,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub screen: Screen,

    #[command(flatten)]
    pub quiet: Quiet,
}

const EXAMPLES: &str = "Examples:
  busbw tune sockets -- ./train.sh                                the best sockets for a training run, by time
  busbw tune sockets --maximize 'images/s: ([0-9.]+)' -- python train.py
  busbw tune algo --busbw 64M -- mpirun -np 16 all_reduce_perf -b 64M -e 64M
  busbw tune --var NCCL_SOCKET_NTHREADS=1,2,4 --var OMP_NUM_THREADS=4,8 -- ./train.sh
  busbw tune space.toml --slurm --partition gpu --nodes 2 --time 30 --jobs 2 -- python train.py
  busbw tune sockets --exhaustive --rounds 4 -- ./train.sh        the whole grid
  salloc -N 2 busbw tune ib -- srun ./train.sh                    inside an allocation
  busbw tune --import sweep.csv                                   a sweep that somebody else made: the statistics
  busbw tune --import sweep.csv --maximize images_per_s --unit images/s

Exit status:
  0  there is a result
  1  every trial failed, or the run was stopped; the same command continues it
  2  the space, the objective or the store cannot be used, or bad usage";

impl Tune {
    /// The space: built-in or from a file, with what flags change.
    pub fn space(&self) -> Result<Space, String> {
        let mut space = match self.collective.among(&self.space).1 {
            [name] => Space::open(name).map_err(|e| e.to_string())?,
            [] => Space { name: "flags".into(), variables: Vec::new(), constraints: Vec::new() },
            [first, second, ..] => return Err(format!("{first} and {second}: name one space; --var adds to it")),
        };
        self.var.iter().try_for_each(|text| space.add(text)).map_err(|e| e.to_string())?;
        self.conditions.iter().try_for_each(|text| space.constrain(text)).map_err(|e| e.to_string())?;
        for variable in &mut space.variables {
            variable.unchecked |= self.unchecked;
        }
        Ok(space)
    }

    /// The collective for the tuner plugin's file.
    pub fn collective(&self) -> Collective {
        self.collective.among(&self.space).0.unwrap_or(Collective::AllReduce)
    }

    pub fn objective(&self) -> Result<Objective, String> {
        match (&self.minimize, &self.maximize, self.busbw) {
            (Some(regex), ..) => Objective::number(regex, Better::Lower).map_err(|e| format!("--minimize {e}")),
            (_, Some(regex), _) => Objective::number(regex, Better::Higher).map_err(|e| format!("--maximize {e}")),
            (.., Some(size)) => Ok(Objective::Busbw(size)),
            _ => Ok(Objective::WallTime),
        }
    }

    /// The command's program where it is not on this machine; none where its name follows from a variable, or where it runs
    /// elsewhere.
    pub fn missing_program(&self) -> Option<&str> {
        let program = self.command.first().filter(|word| !self.slurm && !word.contains('{'))?;
        let found = if program.contains('/') { Path::new(program).is_file() } else { Program::find(program).is_some() };
        (!found).then_some(program)
    }

    pub fn rules(&self) -> Rules {
        let default = Rules::default();
        Rules {
            confidence: f64::from(self.confidence) / 100.0,
            tolerance: self.tolerance / 100.0,
            rounds: self.rounds,
            trials: self.max_trials.map(NonZeroUsize::get),
            exhaustive: self.exhaustive,
            seed: self.seed,
            reference: (!self.no_default).then_some(DEFAULT),
            ..default
        }
    }

    /// What to read an imported table as.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            column: self.minimize.as_deref().or(self.maximize.as_deref()),
            higher_is_better: self.maximize.is_some(),
            unit: self.unit.as_deref(),
        }
    }

    /// What decides which trial is which: with other values a store's rounds would be those of another race.
    pub fn order(&self) -> String {
        format!("{} {} {} {} {}", self.seed, self.exhaustive, self.warm_up, self.confidence, self.tolerance)
    }

    pub fn workload(&self) -> Workload {
        Workload { words: self.command.clone(), limit: self.timeout }
    }

    pub fn store(&self) -> PathBuf {
        self.store.clone()
    }

    /// The size of which the objective is, if it is one.
    pub fn size(&self) -> Option<Bytes> {
        self.busbw
    }

    /// Slurm, where trials are jobs.
    pub fn jobs(&self) -> Result<Option<Jobs>, String> {
        if !self.slurm {
            return Ok(None);
        }
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|e| format!("--template {}", output::unread(path, &e)))
        };
        let option = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
        let nodes = self.nodes.map(|nodes| nodes.to_string());
        let options = [
            option("partition", self.partition.clone()),
            option("nodes", nodes),
            option("time", self.time.clone()),
            option("account", self.account.clone()),
        ];
        Ok(Some(Jobs {
            at_once: self.jobs,
            options: options.into_iter().flatten().collect(),
            template: self.template.as_ref().map(read).transpose()?,
            look_every: LOOK_EVERY,
        }))
    }
}

/// Where the default stands among the settings.
pub const DEFAULT: usize = 0;
/// How often to look at Slurm's queue.
const LOOK_EVERY: Duration = Duration::from_millis(500);

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| (0.0..=50.0).contains(percent));
    percent.ok_or_else(|| "give percent from 0 to 50".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    values::time_within(text, Duration::from_millis(1)..=Duration::MAX)
}
