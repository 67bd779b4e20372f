//! The document as serde sees it: views that borrow from the run and are made when they are written.

use super::finding::{AdviceView, FindingView, VariableView};
use super::peers::PeerGroupView;
use super::{SCHEMA, evidence};
use crate::words;
use busbw_model::{
    BenchRow, BenchTable, Channel, Communicator, Diagnosis, EnvOrigin, GdrUse, Gpu, Input, Measure, Nic, Node, Place,
    Run, SourceLine, Transport, TransportKind, TreeLinks,
};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Trees are written for communicators of at most this many ranks. A tree says the same once per rank: 16,384 ranks with
/// 32 channels would be half a million objects.
const MAX_TREE_RANKS: u32 = 64;

/// A list whose items are made one at a time, when they are written.
struct List<F>(F);

impl<F, I> Serialize for List<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The whole document.
pub(super) struct Explain<'a> {
    run: &'a Run,
    diagnosis: &'a Diagnosis,
}

impl<'a> Explain<'a> {
    pub(super) fn new(run: &'a Run, diagnosis: &'a Diagnosis) -> Self {
        Explain { run, diagnosis }
    }
}

impl Serialize for Explain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (run, diagnosis) = (self.run, self.diagnosis);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", SCHEMA)?;
        map.serialize_entry("inputs", &List(|| run.inputs.iter().map(InputView::new)))?;
        map.serialize_entry("verdict", &diagnosis.verdict)?;
        map.serialize_entry("summary", &diagnosis.summary)?;
        map.serialize_entry("judged", &diagnosis.judged)?;
        map.serialize_entry("findings", &List(|| diagnosis.findings.iter().map(|f| FindingView::new(run, f))))?;
        // A header that no row followed is no table: what stopped the run is a finding.
        let tables = || run.tables.iter().enumerate().filter(|(_, t)| !t.rows.is_empty() || t.finished);
        let table = |(index, t)| TableView::new(run, t, diagnosis.expected_table(index));
        map.serialize_entry("tables", &List(|| tables().map(table)))?;
        map.serialize_entry("nodes", &List(|| run.nodes.iter().map(NodeView::new)))?;
        map.serialize_entry("nccl", &NcclView::new(run))?;
        map.serialize_entry("environment", &Environment { run, origin: EnvOrigin::NcclLog })?;
        map.serialize_entry("launch_environment", &Environment { run, origin: EnvOrigin::CommandLine })?;
        map.serialize_entry("variables", &List(|| diagnosis.variables.iter().map(|v| VariableView::new(run, v))))?;
        map.serialize_entry("advice", &List(|| diagnosis.advice.iter().map(AdviceView::new)))?;
        map.serialize_entry("warn_lines", &run.nccl.warn_lines)?;
        map.serialize_entry("communicators", &List(|| run.communicators.iter().map(CommunicatorView)))?;
        if let Some(evidence) = evidence::of(run) {
            map.serialize_entry("evidence", &evidence)?;
        }
        if !diagnosis.peers.is_empty() {
            map.serialize_entry("peers", &List(|| diagnosis.peers.iter().map(|p| PeerGroupView::new(run, p))))?;
        }
        map.serialize_entry("expected", &diagnosis.expected.as_ref().map(ExpectedView::new))?;
        map.serialize_entry("problems", &List(|| run.problems.iter().map(|p| LineView::new(run, p.place, &p.text))))?;
        map.end()
    }
}

#[derive(Serialize)]
struct InputView<'a> {
    path: &'a str,
    kind: &'a str,
    kinds: Vec<&'a str>,
    lines: u64,
    bytes: u64,
}

impl<'a> InputView<'a> {
    fn new(input: &'a Input) -> Self {
        let kinds: Vec<&str> = input.kinds.iter().map(|kind| kind.name()).collect();
        let kind = kinds.first().copied().unwrap_or("unknown");
        InputView { path: &input.path, kind, kinds, lines: input.lines, bytes: input.bytes }
    }
}

/// A line of an input.
#[derive(Serialize)]
pub(super) struct LineView<'a> {
    path: &'a str,
    line: u64,
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

#[derive(Serialize)]
struct ExpectedView<'a> {
    busbw_gbs: f64,
    size_bytes: Option<u64>,
    bottleneck: &'a str,
    why: &'a str,
}

impl<'a> ExpectedView<'a> {
    fn new(expected: &'a busbw_model::Expected) -> Self {
        ExpectedView {
            busbw_gbs: expected.busbw.0,
            size_bytes: expected.at.map(|size| size.0),
            bottleneck: &expected.bottleneck,
            why: &expected.why,
        }
    }
}

