//! The part of the document that holds what tools beside NCCL's log and nccl-tests tell: RAS, NCCL's diagnostics, the
//! Inspector, PyTorch, commands of the system. Written only when there is any of it.

use super::view::LineView;
use busbw_model::{
    CollectiveMismatch, DiagLine, DiagTag, InspectorRow, InspectorRun, MismatchKind, ProcessGroup, RankStanding,
    RasCommunicator, RasReport, RasShare, RasStatus, Run, Spread, Told, TorchWork, WorkState,
};
use serde::Serialize;

/// Everything there is; `None` for a run without such evidence.
pub(super) fn of(run: &Run) -> Option<EvidenceView<'_>> {
    let told = run.machines.iter().flat_map(|machine| {
        let host = Some(machine.facts.host.as_str()).filter(|host| !host.is_empty());
        machine.told.iter().map(move |told| (host, told))
    });
    let view = EvidenceView {
        ras: run.ras_reports.iter().map(|report| RasView::new(run, report)).collect(),
        diagnostics: run.diagnostics.iter().map(|line| DiagView::new(run, line)).collect(),
        inspector: run.inspector_runs.iter().map(InspectorView::new).collect(),
        process_groups: run.process_groups.iter().map(GroupView::new).collect(),
        host_facts: told.map(|(host, told)| FactView::new(run, host, told)).collect(),
    };
    let is_empty = view.ras.is_empty()
        && view.diagnostics.is_empty()
        && view.inspector.is_empty()
        && view.process_groups.is_empty()
        && view.host_facts.is_empty();
    (!is_empty).then_some(view)
}

#[derive(Serialize)]
pub(super) struct EvidenceView<'a> {
    ras: Vec<RasView<'a>>,
    diagnostics: Vec<DiagView<'a>>,
    inspector: Vec<InspectorView<'a>>,
    process_groups: Vec<GroupView<'a>>,
    host_facts: Vec<FactView<'a>>,
}

#[derive(Serialize)]
struct RasView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    nccl_version: Option<&'a str>,
    clean: bool,
    timeouts: u32,
    lost_processes: Vec<LostProcessView<'a>>,
    communicators: Vec<RasCommunicatorView<'a>>,
}

#[derive(Serialize)]
struct LostProcessView<'a> {
    host: &'a str,
    pid: u64,
    dead: bool,
}

#[derive(Serialize)]
struct RasCommunicatorView<'a> {
    hash: &'a str,
    nranks: Option<u32>,
    missing_ranks: u32,
    missing: Vec<u32>,
    status: Vec<ShareView<'a, &'static str>>,
    launched: Vec<LaunchedView<'a>>,
    errors: Vec<ShareView<'a, &'a str>>,
}

#[derive(Serialize)]
struct LaunchedView<'a> {
    operation: &'a str,
    shares: Vec<ShareView<'a, u64>>,
}

/// A value and how many ranks have it; the ranks as far as they are named.
#[derive(Serialize)]
struct ShareView<'a, T> {
    value: T,
    count: u32,
    ranks: &'a [u32],
}

impl<'a, T> ShareView<'a, T> {
    fn new<V: Copy>(share: &'a RasShare<V>, value: impl Fn(V) -> T) -> Self {
        ShareView { value: value(share.value), count: share.count, ranks: &share.ranks }
    }
}

impl<'a> RasView<'a> {
    fn new(run: &'a Run, report: &'a RasReport) -> Self {
        let lost = report.lost_processes.iter();
        RasView {
            line: LineView::of(run, &report.source),
            nccl_version: report.nccl_version.as_deref(),
            clean: report.is_clean(),
            timeouts: report.timeouts,
            lost_processes: lost.map(|p| LostProcessView { host: &p.host, pid: p.pid, dead: p.dead }).collect(),
            communicators: report.communicators.iter().map(RasCommunicatorView::new).collect(),
        }
    }
}

impl<'a> RasCommunicatorView<'a> {
    fn new(comm: &'a RasCommunicator) -> Self {
        let errors = comm.errors.iter();
        RasCommunicatorView {
            hash: &comm.hash,
            nranks: comm.size,
            missing_ranks: comm.missing_ranks,
            missing: comm.missing.iter().map(|rank| rank.rank).collect(),
            status: comm.status.iter().map(|share| ShareView::new(share, status_name)).collect(),
            launched: comm
                .launched
                .iter()
                .map(|launched| LaunchedView {
                    operation: &launched.operation,
                    shares: launched.shares.iter().map(|share| ShareView::new(share, |count| count)).collect(),
                })
                .collect(),
            errors: errors.map(|e| ShareView { value: e.error.as_str(), count: e.count, ranks: &e.ranks }).collect(),
        }
    }
}

fn status_name(status: RasStatus) -> &'static str {
    match status {
        RasStatus::NoCommunicator => "no-communicator",
        RasStatus::Init => "init",
        RasStatus::Running => "running",
        RasStatus::Finalize => "finalize",
        RasStatus::Abort => "abort",
    }
}

#[derive(Serialize)]
struct DiagView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    check: &'a str,
    ok: bool,
    count: u64,
}

impl<'a> DiagView<'a> {
    fn new(run: &'a Run, diag: &'a DiagLine) -> Self {
        let ok = diag.tag != DiagTag::Info;
        DiagView { line: LineView::of(run, &diag.source), check: &diag.check, ok, count: diag.count }
    }
}

