//! Whether ranks came up, and whether the data that arrived was right: what a run shows without any yardstick.

use crate::case::Case;
use busbw_model::{BenchTable, Check, Communicator, Finding, Judged, Judgement, Severity, Subject};

/// What the communicators and tables of a run show. `findings` tell whether something failed that these cannot show.
pub(crate) fn judge(case: &Case, findings: &[Finding]) -> Vec<Judged> {
    start(case, findings).into_iter().chain(results(case)).collect()
}

/// More GPUs than any cluster has.
const MOST_RANKS: u32 = 4 << 20;

/// Ranks that came up, where all that the input names did.
fn start(case: &Case, findings: &[Finding]) -> Option<Judged> {
    let named: usize = case.run.communicators.iter().map(|comm| comm.ranks.len()).sum();
    let up = case.run.communicators.iter().filter(|comm| comm.came_up());
    let ranks: usize = up.clone().map(|comm| comm.ranks.len()).sum();
    let measured = case.tests.iter().map(|test| test.table.rows.len()).sum::<usize>();
    let how = match (ranks, measured) {
        (0, 0) => return None,
        (0, rows) => format!("all ranks measured {rows} sizes"),
        (1, _) => "1 rank came up".into(),
        (ranks, _) => format!("{ranks} ranks came up"),
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
    let outcome = if failed || ranks < named && measured == 0 { Judgement::Failed } else { Judgement::Passed };
    let what = match up.max_by_key(|comm| comm.nranks) {
        Some(Communicator { nranks: Some(nranks), .. }) => format!("the start of {nranks} ranks"),
        _ => "the start of the ranks".into(),
    };
    Some(Judged { subject: Subject::Course, what, how, outcome, question: None })
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
        how: if wrong || refused { "wrong elements".into() } else { format!("0 wrong in {rows} rows") },
        outcome: if wrong || refused { Judgement::Failed } else { Judgement::Passed },
        question: None,
    })
}