#[derive(Serialize)]
struct TableView<'a> {
    collective: Option<busbw_model::Collective>,
    nranks: Option<u32>,
    input: &'a str,
    line: u64,
    rows: Vec<RowView>,
    avg_busbw_gbs: Option<f64>,
    peak_busbw_gbs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Vec<ExpectedRowView<'a>>>,
}

#[derive(Serialize)]
struct ExpectedRowView<'a> {
    size_bytes: u64,
    busbw_gbs: f64,
    limit_busbw_gbs: f64,
    bottleneck: &'a str,
}

impl<'a> ExpectedRowView<'a> {
    fn new(row: &'a busbw_model::ExpectedRow) -> Self {
        ExpectedRowView {
            size_bytes: row.size.0,
            busbw_gbs: row.busbw.0,
            limit_busbw_gbs: row.limit.0,
            bottleneck: &row.bottleneck,
        }
    }
}

impl<'a> TableView<'a> {
    fn new(run: &'a Run, table: &'a BenchTable, expected: Option<&'a busbw_model::ExpectedTable>) -> Self {
        TableView {
            collective: table.collective,
            nranks: table.nranks,
            input: run.path(table.place),
            line: table.place.line,
            rows: table.rows.iter().map(RowView::new).collect(),
            avg_busbw_gbs: table.avg_busbw().map(|busbw| busbw.0),
            peak_busbw_gbs: table.peak().map(|(_, busbw)| busbw.0),
            expected: expected.map(|expected| expected.rows.iter().map(ExpectedRowView::new).collect()),
        }
    }
}

#[derive(Serialize)]
struct RowView {
    size_bytes: u64,
    count: Option<u64>,
    datatype: Option<busbw_model::Datatype>,
    redop: Option<busbw_model::RedOp>,
    root: Option<i64>,
    out_of_place: Option<MeasureView>,
    in_place: Option<MeasureView>,
}

impl RowView {
    fn new(row: &BenchRow) -> Self {
        RowView {
            size_bytes: row.size.0,
            count: row.count,
            datatype: row.datatype,
            redop: row.redop,
            root: row.root,
            out_of_place: row.out_of_place.as_ref().map(MeasureView::new),
            in_place: row.in_place.as_ref().map(MeasureView::new),
        }
    }
}

#[derive(Serialize)]
struct MeasureView {
    time_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    wrong: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iterations: Option<IterationsView>,
}

#[derive(Serialize)]
struct IterationsView {
    min_us: f64,
    max_us: f64,
    p99_us: f64,
    cv_pct: f64,
}

impl MeasureView {
    fn new(measure: &Measure) -> Self {
        MeasureView {
            time_us: measure.time.0,
            algbw_gbs: measure.algbw.0,
            busbw_gbs: measure.busbw.0,
            wrong: measure.check.wrong(),
            iterations: measure.iterations.map(|stats| IterationsView {
                min_us: stats.min.0,
                max_us: stats.max.0,
                p99_us: stats.p99.0,
                cv_pct: stats.cv_pct,
            }),
        }
    }
}

#[derive(Serialize)]
struct NodeView<'a> {
    host: &'a str,
    gpus: Vec<GpuView<'a>>,
    nics: Vec<NicView<'a>>,
}

#[derive(Serialize)]
struct GpuView<'a> {
    rank: Option<u32>,
    device: Option<u32>,
    bus_id: Option<&'a str>,
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct NicView<'a> {
    index: Option<u32>,
    name: &'a str,
    port: Option<u32>,
    link: Option<&'a str>,
    address: Option<&'a str>,
}

impl<'a> NodeView<'a> {
    fn new(node: &'a Node) -> Self {
        let gpu = |gpu: &'a Gpu| GpuView {
            rank: gpu.rank,
            device: gpu.device,
            bus_id: gpu.bus_id.as_deref(),
            name: gpu.name.as_deref(),
        };
        let nic = |nic: &'a Nic| NicView {
            index: nic.index,
            name: &nic.name,
            port: nic.port,
            link: nic.link.as_deref(),
            address: nic.address.as_deref(),
        };
        NodeView {
            host: &node.host,
            gpus: node.gpus.iter().map(gpu).collect(),
            nics: node.nics.iter().map(nic).collect(),
        }
    }
}

#[derive(Serialize)]
struct NcclView<'a> {
    version: Option<&'a str>,
    cuda: Option<&'a str>,
    library: &'static str,
}

