//! Everything that was read: the input of every rule and every report.

use crate::cluster::Node;
use crate::communicator::Communicator;
use crate::copies::CopyTable;
use crate::diagnostics::DiagLine;
use crate::end::{RankEnd, RankOutput};
use crate::finding::SavedFinding;
use crate::inspector::InspectorRun;
use crate::known_fault::PrintedVersion;
use crate::link::LinkRun;
use crate::nccl::NcclLog;
use crate::node::{Hello, NodeFacts};
use crate::place::{Place, SourceLine};
use crate::ras::RasReport;
use crate::rdma::{PerfTest, RdmaCheckItem, RdmaSample};
use crate::stack::{Socket, Stack, StoppedProcess, UnendedLauncher};
use crate::statement::{Speaker, Statement};
use crate::table::BenchTable;
use crate::topology::{SystemDump, TopoMatrix, XmlGraphs, XmlTopology};
use crate::torch::{FlightDump, ProcessGroup, TorchStatement};
use crate::watch::Watched;
use std::collections::BTreeMap;

/// What a set of inputs says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// The inputs, in the order given.
    pub inputs: Vec<Input>,
    /// Nodes in order of appearance.
    pub nodes: Vec<Node>,
    /// Tables of nccl-tests.
    pub tables: Vec<BenchTable>,
    /// What NCCL said; lines 0 when no NCCL log was among the inputs.
    pub nccl: NcclLog,
    /// Communicators, the largest first, then in order of appearance.
    pub communicators: Vec<Communicator>,
    /// Topology matrices.
    pub topo_matrices: Vec<TopoMatrix>,
    /// Topology XMLs.
    pub topo_xmls: Vec<XmlTopology>,
    /// Graph XMLs.
    pub graph_xmls: Vec<XmlGraphs>,
    /// NCCL's own dumps of a machine.
    pub system_dumps: Vec<SystemDump>,
    /// Links that `busbw link` measured, and the input.
    pub link_runs: Vec<(SourceLine, LinkRun)>,
    /// What busbw found before, as its own JSON among the inputs tells.
    pub saved_findings: Vec<SavedFinding>,
    /// What `busbw watch` saw, and the input.
    pub watched: Vec<(Place, Watched)>,
    /// What nvbandwidth measured.
    pub copies: Vec<CopyTable>,
    /// perftest runs.
    pub perftests: Vec<PerfTest>,
    /// Results of RDMA checks.
    pub rdma_checks: Vec<RdmaCheckItem>,
    /// Samples of RDMA monitors.
    pub rdma_samples: Vec<RdmaSample>,
    /// Answers of NCCL's RAS.
    pub ras_reports: Vec<RasReport>,
    /// Results of NCCL's built-in diagnostics, each wording once.
    pub diagnostics: Vec<DiagLine>,
    /// What the NCCL Inspector measured, by communicator and operation, over all inputs.
    pub inspector_runs: Vec<InspectorRun>,
    /// What PyTorch's watchdogs say, in order.
    pub torch_statements: Vec<TorchStatement>,
    /// Dumps of PyTorch's flight recorder.
    pub flight_dumps: Vec<FlightDump>,
    /// PyTorch's process groups, put together from watchdogs and flight recorders of all ranks.
    pub process_groups: Vec<ProcessGroup>,
    /// What is known of the machines: saved facts, and what commands of the system tell.
    pub machines: Vec<NodeFacts>,
    /// How hosts answered when they were asked for their facts, and where the facts begin.
    pub hellos: Vec<(Place, Hello)>,
    /// How processes ended, in order.
    pub ends: Vec<RankEnd>,
    /// The output of ranks, each by its last line.
    pub outputs: Vec<RankOutput>,
    /// Stacks of threads.
    pub stacks: Vec<Stack>,
    /// Processes that are stopped.
    pub stopped: Vec<StoppedProcess>,
    /// Launchers whose ranks do not end.
    pub unended: Vec<UnendedLauncher>,
    /// Connections over TCP.
    pub sockets: Vec<Socket>,
    /// Versions that programs print of themselves and of others, each once.
    pub versions: Vec<PrintedVersion>,
    /// Lines that no reader makes a fact of, a few of each wording, with who says them. Signatures look at them.
    pub statements: Vec<Statement>,
    /// Where loops of the job's program went on last, in order: lines that repeat their words with at least two other numbers, three of each wording.
    pub steps: Vec<Place>,
    /// Parts that could not be read, with the reason.
    pub problems: Vec<Problem>,
    /// Texts of lines that stand for many: ring orders and the first edge of each transport. See [`Run::line`].
    pub kept_lines: BTreeMap<Place, Box<str>>,
}

/// A file or standard input that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// Path as given; `-` for standard input.
    pub path: String,
    /// What was found in it, most lines first; empty when nothing was recognised.
    pub kinds: Vec<InputKind>,
    /// Number of lines.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
}

named! {
    /// A format that an input may hold.
    #[allow(missing_docs)] // each is named after its format
    pub enum InputKind {
        NcclTests = "nccl-tests",
        NcclTestsJson = "nccl-tests-json",
        NcclLog = "nccl-log",
        TopoMatrix = "nvidia-smi-topo",
        TopoXml = "nccl-topo-xml",
        GraphXml = "nccl-graph-xml",
        Perftest = "perftest",
        Nvbandwidth = "nvbandwidth",
        RdmaCheck = "rdma-check",
        RdmaMonitor = "rdma-monitor",
        NcclRas = "nccl-ras",
        NcclDiag = "nccl-diag",
        NcclInspector = "nccl-inspector",
        TorchWatchdog = "torch-watchdog",
        FlightRecorder = "torch-flight-recorder",
        HostFacts = "host-facts",
        Stacks = "stacks",
        Busbw = "busbw",
    }
    /// The name in reports and JSON.
    name
}

impl InputKind {
    /// Whether a tool printed it that asks or measures machines, without NCCL.
    pub fn is_of_tool(self) -> bool {
        use InputKind::{Busbw, HostFacts, Nvbandwidth, Perftest, RdmaCheck, RdmaMonitor};
        matches!(self, Busbw | HostFacts | Nvbandwidth | Perftest | RdmaCheck | RdmaMonitor)
    }
}

/// A part of an input that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the problem is: input and line.
    pub place: Place,
    /// Why, and what would help.
    pub text: String,
}

impl Run {
    /// The path of an input; `?` for a place outside the inputs.
    pub fn path(&self, place: Place) -> &str {
        self.inputs.get(place.input as usize).map_or("?", |i| i.path.as_str())
    }

    /// A line that was kept as evidence.
    pub fn line(&self, place: Place) -> Option<SourceLine> {
        self.kept_lines.get(&place).map(|text| SourceLine { place, text: text.clone() })
    }

    /// Whether any reader recognised anything, or a program that is known speaks.
    pub fn is_empty(&self) -> bool {
        self.inputs.iter().all(|i| i.kinds.is_empty())
            && self.ends.is_empty()
            && self.nccl.versions.is_empty()
            && self.versions.is_empty()
            && self.statements.iter().all(|statement| statement.speaker == Speaker::Program)
    }
}
