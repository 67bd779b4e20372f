//! Flags that several subcommands have, each declared once: how an answer goes out, how it looks, where a job runs.

use crate::progress::Bar;
use crate::values;
use busbw_model::Collective;
use busbw_probe::Root;
use busbw_probe::processes::Scope;
use busbw_report::text::Style;
use clap::{Args, ValueEnum, ValueHint};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A choice of formats.
pub trait Formats: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    const TEXT: Self;
    const JSON: Self;
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for the terminal
    Text,
    /// JSON for programs; the schemas are in docs/schema
    Json,
    /// One HTML page with charts
    Html,
}

impl Formats for Format {
    const TEXT: Self = Format::Text;
    const JSON: Self = Format::Json;
}

/// The formats of an answer that has no page.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Text for the terminal
    Text,
    /// JSON for programs; the schemas are in docs/schema
    Json,
}

impl Formats for TableFormat {
    const TEXT: Self = TableFormat::Text;
    const JSON: Self = TableFormat::Json;
}

/// Where an answer goes, and as what
#[derive(Args)]
pub struct Output<F: Formats = Format> {
    /// Format of the answer [default: by the ending of the file of -o, else text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<F>,

    /// Print JSON instead of text; --json=FILE writes it to a file, beside the answer
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = PRINTED)]
    #[arg(value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Write the answer to a file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// What --json has for its file where it has none.
const PRINTED: &str = "-";

impl<F: Formats> Output<F> {
    /// That of the answer; `--json` without a file goes before `--format`.
    pub fn format(&self) -> F {
        if self.json.as_deref() == Some(Path::new(PRINTED)) {
            return F::JSON;
        }
        let ending = self.output.as_deref().and_then(Path::extension).and_then(|ending| ending.to_str());
        self.format.or_else(|| F::from_str(ending?, true).ok()).unwrap_or(F::TEXT)
    }

    pub fn is_json(&self) -> bool {
        self.format() == F::JSON
    }

    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Where JSON goes beside the answer.
    pub fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|file| *file != Path::new(PRINTED))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// How text looks
#[derive(Args)]
pub struct Look {
    /// When to colour the text; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,

    /// Width of the text in columns [default: the terminal's, else 100]
    #[arg(long, value_name = "COLUMNS", value_parser = columns)]
    width: Option<usize>,
}

fn columns(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a number of columns, as 80".into())
}

impl Look {
    /// As asked for, or as the terminal allows when the text goes to standard output.
    pub fn style(&self, file: Option<&Path>) -> Style {
        let terminal = on_terminal(file);
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let color = match self.color {
            Color::Auto => terminal && allowed,
            Color::Always => true,
            Color::Never => false,
        };
        let screen = terminal.then(terminal_size::terminal_size).flatten();
        let (columns, rows) = screen.map(|(width, height)| (usize::from(width.0), usize::from(height.0))).unzip();
        Style { color, width: self.width.or(columns).unwrap_or(100), rows, brief: false }
    }
}

/// How text looks that a screen has no room for
#[derive(Args)]
pub struct Screen {
    #[command(flatten)]
    look: Look,

    /// Print the whole answer on a terminal too, which else gets a screen of it
    #[arg(short, long)]
    verbose: bool,
}

impl Screen {
    /// As of [`Look::style`].
    pub fn style(&self, file: Option<&Path>) -> Style {
        Style { brief: on_terminal(file) && !self.verbose, ..self.look.style(file) }
    }
}

/// Whether text goes to a terminal. Open MPI gives its ranks one of their own, wherever its own output goes.
fn on_terminal(file: Option<&Path>) -> bool {
    file.is_none() && io::stdout().is_terminal() && std::env::var_os("OMPI_COMM_WORLD_RANK").is_none()
}

/// How often is looked, and who may ask for what is seen
#[derive(Args)]
pub struct Sampling {
    /// Print one interval, and exit
    #[arg(long, conflicts_with = "quiet")]
    pub once: bool,

    /// Time between samples: 500ms, 1s, 1min
    #[arg(short, long, value_name = "TIME", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// Serve Prometheus metrics (GET /metrics, busbw_*) on this port of 127.0.0.1, or on ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = values::served)]
    pub prometheus: Option<SocketAddr>,

    /// A name that Prometheus may ask this host for; addresses, localhost and the host's own name are always answered
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "prometheus")]
    pub prometheus_host: Vec<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    values::time_within(text, busbw_monitor::FASTEST..=busbw_monitor::SLOWEST)
}

/// A job that runs already
#[derive(Args)]
pub struct Attach {
    /// Look on a job on this host: PID, or several; slurm:JOBID; pod:UID; without a value, all ranks on this host
    #[arg(long, value_name = "JOB", num_args = 0..=1, default_missing_value = ALL, conflicts_with = "command")]
    pub attach: Option<String>,
}

/// What --attach has without a value.
const ALL: &str = "all";

impl Attach {
    /// The job in words, as `--attach` names it; all of this host where it has no value, or is not given.
    pub fn named(&self) -> &str {
        self.attach.as_deref().unwrap_or(ALL)
    }

