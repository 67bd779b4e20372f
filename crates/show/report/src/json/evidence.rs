//! The part of the document that holds what tools beside NCCL's log and nccl-tests tell: RAS, NCCL's diagnostics, the
//! Inspector, PyTorch, commands of the system.

use busbw_model::{
    DiagLine, DiagTag, FactLine, InspectorRun, NodeFacts, Place, ProcessGroup, RasCommunicator, RasProcess, RasReport,
    Run, SourceLine,
};
use schemars::JsonSchema;
use serde::Serialize;

/// What tools beside NCCL's log and nccl-tests tell.
#[derive(Serialize, JsonSchema)]
pub(super) struct OtherEvidence<'a> {
    /// Answers of NCCL's RAS.
    ras: Vec<RasView<'a>>,
    /// Results of NCCL's diagnostics.
    diagnostics: Vec<DiagView<'a>>,
    /// Measurements of the NCCL Inspector.
    inspector: &'a [InspectorRun],
    /// PyTorch's process groups, the one with most witnesses first.
    process_groups: &'a [ProcessGroup],
    /// Facts about hosts.
    host_facts: Vec<FactView<'a>>,
}

impl<'a> OtherEvidence<'a> {
    /// Everything there is; `None` for a run without such evidence.
    pub(super) fn of(run: &'a Run) -> Option<Self> {
        let told = run.machines.iter().flat_map(|machine| machine.lines.iter().map(move |told| (machine, told)));
        let evidence = OtherEvidence {
            ras: run.ras_reports.iter().map(|report| RasView::new(run, report)).collect(),
            diagnostics: run.diagnostics.iter().map(|line| DiagView::new(run, line)).collect(),
            inspector: &run.inspector_runs,
            process_groups: &run.process_groups,
            host_facts: told.map(|(machine, told)| FactView::new(run, machine, told)).collect(),
        };
        let is_empty = evidence.ras.is_empty()
            && evidence.diagnostics.is_empty()
            && evidence.inspector.is_empty()
            && evidence.process_groups.is_empty()
            && evidence.host_facts.is_empty();
        (!is_empty).then_some(evidence)
    }
}

/// One answer of NCCL's RAS.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ras")]
struct RasView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    /// NCCL's version.
    nccl_version: Option<&'a str>,
    /// RAS reports nothing. It sees processes and counts, not whether an operation makes progress.
    clean: bool,
    /// Timeouts while RAS collected its data.
    timeouts: u32,
    /// Processes that did not answer.
    lost_processes: &'a [RasProcess],
    /// Communicators: all from JSON, those with something to say from text.
    communicators: &'a [RasCommunicator],
}

impl<'a> RasView<'a> {
    fn new(run: &'a Run, report: &'a RasReport) -> Self {
        RasView {
            line: LineView::of(run, &report.source),
            nccl_version: report.nccl_version.as_deref(),
            clean: report.is_clean(),
            timeouts: report.timeouts,
            lost_processes: &report.lost_processes,
            communicators: &report.communicators,
        }
    }
}

/// A result of NCCL's built-in diagnostics (NCCL DIAG).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NcclDiagnostic")]
struct DiagView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    /// The check: p2p, net bw, ECC ...
    check: &'a str,
    /// It reports nothing to look at.
    ok: bool,
    /// How many lines said the same.
    count: u64,
}

impl<'a> DiagView<'a> {
    fn new(run: &'a Run, diag: &'a DiagLine) -> Self {
        let ok = diag.tag != DiagTag::Info;
        DiagView { line: LineView::of(run, &diag.source), check: &diag.check, ok, count: diag.count }
    }
}

/// A fact about a host that a command of the system tells.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HostFact")]
struct FactView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    /// The host, where it is named.
    host: Option<&'a str>,
    /// What it is about; empty for the host itself.
    device: &'a str,
    /// The command whose output it is.
    command: &'static str,
}

impl<'a> FactView<'a> {
    fn new(run: &'a Run, machine: &'a NodeFacts, told: &'a FactLine) -> Self {
        let host = Some(machine.host.as_str()).filter(|host| !host.is_empty());
        FactView { line: LineView::of(run, &told.source), host, device: &told.device, command: told.command }
    }
}

/// A line of an input.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Line")]
pub(super) struct LineView<'a> {
    /// Path of the input.
    path: &'a str,
    /// Line, from 1; 0 when the whole input is meant.
    line: u64,
    /// The line as it stands in the input, cut to 400 bytes; it may hold control characters.
    text: &'a str,
}

impl<'a> LineView<'a> {
    pub(super) fn new(run: &'a Run, place: Place, text: &'a str) -> Self {
        LineView { path: run.path(place), line: place.line, text }
    }

    pub(super) fn of(run: &'a Run, source: &'a SourceLine) -> Self {
        LineView::new(run, source.place, &source.text)
    }
}
