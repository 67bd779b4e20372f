//! The answer of `busbw explain`: parts that borrow from the run and are made when they are written.

use super::evidence::{LineView, OtherEvidence};
use super::finding::{FindingView, VariableView};
use super::peers::PeerGroupView;
use crate::words;
use busbw_model::answer::Answer;
use busbw_model::{
    Advice, BenchRow, BenchTable, Channel, Collective, Communicator, Crossing, Culprit, Diagnosis, EnvOrigin, Expected,
    ExpectedRow, ExpectedTable, GdrUse, Input, InputKind, Judged, NcclVersion, Node, Run, Transport, TransportKind,
    TreeLinks, Verdict,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Trees are written for communicators of at most this many ranks. A tree says the same once per rank: 16,384 ranks with
/// 32 channels would be half a million objects.
const MAX_TREE_RANKS: u32 = 64;

type Items<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// A list whose items are made one at a time, when they are written.
struct List<'a, T>(Box<dyn Fn() -> Items<'a, T> + 'a>);

impl<'a, T> List<'a, T> {
    fn of<S>(of: &'a [S], item: impl Fn(&'a S) -> T + Copy + 'a) -> Self {
        List(Box::new(move || Box::new(of.iter().map(item))))
    }
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

impl<T: JsonSchema> JsonSchema for List<'_, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        <Vec<T>>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <Vec<T>>::json_schema(generator)
    }
}

/// What `busbw explain --format json` prints. Sizes are bytes; times are microseconds (_us); bandwidths are GB/s, 10^9 bytes
/// per second (_gbs). No number is rounded; a number that is not finite is null. Readers must accept fields that are not
/// described here: they may be added, as may finding codes, without a new schema name.
#[derive(Serialize, JsonSchema)]
#[schemars(transform = came_later)]
pub(super) struct Explain<'a> {
    /// The inputs, in the order given.
    inputs: List<'a, InputView<'a>>,
    /// The state of the run as a whole. healthy: speed or machines were judged and passed. no-errors: nothing is wrong, and there
    /// is no speed to judge. inconclusive: speed or end cannot be judged from what is given; the summary asks what would decide.
    verdict: Verdict,
    /// One sentence that says the verdict.
    summary: &'a str,
    /// What was judged, how, and how it came out. What is not listed was not judged.
    judged: &'a [Judged],
    /// What the rules conclude. Ordered: the first is the one to act on.
    findings: List<'a, FindingView<'a>>,
    /// The ranks for which the others wait, as the first finding has it; null where it accuses none.
    culprit: Option<&'a Culprit>,
    /// Tables of nccl-tests, in the order read.
    tables: List<'a, TableView<'a>>,
    /// Machines that ranks ran on, in order of appearance.
    nodes: &'a [Node],
    /// The library; null when neither a line of its log nor a version was read.
    nccl: Option<NcclVersion>,
    /// Environment variables that NCCL's log says it found: the first value of each.
    environment: Environment<'a>,
    /// Environment variables of launch commands that the inputs show (`-x NAME=value`, `export NAME=value`): the first value
    /// of each.
    launch_environment: Environment<'a>,
    /// Every variable that was seen, what it means and how it stands in this run, in order of appearance. A name stands here
    /// once for each of its values.
    variables: List<'a, VariableView<'a>>,
    /// What to run next where the inputs leave a question open.
    advice: &'a [Advice],
    /// Number of NCCL WARN lines.
    warn_lines: u64,
    /// Communicators, the largest first.
    communicators: List<'a, CommunicatorView<'a>>,
    /// What other tools show; absent when there is none of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<OtherEvidence<'a>>,
    /// Comparison of nodes and pairs of nodes that ran the same measurement; absent if fewer than four did.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<List<'a, PeerGroupView<'a>>>,
    /// What such a machine should reach; null where it cannot be said.
    expected: Option<&'a Expected>,
    /// Parts of the inputs that could not be read: the text says why, and what would help.
    problems: List<'a, LineView<'a>>,
}

