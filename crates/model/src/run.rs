//! Everything that was read: the input of every rule and every report.

use crate::cluster::Node;
use crate::communicator::Communicator;
use crate::diagnostics::DiagLine;
use crate::finding::SavedFinding;
use crate::host::HostFact;
use crate::inspector::InspectorRun;
use crate::link::LinkRun;
use crate::nccl::NcclLog;
use crate::place::{Place, SourceLine};
use crate::ras::RasReport;
use crate::rdma::{PerfTest, RdmaCheckItem, RdmaSample};
use crate::statement::Statement;
use crate::table::BenchTable;
use crate::topology::{SystemDump, TopoMatrix, XmlGraphs, XmlTopology};
use crate::torch::{FlightDump, ProcessGroup, TorchStatement};
use std::collections::BTreeMap;
use std::fmt;

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
    /// Facts about hosts that commands of the system tell.
    pub host_facts: Vec<HostFact>,
    /// What programs and launchers said about failing or finishing.
    pub remarks: Vec<Remark>,
    /// Lines that no reader makes a fact of, a few of each wording, with who says them. Signatures look at them.
    pub statements: Vec<Statement>,
    /// Parts that could not be read, with the reason.
    pub problems: Vec<Problem>,
    /// Texts of lines that stand for many: ring orders and the first edge of each transport. See [`Run::line`].
    pub kept_lines: BTreeMap<Place, Box<str>>,
}

/// One input.
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

/// A format that an input may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // each is named after its format
pub enum InputKind {
    NcclTests,
    NcclTestsJson,
    NcclLog,
    TopoMatrix,
    TopoXml,
    GraphXml,
    Perftest,
    RdmaCheck,
    RdmaMonitor,
    NcclRas,
    NcclDiag,
    NcclInspector,
    TorchWatchdog,
    FlightRecorder,
    HostFacts,
    Busbw,
}

impl InputKind {
    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            InputKind::NcclTests => "nccl-tests",
            InputKind::NcclTestsJson => "nccl-tests-json",
            InputKind::NcclLog => "nccl-log",
            InputKind::TopoMatrix => "nvidia-smi-topo",
            InputKind::TopoXml => "nccl-topo-xml",
            InputKind::GraphXml => "nccl-graph-xml",
            InputKind::Perftest => "perftest",
            InputKind::RdmaCheck => "rdma-check",
            InputKind::RdmaMonitor => "rdma-monitor",
            InputKind::NcclRas => "nccl-ras",
            InputKind::NcclDiag => "nccl-diag",
            InputKind::NcclInspector => "nccl-inspector",
            InputKind::TorchWatchdog => "torch-watchdog",
            InputKind::FlightRecorder => "torch-flight-recorder",
            InputKind::HostFacts => "host-facts",
            InputKind::Busbw => "busbw",
        }
    }
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A line of a program or launcher that tells how the run went, once per wording.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    /// What it means.
    pub kind: RemarkKind,
    /// The first such line.
    pub source: SourceLine,
    /// How many lines said the same but for numbers.
    pub count: u64,
}

/// What a remark means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// The program reports an NCCL or CUDA error that it does not survive.
    CollectiveError,
    /// A collective timed out (PyTorch's watchdog, a barrier).
    CollectiveTimeout,
    /// A process died of a signal or left with an error.
    ProcessDied,
    /// The launcher could not start or keep the ranks.
    LauncherError,
    /// The program says that it finished well.
    Finished,
    /// Anything else that speaks of an error; no verdict follows from it alone.
    Trouble,
}

/// A part of an input that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
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

    /// Whether any reader recognised anything.
    pub fn is_empty(&self) -> bool {
        self.inputs.iter().all(|i| i.kinds.is_empty()) && self.remarks.iter().all(|r| r.kind == RemarkKind::Trouble)
    }
}
