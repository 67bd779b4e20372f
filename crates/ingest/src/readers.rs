//! The readers of line-based formats, as one: every line that may belong to a format is offered to each.

use crate::nccl_system_dump::DumpReader;
use crate::nccl_tests::TableReader;
use crate::nccl_topo_xml::XmlReader;
use crate::nvidia_smi_topo::TopoReader;
use crate::perftest::PerftestReader;
use crate::rdma_check::CheckReader;
use crate::rdma_monitor::MonitorReader;
use crate::text::TextLine;
use busbw_model::InputKind;
use rustc_hash::FxHashMap;

/// Streams of NCCL's own machine dumps begin with this; the speaker follows.
pub(crate) const DUMP_STREAM: &str = "system-dump ";

/// Whether a line may belong to any line-based format. Runs on every line of an input, so it looks at little.
pub(crate) fn may_belong(text: &[u8]) -> bool {
    TableReader::may_belong(text)
        || TopoReader::may_belong(text)
        || XmlReader::may_belong(text)
        || PerftestReader::may_belong(text)
        || CheckReader::may_belong(text)
        || MonitorReader::may_belong(text)
}

/// The readers of one input.
#[derive(Default)]
pub(crate) struct Readers {
    pub tables: TableReader,
    pub matrices: TopoReader,
    pub xml: XmlReader,
    pub perftest: PerftestReader,
    pub checks: CheckReader,
    pub monitor: MonitorReader,
    pub dumps: DumpReader,
    /// Lines claimed, by format.
    pub claimed: FxHashMap<InputKind, u64>,
}

impl Readers {
    /// Offers a line to the readers until one claims it.
    pub fn feed(&mut self, line: &TextLine) {
        if line.stream.starts_with(DUMP_STREAM) {
            self.dumps.feed(line);
            return;
        }
        let kind = if self.xml.feed(line) {
            InputKind::TopoXml
        } else if self.matrices.feed(line) {
            InputKind::TopoMatrix
        } else if self.checks.feed(line) {
            InputKind::RdmaCheck
        } else if self.monitor.feed(line) {
            InputKind::RdmaMonitor
        } else if self.perftest.feed(line) {
            InputKind::Perftest
        } else if self.tables.feed(line) {
            InputKind::NcclTests
        } else {
            return;
        };
        *self.claimed.entry(kind).or_default() += 1;
    }
}
