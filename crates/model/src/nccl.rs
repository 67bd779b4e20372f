//! What NCCL says about itself in its log, apart from its communicators.

use crate::place::{Place, SourceLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

named! {
    /// NCCL or its AMD relative.
    #[derive(Default)]
    pub enum Library {
        /// NVIDIA's NCCL.
        #[default]
        Nccl = "nccl",
        /// AMD's RCCL.
        Rccl = "rccl",
    }
    /// `nccl` or `rccl`.
    name
}

/// The library that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Nccl")]
pub struct NcclVersion {
    /// The first version that its log printed, else the one nccl-tests printed.
    pub version: Option<String>,
    /// CUDA version it was built for.
    pub cuda: Option<String>,
    /// NVIDIA's NCCL or AMD's RCCL.
    pub library: Library,
}

/// A process or thread that logs: the prefix `host:pid:tid [dev]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LogPrefix {
    /// Host name as printed.
    pub host: Box<str>,
    /// Process id.
    pub pid: u64,
    /// Thread id.
    pub tid: u64,
    /// CUDA device index; absent in `NCCL CALL` lines and some plugins' lines.
    pub device: Option<u32>,
}

/// A version line: `NCCL version 2.27.7+cuda12.4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionLine {
    /// As printed: `2.27.7+cuda12.4`, `2.22.3-HEAD:271856d`.
    pub version: String,
    /// The text after `+cuda`: `12.4`.
    pub cuda: Option<String>,
    /// The library that prints the version: NCCL or RCCL.
    pub library: Library,
    /// Processes that load it, each once, by host and number: those that print it, and where it stands without a name in an
    /// input of one host, those of that input.
    pub processes: Vec<(String, u64)>,
    /// The first line.
    pub source: SourceLine,
}

/// An environment variable that NCCL says it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSetting {
    /// `NCCL_IB_HCA`.
    pub name: String,
    /// The value, without NCCL's closing full stop.
    pub value: String,
    /// Where the value comes from: NCCL's log or a launch command.
    pub origin: EnvOrigin,
    /// The first line that says it.
    pub source: SourceLine,
    /// The last line that a command line's setting holds at; to the end of its input where none is named.
    pub until: Option<Place>,
    /// Hosts that say it, each once, in order of appearance.
    pub hosts: Vec<String>,
}

impl EnvSetting {
    /// Whether a run that begins at a place has it, as far as the setting tells.
    fn holds_at(&self, place: Place) -> bool {
        self.source.place <= place && self.until.is_none_or(|until| place <= until)
    }
}

/// Where a setting was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvOrigin {
    /// `NCCL_X set by environment to Y` or `NCCL_X set to Y`.
    NcclLog,
    /// A launch command (`-x NCCL_X=Y`, `export NCCL_X=Y`) printed in the input.
    CommandLine,
}

/// A network that NCCL initialised or listed: `NET/IB : Using [0]mlx5_0:1/RoCE …`, `Using network Socket`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLine {
    /// `IB`, `Socket`, `OFI`, `Plugin`, `Bootstrap` …
    pub network: String,
    /// What the line says about the network.
    pub statement: NetworkStatement,
    /// Host that said it, where known.
    pub host: Option<String>,
    /// The first line that says it on that host.
    pub source: SourceLine,
}

impl NetworkLine {
    /// The devices or interfaces that it lists.
    pub fn listed(&self) -> &[crate::Nic] {
        if let NetworkStatement::Using(nics) = &self.statement { nics } else { &[] }
    }
}

/// What a network line states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkStatement {
    /// Devices or interfaces are listed (see [`crate::Nic`]).
    Using(Vec<crate::Nic>),
    /// `No device found`.
    NoDevice,
    /// `Using network X`, `Assigned NET plugin X to comm`.
    Chosen,
    /// Anything else, as printed after the colon.
    Note(String),
}

/// A WARN line, once per speaker's device, site and wording.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// The first line with it.
    pub source: SourceLine,
    /// Who said it, where the prefix was whole.
    pub who: Option<LogPrefix>,
    /// `transport/net_ib.cc:839`, or a function and line in plugins.
    pub site: Option<String>,
    /// The message after `NCCL WARN`.
    pub message: String,
    /// How many lines said the same but for numbers.
    pub count: u64,
}

/// A step of NCCL's error return: `NCCL INFO transport/net.cc:783 -> 2`.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorStep {
    /// The first line with it.
    pub source: SourceLine,
    /// Who said it.
    pub who: Option<LogPrefix>,
    /// `transport/net.cc:783`.
    pub site: String,
    /// `ncclResult_t`: 1 unhandled CUDA error, 2 system error, 3 internal error, 4 invalid argument, 5 invalid usage,
    /// 6 remote error, 7 in progress (`src/nccl.h.in`).
    pub result: u32,
    /// How many lines said the same.
    pub count: u64,
}