impl<'a> NcclView<'a> {
    /// `None` when neither a line of NCCL's log nor a version was read.
    fn new(run: &'a Run) -> Option<Self> {
        let first = run.nccl.versions.first();
        let from_tables = || run.tables.iter().find_map(|table| table.settings.nccl_version.as_deref());
        let version = first.map(|line| line.version.as_str()).or_else(from_tables);
        let read = version.is_some() || run.nccl.lines > 0;
        let cuda = first.and_then(|line| line.cuda.as_deref());
        read.then(|| NcclView { version, cuda, library: run.nccl.library().name() })
    }
}

/// The first value of every variable from one origin, in order of appearance.
struct Environment<'a> {
    run: &'a Run,
    origin: EnvOrigin,
}

impl Serialize for Environment<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(words::settings(self.run, self.origin).map(|setting| (&setting.name, &setting.value)))
    }
}

struct CommunicatorView<'a>(&'a Communicator);

impl Serialize for CommunicatorView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let comm = self.0;
        let ranks = comm.nranks.unwrap_or(u32::try_from(comm.ranks.len()).unwrap_or(u32::MAX));
        let with_trees = ranks <= MAX_TREE_RANKS;
        let channel = move |(id, channel): (&u16, _)| ChannelView::new(comm, *id, channel, with_trees);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &comm.id)?;
        map.serialize_entry("nranks", &comm.nranks)?;
        map.serialize_entry("nnodes", &comm.nnodes)?;
        map.serialize_entry("coll_channels", &comm.coll_channels)?;
        map.serialize_entry("transports", &comm.transport_names())?;
        map.serialize_entry("transports_printed", &distinct(comm, printed_network))?;
        map.serialize_entry("p2p_kinds", &distinct(comm, p2p_kind))?;
        map.serialize_entry("gdr", &comm.gdr().map(Gdr::from))?;
        map.serialize_entry("channels", &List(|| comm.channels.iter().map(channel)))?;
        map.serialize_entry("crossings", &List(|| comm.crossings().into_iter().map(CrossingView::from)))?;
        map.end()
    }
}

/// What a reading of the transports gives, each once, sorted.
fn distinct(comm: &Communicator, read: fn(&Transport) -> Option<String>) -> Vec<String> {
    let mut found: Vec<String> = comm.transports.iter().filter_map(read).collect();
    found.sort();
    found.dedup();
    found
}

fn printed_network(transport: &Transport) -> Option<String> {
    match &transport.kind {
        TransportKind::Net(name) => Some(format!("NET/{name}")),
        _ => None,
    }
}

fn p2p_kind(transport: &Transport) -> Option<String> {
    match &transport.kind {
        TransportKind::P2p(how) => Some(how.clone()),
        _ => None,
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Gdr {
    Same(bool),
    Differs(&'static str),
}

impl From<GdrUse> for Gdr {
    fn from(gdr: GdrUse) -> Self {
        match gdr {
            GdrUse::All => Gdr::Same(true),
            GdrUse::None => Gdr::Same(false),
            GdrUse::Mixed => Gdr::Differs("mixed"),
        }
    }
}

#[derive(Serialize)]
struct ChannelView<'a> {
    id: u16,
    ring: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_complete: Option<bool>,
    tree: Option<Vec<TreeView>>,
}

#[derive(Serialize)]
struct TreeView {
    rank: u32,
    up: Option<u32>,
    down: Vec<u32>,
}

impl<'a> ChannelView<'a> {
    fn new(comm: &Communicator, id: u16, channel: &'a Channel, with_tree: bool) -> Self {
        let link =
            |(rank, links): (u32, TreeLinks)| TreeView { rank, up: links.parent(), down: links.children().collect() };
        let tree: Vec<TreeView> = comm.tree(id).filter(|_| with_tree).map(link).collect();
        ChannelView {
            id,
            ring: channel.ring.as_ref().map(|ring| ring.ranks.as_slice()),
            ring_complete: channel.ring.as_ref().filter(|ring| !ring.complete).map(|_| false),
            tree: (!tree.is_empty()).then_some(tree),
        }
    }
}

#[derive(Serialize)]
struct CrossingView {
    from: u32,
    to: u32,
    channels: Vec<u16>,
}

impl From<busbw_model::Crossing> for CrossingView {
    fn from(crossing: busbw_model::Crossing) -> Self {
        CrossingView { from: crossing.from, to: crossing.to, channels: crossing.channels }
    }
}
