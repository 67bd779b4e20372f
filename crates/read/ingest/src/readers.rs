//! The readers of line-based formats, as one: every line that may belong to a format is offered to each.

use crate::ends::{EndLine, EndReader, ends_in};
use crate::facts::Offered;
use crate::host::HostReader;
use crate::inspector;
use crate::inspector::Sample;
use crate::json_objects::{JsonObject, JsonReader, Lines};
use crate::nccl_diag::DiagReader;
use crate::nccl_system_dump::DumpReader;
use crate::nccl_tests::TableReader;
use crate::nccl_topo_xml::XmlReader;
use crate::nvbandwidth::CopyReader;
use crate::nvidia_smi_topo::TopoReader;
use crate::other_tables::OtherTables;
use crate::perftest::PerftestReader;
use crate::ras::{self, RasReader};
use crate::rdma_check::CheckReader;
use crate::rdma_monitor::MonitorReader;
use crate::sockets::SocketReader;
use crate::stacks::StackReader;
use crate::text::TextLine;
use crate::torch::{self, Recording, TraceReader, WatchdogReader};
use crate::versions::VersionReader;
use busbw_model::node::{FACTS_SCHEMA, FactsFile, Hello};
use busbw_model::{InputKind, NodeFacts, Place, RasReport, SourceLine};
use rustc_hash::FxHashMap;

/// Streams of NCCL's own machine dumps begin with this; the speaker follows.
pub(crate) const DUMP_STREAM: &str = "system-dump ";

/// Only documents have longer lines. The readers take lines apart into words, which need many times their room.
const LONGEST_LINE: usize = 1 << 20;

/// Whether a line may belong to any line-based format but JSON. Runs on every line of an input, so it looks at little.
pub(crate) fn may_belong(text: &[u8]) -> bool {
    TableReader::may_belong(text)
        || TopoReader::may_belong(text)
        || XmlReader::may_belong(text)
        || PerftestReader::may_belong(text)
        || OtherTables::may_belong(text)
        || CopyReader::may_belong(text)
        || CheckReader::may_belong(text)
        || MonitorReader::may_belong(text)
        || StackReader::may_belong(text)
        || SocketReader::may_belong(text)
}

/// The readers of one input.
#[derive(Default)]
pub(crate) struct Readers {
    pub tables: TableReader,
    pub matrices: TopoReader,
    pub xml: XmlReader,
    pub perftest: PerftestReader,
    pub other_tables: OtherTables,
    pub copies: CopyReader,
    pub checks: CheckReader,
    pub monitor: MonitorReader,
    pub dumps: DumpReader,
    pub ras: RasReader,
    pub diag: DiagReader,
    pub torch: WatchdogReader,
    pub host: HostReader,
    pub ends: EndReader,
    pub stacks: StackReader,
    pub sockets: SocketReader,
    pub versions: VersionReader,
    pub traces: TraceReader,
    json: JsonReader,
    pub ras_json: Vec<RasReport>,
    pub recordings: Vec<Recording>,
    pub samples: Vec<(Sample, Place, Box<str>)>,
    pub saved_facts: Vec<NodeFacts>,
    pub hellos: Vec<(Place, Hello)>,
    /// Lines claimed, by format.
    pub claimed: FxHashMap<InputKind, u64>,
}

impl Readers {
    /// Readers of a further input, which may tell more of machines that are known.
    pub fn knowing(machines: Vec<NodeFacts>) -> Self {
        Readers { host: HostReader::knowing(machines), ..Readers::default() }
    }

    /// Offers a line to readers until one claims it.
    pub fn feed(&mut self, line: &TextLine, offered: Offered) {
        if line.stream.starts_with(DUMP_STREAM) {
            self.dumps.feed(line);
            return;
        }
        if let Some(object) = self.json.feed(line) {
            self.object(&object);
            return;
        }
        if offered == Offered::Json || JsonReader::is_punctuation(line.text) {
            return;
        }
        let kind = if self.xml.feed(line) {
            InputKind::TopoXml
        } else if line.text.len() > LONGEST_LINE {
            return;
        } else if HostReader::goes_first(line.text) && self.host.feed(line) {
            InputKind::HostFacts
        } else if self.matrices.feed(line) {
            InputKind::TopoMatrix
        } else if self.checks.feed(line) {
            InputKind::RdmaCheck
        } else if self.monitor.feed(line) {
            InputKind::RdmaMonitor
        } else if self.copies.feed(line) {
            InputKind::Nvbandwidth
        } else if self.perftest.feed(line) {
            InputKind::Perftest
        } else if self.tables.feed(line) || self.other_tables.feed(line) {
            InputKind::NcclTests
        } else if self.diag.feed(line) {
            InputKind::NcclDiag
        } else if self.traces.feed(line) {
            InputKind::FlightRecorder
        } else if offered == Offered::All && self.torch.feed(line) {
            InputKind::TorchWatchdog
        } else if self.ras.feed(line) {
            InputKind::NcclRas
        } else if self.host.feed(line) {
            InputKind::HostFacts
        } else if self.versions.feed(line) {
            return; // what a program tells of itself makes its output no tool's
        } else if self.stacks.feed(line) || self.sockets.feed(line) {
            InputKind::Stacks
        } else {
            return;
        };
        self.claim(kind, 1);
    }

    pub fn claim(&mut self, kind: InputKind, lines: u64) {
        *self.claimed.entry(kind).or_default() += lines;
    }

    /// Reads a JSON object that began and ended among the lines.
    fn object(&mut self, object: &JsonObject) {
        let lines = object.text.lines().count() as u64;
        if ras::looks_like_report(&object.value) {
            self.ras_json.push(ras::report(object));
            self.claim(InputKind::NcclRas, lines);
        } else if ras::looks_like_event(&object.value) {
            self.ras_json.push(ras::event(object));
            self.claim(InputKind::NcclRas, lines);
        } else if object.value["schema"] == FACTS_SCHEMA {
            if let Ok(file) = serde_json::from_str::<FactsFile>(&object.text) {
                let saved = |node| NodeFacts { saved: Some(object.place), ..node };
                self.saved_facts.extend(file.nodes.into_iter().map(saved));
                self.hellos.push((object.place, file.hello));
                self.claim(InputKind::HostFacts, lines);
            }
        } else if let Some(recording) = torch::read_json(&object.text, object.source()) {
            self.recordings.push(recording);
            self.claim(InputKind::FlightRecorder, lines);
        } else if let Some(sample) = inspector::read(object.text.as_bytes()) {
            let text = object.text.split_whitespace().collect::<Vec<_>>().join(" ");
            self.samples.push((sample, object.place, SourceLine::new(object.place, &text).text));
            self.claim(InputKind::NcclInspector, lines);
        } else {
            self.ends_of(object);
        }
    }

    /// What a list of a cluster's pods, jobs or containers tells of their ends.
    fn ends_of(&mut self, object: &JsonObject) {
        let mut lines = Lines::of(object);
        for (end, state) in ends_in(&object.value) {
            let name = end.command.as_deref().map(|name| format!("\"{name}\""));
            let place = name.map_or(object.place, |name| lines.next(&name).place);
            self.ends.feed("", EndLine::Ended(Box::new(end)), SourceLine::new(place, &state));
        }
    }
}