/// An algorithm and protocol that NCCL chose for a size (subsystem TUNING).
#[derive(Debug, Clone, PartialEq)]
pub struct TuningChoice {
    /// `AllReduce`; absent up to NCCL 2.22.
    pub collective: Option<crate::Collective>,
    /// Message size.
    pub bytes: crate::Bytes,
    /// `TREE`, `RING`, `COLLNET_DIRECT`, `COLLNET_CHAIN`, `NVLS`, `NVLS_TREE`, `PAT`.
    pub algorithm: String,
    /// `LL`, `LL128`, `SIMPLE`.
    pub protocol: String,
    /// Predicted time in µs, where printed.
    pub time_us: Option<f64>,
    /// The first line.
    pub place: Place,
    /// How many lines chose the same.
    pub count: u64,
}

/// A graph that NCCL's search found: `Pattern 4, crossNic 0, nChannels 8, bw 24.000000/24.000000, type NVL/PIX`.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphPattern {
    /// 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct (`src/graph/graph.h`).
    pub pattern: i32,
    /// Whether a ring may enter and leave a node by different NICs.
    pub cross_nic: i32,
    /// Number of channels that the search found.
    pub channels: u32,
    /// GB/s per channel within a node.
    pub bw_intra: Option<f64>,
    /// GB/s per channel between nodes.
    pub bw_inter: Option<f64>,
    /// Worst path within a node: `NVL`, `SYS`.
    pub type_intra: Option<String>,
    /// Worst path between GPU and NIC.
    pub type_inter: Option<String>,
    /// The line.
    pub source: SourceLine,
}

/// Everything NCCL said that belongs to no single communicator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NcclLog {
    /// Versions in order of appearance, each once.
    pub versions: Vec<VersionLine>,
    /// Settings in order of appearance, each name and value once.
    pub env: Vec<EnvSetting>,
    /// Networks in order of appearance.
    pub networks: Vec<NetworkLine>,
    /// WARN lines, grouped.
    pub warnings: Vec<Warning>,
    /// Number of WARN lines.
    pub warn_lines: u64,
    /// Error steps, grouped.
    pub error_steps: Vec<ErrorStep>,
    /// Tuning choices, grouped.
    pub tuning: Vec<TuningChoice>,
    /// Graph search results, each once.
    pub patterns: Vec<GraphPattern>,
    /// Statements about GPUDirect RDMA and DMA-BUF: `GPU Direct RDMA Enabled for HCA 0 'mlx5_0'`, each wording once.
    pub gpu_direct: Vec<SourceLine>,
    /// Lines of NCCL's log.
    pub lines: u64,
    /// Lines of NCCL's log that no reader knows.
    pub unknown_lines: u64,
}

impl NcclLog {
    /// The library that logged: RCCL when a version line says so, or the place of a warning, in sources that hipify wrote.
    pub fn library(&self) -> Library {
        let hipified = || self.warnings.iter().any(|w| w.site.as_deref().is_some_and(|site| site.contains("/hipify/")));
        let unsaid = || if hipified() { Library::Rccl } else { Library::Nccl };
        self.versions.first().map_or_else(unsaid, |v| v.library)
    }

    /// Whether a run that begins at a place of an input has a setting. NCCL names a variable wherever it finds it, once; where the
    /// command that sets it stands in the same input, that tells for which runs.
    pub fn holds(&self, setting: &EnvSetting, place: Place) -> bool {
        let alike = |other: &&EnvSetting| other.name == setting.name && other.value == setting.value;
        let by_command = |other: &&EnvSetting| {
            other.origin == EnvOrigin::CommandLine && other.source.place.input == place.input && alike(other)
        };
        let mut commands = self.env.iter().filter(by_command).peekable();
        setting.source.place.input == place.input
            && match setting.origin {
                EnvOrigin::CommandLine => setting.holds_at(place),
                EnvOrigin::NcclLog => commands.peek().is_none() || commands.any(|command| command.holds_at(place)),
            }
    }

    /// The value of a variable, the log's word before a command line's.
    pub fn env_value(&self, name: &str) -> Option<&EnvSetting> {
        let of = |origin| self.env.iter().find(move |e| e.name == name && e.origin == origin);
        of(EnvOrigin::NcclLog).or_else(|| of(EnvOrigin::CommandLine))
    }
}