    /// Its processes.
    pub fn scope(&self) -> Result<Scope, String> {
        let text = self.named();
        if text == ALL {
            return Ok(Scope::Below(vec![1]));
        }
        if let Some(job) = text.strip_prefix("slurm:") {
            return Ok(Scope::Group(format!("job_{job}")));
        }
        if let Some(pod) = text.strip_prefix("pod:") {
            return Ok(Scope::Group(pod.to_owned()));
        }
        let pids: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        let pids = pids.map_err(|_| format!("--attach {text}: give a process id, slurm:JOBID or pod:UID"))?;
        let absent = pids.iter().find(|pid| !Root::live().exists(&format!("/proc/{pid}")));
        match absent {
            Some(pid) => Err(format!("--attach {pid}: there is no such process; `pgrep -f torchrun` finds it")),
            None => Ok(Scope::Below(pids)),
        }
    }
}

/// What is said while an answer comes about
#[derive(Args)]
pub struct Quiet {
    /// Print no progress, only the result
    #[arg(short, long)]
    pub quiet: bool,
}

impl Quiet {
    /// A bar of `all` steps, unless nobody wants to see it.
    pub fn bar(&self, all: u64, template: &str) -> Bar {
        if self.quiet { Bar::none() } else { Bar::new(all, template) }
    }
}

/// Where Prometheus finds an answer
#[derive(Args)]
pub struct PrometheusFile {
    /// Also write the answer as metrics, for the textfile collector of node_exporter: a name that ends in .prom, in its
    /// folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    prometheus_file: Option<PathBuf>,
}

impl PrometheusFile {
    pub fn at(file: Option<&Path>) -> Self {
        PrometheusFile { prometheus_file: file.map(Path::to_owned) }
    }

    pub fn file(&self) -> Option<&Path> {
        self.prometheus_file.as_deref()
    }
}

/// Where Jenkins, GitLab and others find an answer
#[derive(Args)]
pub struct JunitFile {
    /// Also write the answer as JUnit XML, for Jenkins, GitLab and what else reads test results
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
}

impl JunitFile {
    pub fn file(&self) -> Option<&Path> {
        self.junit.as_deref()
    }
}

/// Signatures and known faults of a user's own
#[derive(Args)]
pub struct RulesFile {
    /// A file of signatures and known faults of your own (TOML), beside the built-in ones, or a forms.toml; may be given more than
    /// once. `busbw rules guide` says how to write one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    rules: Vec<PathBuf>,
}

impl RulesFile {
    pub fn files(&self) -> &[PathBuf] {
        &self.rules
    }
}

/// Another machine's files
#[derive(Args)]
pub struct CapturedRoot {
    /// Read a captured copy of a node's /sys and /proc instead of this machine's
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    root: Option<PathBuf>,
}

impl CapturedRoot {
    /// The copy; none where this machine is to be read.
    pub fn open(&self) -> Result<Option<Root>, String> {
        let Some(directory) = &self.root else { return Ok(None) };
        let fault =
            |e| format!("--root {}: {e}; give a directory that holds sys and proc of a node", directory.display());
        let root = Root::captured(directory).map_err(fault)?;
        if !root.exists("/sys") && !root.exists("/proc") {
            return Err(fault(io::Error::other("it holds no sys and no proc")));
        }
        Ok(Some(root))
    }
}

/// The hosts of a job
#[derive(Args)]
pub struct HostList {
    /// Hosts, as one list, with the ranks of each: a:8,b:8; started by mpirun, or by srun inside an allocation
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,
}

impl HostList {
    /// As `--hosts` takes them: those that it names, or the arguments.
    pub fn or(&self, arguments: &[String]) -> Option<String> {
        self.hosts.clone().or_else(|| (!arguments.is_empty()).then(|| arguments.join(",")))
    }
}

/// What would run
#[derive(Args)]
pub struct DryRun {
    /// Print the command lines, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The collective, where it is not the first argument
#[derive(Args)]
pub struct NamedCollective {
    /// Collective, by its nccl-tests name; may also be the first argument
    #[arg(long, value_name = "NAME", value_parser = values::collective())]
    collective: Option<Collective>,
}

impl NamedCollective {
    /// The collective that is named, and the arguments; the first of them may be a collective, unless it is a file.
    pub fn among<'a, T: AsRef<Path>>(&self, arguments: &'a [T]) -> (Option<Collective>, &'a [T]) {
        let first = arguments.first().map(AsRef::as_ref).filter(|path| self.collective.is_none() && !path.exists());
        match (first.and_then(Path::to_str).and_then(Collective::from_name), arguments) {
            (Some(collective), [_, others @ ..]) => (Some(collective), others),
            _ => (self.collective, arguments),
        }
    }

    /// Refuses a collective among files: there is no such file.
    pub fn refuse_late(&self, files: &[PathBuf]) -> Result<(), String> {
        let name =
            |path: &PathBuf| path.to_str().filter(|name| Collective::from_name(name).is_some()).map(str::to_owned);
        match files.iter().filter(|path| !path.exists()).find_map(name) {
            None => Ok(()),
            Some(name) => Err(format!("{name}: no such file; write the collective first, or as --collective {name}")),
        }
    }
}