#[derive(Serialize)]
struct InspectorView<'a> {
    communicator: &'a str,
    communicator_name: Option<&'a str>,
    nranks: Option<u32>,
    nnodes: Option<u32>,
    operation: &'a str,
    rows: Vec<InspectorRowView>,
}

#[derive(Serialize)]
struct InspectorRowView {
    size_bytes: u64,
    count: u64,
    time_us: SpreadView,
    algbw_gbs: SpreadView,
    busbw_gbs: SpreadView,
}

#[derive(Serialize)]
struct SpreadView {
    min: f64,
    median: f64,
    mean: f64,
    p99: f64,
    max: f64,
    cv_pct: f64,
}

impl SpreadView {
    fn new<T: Copy>(spread: &Spread<T>, number: impl Fn(T) -> f64) -> Self {
        SpreadView {
            min: number(spread.min),
            median: number(spread.median),
            mean: number(spread.mean),
            p99: number(spread.p99),
            max: number(spread.max),
            cv_pct: spread.cv_pct,
        }
    }
}

impl<'a> InspectorView<'a> {
    fn new(run: &'a InspectorRun) -> Self {
        let row = |row: &InspectorRow| InspectorRowView {
            size_bytes: row.size.0,
            count: row.count,
            time_us: SpreadView::new(&row.time, |time| time.0),
            algbw_gbs: SpreadView::new(&row.algbw, |bandwidth| bandwidth.0),
            busbw_gbs: SpreadView::new(&row.busbw, |bandwidth| bandwidth.0),
        };
        InspectorView {
            communicator: &run.communicator,
            communicator_name: run.communicator_name.as_deref(),
            nranks: run.nranks,
            nnodes: run.nnodes,
            operation: &run.operation,
            rows: run.rows.iter().map(row).collect(),
        }
    }
}

#[derive(Serialize)]
struct GroupView<'a> {
    name: String,
    members: &'a [u32],
    ranks: Vec<StandingView<'a>>,
    mismatches: Vec<MismatchView<'a>>,
}

#[derive(Serialize)]
struct StandingView<'a> {
    rank: u32,
    enqueued: Option<u64>,
    started: Option<u64>,
    completed: Option<u64>,
    timed_out: bool,
    stuck_in: Option<WorkView<'a>>,
    state: Option<&'static str>,
    called_at: Option<&'a str>,
}

#[derive(Serialize)]
struct WorkView<'a> {
    sequence: u64,
    operation: &'a str,
    numel_in: Option<u64>,
    numel_out: Option<u64>,
    datatype: Option<&'a str>,
}

#[derive(Serialize)]
struct MismatchView<'a> {
    sequence: u64,
    differs: &'static str,
    variants: Vec<VariantView<'a>>,
}

#[derive(Serialize)]
struct VariantView<'a> {
    #[serde(flatten)]
    work: WorkView<'a>,
    ranks: &'a [u32],
}

impl<'a> WorkView<'a> {
    fn new(work: &'a TorchWork) -> Self {
        WorkView {
            sequence: work.sequence,
            operation: &work.op,
            numel_in: work.numel_in,
            numel_out: work.numel_out,
            datatype: work.datatype.as_deref(),
        }
    }
}

impl<'a> GroupView<'a> {
    fn new(group: &'a ProcessGroup) -> Self {
        GroupView {
            name: group.name.to_string(),
            members: &group.members,
            ranks: group.ranks.iter().map(|(rank, standing)| StandingView::new(*rank, standing)).collect(),
            mismatches: group.mismatches.iter().map(MismatchView::new).collect(),
        }
    }
}

impl<'a> StandingView<'a> {
    fn new(rank: u32, of_rank: &'a RankStanding) -> Self {
        let state = |state| match state {
            WorkState::Scheduled => "scheduled",
            WorkState::Started => "started",
            WorkState::Completed => "completed",
        };
        StandingView {
            rank,
            enqueued: of_rank.standing.enqueued,
            started: of_rank.standing.started,
            completed: of_rank.standing.completed,
            timed_out: of_rank.timed_out,
            stuck_in: of_rank.stuck_in.as_ref().map(WorkView::new),
            state: of_rank.state.map(state),
            called_at: of_rank.called_at.as_deref(),
        }
    }
}

impl<'a> MismatchView<'a> {
    fn new(mismatch: &'a CollectiveMismatch) -> Self {
        let variants = mismatch.variants.iter();
        MismatchView {
            sequence: mismatch.sequence,
            differs: match mismatch.kind {
                MismatchKind::Operation => "operation",
                MismatchKind::Size => "size",
                MismatchKind::Datatype => "datatype",
                MismatchKind::Device => "device",
                MismatchKind::Sequence => "sequence",
            },
            variants: variants.map(|(work, ranks)| VariantView { work: WorkView::new(work), ranks }).collect(),
        }
    }
}

#[derive(Serialize)]
struct FactView<'a> {
    #[serde(flatten)]
    line: LineView<'a>,
    host: Option<&'a str>,
    device: &'a str,
    command: &'static str,
}

impl<'a> FactView<'a> {
    fn new(run: &'a Run, host: Option<&'a str>, told: &'a Told) -> Self {
        FactView { line: LineView::of(run, &told.source), host, device: &told.device, command: told.command }
    }
}
