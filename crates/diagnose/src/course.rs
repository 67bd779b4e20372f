//! Whether ranks came up, and whether the data that arrived was right: what a run shows without any yardstick.

use crate::case::Case;
use crate::rules::start::Start;
use busbw_model::{BenchTable, Check, Finding, Judged, Judgement, Severity, Subject};

/// What the communicators and tables of a run show. `findings` tell whether something failed that these cannot show.
pub(crate) fn judge(case: &Case, findings: &[Finding]) -> Vec<Judged> {
    start(case, findings).into_iter().chain(unmeasured(case)).chain(results(case)).chain(answers(case)).collect()
}

/// Processes that answer NCCL's watcher (RAS), none of them with an error.
fn answers(case: &Case) -> Option<Judged> {
    let report = case.run.ras_reports.last()?;
    let of_communicators = report.communicators.iter().filter_map(|comm| comm.size).max();
    let ranks = report.groups.iter().map(|group| group.ranks).max().or(of_communicators)?;
    let outcome = if report.is_clean() { Judgement::Passed } else { Judgement::Failed };
    let how = if report.is_clean() {
        format!("all {ranks} ranks answer RAS without an error")
    } else {
        "RAS reports trouble".into()
    };
    Some(Judged { subject: Subject::Course, what: "what RAS sees".into(), how, outcome, question: None })
}

/// More GPUs than any cluster has.
const MOST_RANKS: u32 = 4 << 20;

/// Ranks that came up; a question where no line tells whether they did.
fn start(case: &Case, findings: &[Finding]) -> Option<Judged> {
    let starts: Vec<Start> = case.run.communicators.iter().filter_map(|comm| Start::of(case, comm)).collect();
    let ranks: usize = starts.iter().map(Start::ranks_up).sum();
    let measured = case.tests.iter().map(|test| test.table.rows.len()).sum::<usize>();
    let open = starts.iter().find(|start| start.is_open() && ranks == 0 && measured == 0);
    let how = match (ranks, measured, open) {
        (0, 0, Some(start)) => {
            format!("{} of {} ranks began, none says that it came up", start.silent.len(), start.nranks)
        }
        (0, 0, None) => return None,
        (0, rows, _) => format!("all ranks measured {}", counted(rows, "size")),
        (ranks, ..) => format!("{} came up", counted(ranks, "rank")),
    };
    if let Some(claimed) =
        case.run.communicators.iter().filter_map(|comm| comm.nranks).max().filter(|n| *n > MOST_RANKS)
    {
        return Some(Judged {
            subject: Subject::Course,
            what: format!("the start of {claimed} ranks"),
            how: format!("{ranks} seen"),
            outcome: Judgement::Undecided,
            question: Some(format!(
                "The log claims {claimed} ranks, more than any cluster has, and {ranks} are seen: was it edited? Give the whole \
                 output of all ranks"
            )),
        });
    }
    let failed = findings.iter().any(|finding| finding.severity == Severity::Error);
    let stuck = starts.iter().any(|start| !start.up.is_empty() && !start.failed.is_empty()) && measured == 0;
    let outcome = match (failed || stuck, open) {
        (true, _) => Judgement::Failed,
        (false, Some(_)) => Judgement::Undecided,
        (false, None) => Judgement::Passed,
    };
    let what = match starts.iter().map(|start| start.nranks).max() {
        Some(nranks) => format!("the start of {nranks} ranks"),
        None => "the start of the ranks".into(),
    };
    let question = (outcome == Judgement::Undecided)
        .then(|| format!("{how}. Does the run hang there, or does the log only end there?"));
    Some(Judged { subject: Subject::Course, what, how, outcome, question })
}

/// Tables that end behind their header: the first collective hangs, or the output was cut.
fn unmeasured(case: &Case) -> Option<Judged> {
    let tables = &case.run.tables;
    let none = !tables.is_empty() && tables.iter().all(|table| table.rows.is_empty());
    let how = "the table has a header and no row";
    none.then(|| Judged {
        subject: Subject::Course,
        what: "the table".into(),
        how: how.into(),
        outcome: Judgement::Undecided,
        question: Some(format!(
            "{how}. Does the run hang at its first size, or does the output only end there? Give all of it, run with NCCL_DEBUG=INFO"
        )),
    })
}

/// Rows that were checked and have no wrong element.
fn results(case: &Case) -> Option<Judged> {
    let checked = |table: &BenchTable| {
        let rows = table.rows.iter();
        rows.filter(|row| row.halves().any(|half| matches!(half.check, Check::Wrong(_)))).count()
    };
    let rows: usize = case.run.tables.iter().map(checked).sum();
    let wrong = case.run.tables.iter().any(|table| table.total_wrong() > 0);
    let refused = case.run.tables.iter().any(|table| table.out_of_bounds.as_ref().is_some_and(|bounds| !bounds.ok));
    (rows > 0).then(|| Judged {
        subject: Subject::Results,
        what: "results".into(),
        how: if wrong || refused { "wrong elements".into() } else { format!("0 wrong in {}", counted(rows, "row")) },
        outcome: if wrong || refused { Judgement::Failed } else { Judgement::Passed },
        question: None,
    })
}

/// `1 row`, `2 rows`.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