/// Answers of before these members were written are valid.
fn came_later(schema: &mut Schema) {
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|member| !["variables", "advice"].iter().any(|later| member == later));
    }
}

impl Answer for Explain<'_> {
    const SCHEMA: &'static str = super::SCHEMA;
}

impl<'a> Explain<'a> {
    pub(super) fn new(run: &'a Run, diagnosis: &'a Diagnosis) -> Self {
        // A header that no row followed is no table: what stopped the run is a finding.
        let tables = move || run.tables.iter().enumerate().filter(|(_, t)| !t.rows.is_empty() || t.finished);
        let table = move |(index, t)| TableView::new(run, t, diagnosis.expected_table(index));
        let peers = List::of(&diagnosis.peers, |group| PeerGroupView::new(run, group));
        Explain {
            inputs: List::of(&run.inputs, InputView::new),
            verdict: diagnosis.verdict,
            summary: &diagnosis.summary,
            judged: &diagnosis.judged,
            findings: List::of(&diagnosis.findings, |finding| FindingView::new(run, finding)),
            culprit: diagnosis.culprit.as_ref(),
            tables: List(Box::new(move || Box::new(tables().map(table)))),
            nodes: &run.nodes,
            nccl: nccl(run),
            environment: Environment { run, origin: EnvOrigin::NcclLog },
            launch_environment: Environment { run, origin: EnvOrigin::CommandLine },
            variables: List::of(&diagnosis.variables, |variable| VariableView::new(run, variable)),
            advice: &diagnosis.advice,
            warn_lines: run.nccl.warn_lines,
            communicators: List::of(&run.communicators, CommunicatorView::new),
            evidence: OtherEvidence::of(run),
            peers: (!diagnosis.peers.is_empty()).then_some(peers),
            expected: diagnosis.expected.as_ref(),
            problems: List::of(&run.problems, |problem| LineView::new(run, problem.place, &problem.text)),
        }
    }
}

/// One input.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Input")]
struct InputView<'a> {
    /// Path as given; `-` for standard input.
    path: &'a str,
    /// What most of its recognised lines are; unknown when nothing was recognised.
    #[schemars(extend("enum" = kinds_and_unknown()))]
    kind: &'a str,
    /// Everything that was recognised in it, most lines first.
    kinds: &'a [InputKind],
    /// Number of lines.
    lines: u64,
    /// Number of bytes.
    bytes: u64,
}

fn kinds_and_unknown() -> Vec<&'static str> {
    InputKind::ALL.iter().map(|kind| kind.name()).chain(["unknown"]).collect()
}

impl<'a> InputView<'a> {
    fn new(input: &'a Input) -> Self {
        let kind = input.kinds.first().map_or("unknown", |kind| kind.name());
        InputView { path: &input.path, kind, kinds: &input.kinds, lines: input.lines, bytes: input.bytes }
    }
}

/// A table of nccl-tests.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Table")]
struct TableView<'a> {
    /// The collective; null when the table leaves it open.
    collective: Option<Collective>,
    /// Number of ranks; null when the table leaves it open.
    nranks: Option<u32>,
    /// Path of the input.
    input: &'a str,
    /// Line where the table begins, from 1.
    line: u64,
    /// The rows in the order printed. Equal sizes may repeat.
    rows: &'a [BenchRow],
    /// Average busbw in GB/s: the printed one, else the mean of the rows; null without rows.
    avg_busbw_gbs: Option<f64>,
    /// Highest busbw in GB/s, out of place or in place; null without rows.
    peak_busbw_gbs: Option<f64>,
    /// What such a cluster should reach, size by size; missing where it cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a [ExpectedRow]>,
}

impl<'a> TableView<'a> {
    fn new(run: &'a Run, table: &'a BenchTable, expected: Option<&'a ExpectedTable>) -> Self {
        TableView {
            collective: table.collective,
            nranks: table.nranks,
            input: run.path(table.place),
            line: table.place.line,
            rows: &table.rows,
            avg_busbw_gbs: table.avg_busbw().map(|busbw| busbw.0),
            peak_busbw_gbs: table.peak().map(|(_, busbw)| busbw.0),
            expected: expected.map(|expected| &*expected.rows),
        }
    }
}

/// `None` when neither a line of NCCL's log nor a version was read.
fn nccl(run: &Run) -> Option<NcclVersion> {
    let first = run.nccl.versions.first();
    let from_tables = || run.tables.iter().find_map(|table| table.settings.nccl_version.clone());
    let version = first.map(|line| line.version.clone()).or_else(from_tables);
    let read = version.is_some() || run.nccl.lines > 0;
    let cuda = first.and_then(|line| line.cuda.clone());
    read.then(|| NcclVersion { version, cuda, library: run.nccl.library() })
}

/// The first value of every variable from one origin, in order of appearance.
#[derive(JsonSchema)]
#[schemars(inline, with = "BTreeMap<String, String>")]
struct Environment<'a> {
    run: &'a Run,
    origin: EnvOrigin,
}

impl Serialize for Environment<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(words::settings(self.run, self.origin).map(|setting| (&setting.name, &setting.value)))
    }
}

/// A communicator, put together from what its ranks logged.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Communicator")]
struct CommunicatorView<'a> {
    /// commId where NCCL prints it, else a name that is stable for the input.
    id: &'a str,
    /// Number of ranks.
    nranks: Option<u32>,
    /// Number of nodes.
    nnodes: Option<u32>,
    /// Number of channels for collectives.
    coll_channels: Option<u32>,
    /// Families of transports in use, one name for all plugins of a network: P2P, SHM, NET/IB, NET/Socket, NET/OFI, COLLNET, NVLS.
    transports: Vec<String>,
    /// The networks under the names that were printed: NET/IB, NET/IBext_v8, NET/AWS Libfabric.
    transports_printed: Vec<String>,
    /// How GPUs of one node reach each other, as printed: IPC, CUMEM, direct pointer.
    p2p_kinds: Vec<String>,
    /// Whether network connections use GPUDirect RDMA; null without network connections.
    #[schemars(with = "Value", extend("enum" = [true, false, "mixed", null]))]
    gdr: Value,
    /// Channels by id.
    channels: Vec<ChannelView<'a>>,
    /// Ordered rank pairs of rings that leave a node, by sender and receiver.
    crossings: Vec<Crossing>,
}

impl<'a> CommunicatorView<'a> {
    fn new(comm: &'a Communicator) -> Self {
        let ranks = comm.nranks.unwrap_or(u32::try_from(comm.ranks.len()).unwrap_or(u32::MAX));
        let channel =
            |(id, channel): (&u16, &'a Channel)| ChannelView::new(comm, *id, channel, ranks <= MAX_TREE_RANKS);
        CommunicatorView {
            id: &comm.id,
            nranks: comm.nranks,
            nnodes: comm.nnodes,
            coll_channels: comm.coll_channels,
            transports: comm.transport_names(),
            transports_printed: distinct(comm, printed_network),
            p2p_kinds: distinct(comm, p2p_kind),
            gdr: match comm.gdr() {
                None => Value::Null,
                Some(GdrUse::Mixed) => json!("mixed"),
                Some(gdr) => json!(gdr == GdrUse::All),
            },
            channels: comm.channels.iter().map(channel).collect(),
            crossings: comm.crossings(),
        }
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

/// One of NCCL's parallel rings and trees.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Channel")]
struct ChannelView<'a> {
    /// Channel.
    id: u16,
    /// Ranks in order; the last sends to the first. null when no ring was printed.
    ring: Option<&'a [u32]>,
    /// Present when the log shows only the beginning of the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = false))]
    ring_complete: Option<bool>,
    /// The place of each rank in the tree. null when none was printed, and always for communicators of more than 64 ranks, where
    /// it would outgrow all else.
    tree: Option<Vec<TreeView>>,
}

/// A rank's links in a tree.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Tree")]
struct TreeView {
    /// The rank.
    rank: u32,
    /// Its parent; null at the root.
    up: Option<u32>,
    /// Its children.
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
