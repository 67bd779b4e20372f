//! Whether ranks came up, and whether the data that arrived was right: what a run shows without any yardstick.

use crate::case::Case;
use crate::lines::Line;
use crate::rules::ends::who;
use crate::rules::start::Start;
use crate::words::KNOWN;
use busbw_model::{
    BenchTable, Check, Ended, Finding, Judged, Judgement, LogLevel, Place, Severity, Speaker, Statement, Subject,
    counted,
};
use std::collections::HashSet;

/// What the communicators and tables of a run show. `findings` tell whether something failed that these cannot show.
pub(crate) fn judge(case: &Case, findings: &[Finding]) -> Vec<Judged> {
    let course = [start(case, findings), beside(case), first_size(case), cut_short(case), last_word(case)];
    let parts = course.into_iter().chain([results(case), answers(case)]);
    parts.flatten().collect()
}

/// A table that ends before its first row: a question, unless something else shows how the run ended.
fn first_size(case: &Case) -> Option<Judged> {
    let table = case.run.tables.first()?;
    let measured = case.run.tables.iter().any(|table| table.finished || !table.rows.is_empty());
    (!measured && !case.refuters.ended_well()).then(|| Judged {
        subject: Subject::Course,
        what: match table.devices.len() {
            0 => "the first size".into(),
            ranks => format!("the first size on {}", counted(ranks, "rank")),
        },
        how: "no result".into(),
        speed: None,
        outcome: Judgement::Undecided,
        question: Some(
            "The first size never ended: the table has its header and no row. Does the first collective hang, or does the log only \
             end there? If it hangs, see where: `gdb -p PID -batch -ex 'thread apply all bt'`, and run again with NCCL_DEBUG=INFO"
                .into(),
        ),
    })
}

/// A run that a batch system ended, of which nothing shows that it was done: it may have hung.
fn cut_short(case: &Case) -> Option<Judged> {
    let end = case.ends.interrupted?;
    let Ended::Interrupted(by) = &end.how else { return None };
    (!case.refuters.finished()).then(|| {
        let question = format!(
            "The run was ended ({by}), and nothing shows that it was done. Did the run hang, or was it only stopped? If it hangs, look \
             before the end where each rank is: `py-spy dump --pid PID`"
        );
        let how = format!("not done: `{}`", end.source.text.trim());
        judged(Subject::Course, "the end of the run".into(), how, Judgement::Undecided, Some(question))
    })
}

/// What a launcher, a shell or a logger at its level for errors reports as the last thing of an input, in words that no rule knows: what was not
/// understood is not praised.
fn last_word(case: &Case) -> Option<Judged> {
    let run = case.run;
    let is_of_launcher = |one: &Statement| one.speaker == Speaker::Launcher && is_report(one.text());
    let fails = |one: &Statement| {
        is_of_launcher(one)
            || LAST_WORDS.iter().any(|words| one.text().starts_with(words))
            || one.text().trim() == "Terminated"
            || tells_status(one.text())
            || one.level == Some(LogLevel::Error)
    };
    let is_end = |place: Place| run.ends.iter().any(|end| end.source.place == place) && !case.refuters.survived(place);
    let is_last = |place: Place| case.refuters.is_last(place) && !is_end(place);
    let knows = |line: &&Line| {
        let is_harmless = || KNOWN.harmless.iter().any(|words| line.text.contains(words));
        !case.book.read(line.speaker, &line.text).is_empty() || is_harmless()
    };
    let at = |place: Place| case.lines.iter().filter(move |line| line.source.place == place);
    let reports = |line: &&Line| {
        let place = line.source.place;
        let said = || run.statements.iter().filter(|one| one.source.place == place).any(fails);
        is_last(place)
            && match line.speaker {
                Speaker::Kernel => false,
                Speaker::NcclWarn => true,
                _ => said(),
            }
    };
    let last = case.lines.iter().filter(reports).find(|line| !at(line.source.place).any(|line| knows(&line)))?.source;
    let text = last.text.trim();
    let question = format!("The last line may report a failure, and no rule knows it: `{text}`. Did the run end well?");
    let how = format!("ends with `{text}`");
    Some(judged(Subject::Course, "the end of the run".into(), how, Judgement::Undecided, Some(question)))
}

/// What srun says of a step that it ends, OpenSSH of a terminal that is gone.
const LAST_WORDS: [&str; 2] = ["srun: Job step aborted", "client_loop: send disconnect: "];

/// Whether a line tells a status that shows a failure, as what runs programs does in many forms: `exited with code 137`, `returned non-zero exit status 1`,
/// `exitcode: 1`.
fn tells_status(text: &str) -> bool {
    const KEYS: [&str; 8] = [
        "xit code",
        "xit status",
        "xitcode",
        "xited with",
        "xited with code",
        "xited with status",
        "on-zero status of",
        "xitCode\"",
    ];
    let fails = |behind: &str| {
        behind.trim_start_matches([' ', ':', '=', '(', '"', '-']).starts_with(|c| ('1'..='9').contains(&c))
    };
    KEYS.iter().any(|key| text.match_indices(key).any(|(at, _)| fails(&text[at + key.len()..])))
}

/// Whether a launcher's line is no note of what it does: srun and Slurm's daemons say so, mpirun and its like print little else but what they do when
/// somebody presses Ctrl-C. Slurm's step `.extern` is none of the run's.
fn is_report(text: &str) -> bool {
    const SLURM: [&str; 3] = ["srun: ", "slurmstepd: ", "salloc: "];
    let of_slurm = SLURM.iter().find_map(|start| text.strip_prefix(start));
    let is_error = of_slurm.is_none_or(|rest| rest.starts_with("error: ") || rest.starts_with("fatal: "));
    is_error
        && KNOWN.launchers.iter().any(|start| text.starts_with(start))
        && ![".extern", Ended::CTRL_C].iter().any(|note| text.contains(note))
}

/// A process that ended and may be none of the run.
fn beside(case: &Case) -> Option<Judged> {
    let end = case.ends.beside.first()?;
    let how = format!("nothing shows whether it was one of the run: `{}`", end.source.text.trim());
    let question = format!("{} failed, and {how}. Did the run go on? Give the rest of the output", who(end));
    Some(judged(Subject::Course, who(end), how, Judgement::Undecided, Some(question)))
}

/// Processes that answer NCCL's watcher (RAS), none of them with an error.
fn answers(case: &Case) -> Option<Judged> {
    let report = case.run.ras_reports.last()?;
    let of_communicators = report.communicators.iter().filter_map(|comm| comm.size).max();
    let ranks = report.groups.iter().map(|group| group.ranks).max().or(of_communicators)?;
    let (how, outcome) = match report.is_clean() {
        true => (format!("all {ranks} ranks answer RAS without an error"), Judgement::Passed),
        false => ("RAS reports trouble".into(), Judgement::Failed),
    };
    Some(judged(Subject::Course, "what RAS sees".into(), how, outcome, None))
}

/// More GPUs than any cluster has.
const MOST_RANKS: u32 = 4 << 20;

/// How many ranks came up in any communicator: a process may be in several, each with a rank on one GPU.
fn ranks_up(starts: &[Start]) -> usize {
    let mut processes = HashSet::new();
    let unknown = starts.iter().map(|start| {
        let known = start.came_up().filter_map(|rank| Some((rank.node?, rank.pid?, rank.device)));
        start.ranks_up() - known.map(|process| processes.insert(process)).count()
    });
    // Of those whose process no line tells, nobody knows whether they are the same.
    unknown.sum::<usize>() + processes.len()
}

/// Ranks that came up; a question where no line tells whether they did.
fn start(case: &Case, findings: &[Finding]) -> Option<Judged> {
    let starts: Vec<Start> = case.run.communicators.iter().filter_map(|comm| Start::of(case, comm)).collect();
    let ranks = ranks_up(&starts);
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
    let most = case.run.communicators.iter().filter_map(|comm| comm.nranks).max();
    if let Some(claimed) = most.filter(|claimed| *claimed > MOST_RANKS) {
        let what = format!("the start of {claimed} ranks");
        let question = format!(
            "The log claims {claimed} ranks, more than any cluster has, and {ranks} are seen: was it edited? Give the whole output of all ranks"
        );
        return Some(judged(Subject::Course, what, format!("{ranks} seen"), Judgement::Undecided, Some(question)));
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
    Some(judged(Subject::Course, what, how, outcome, question))
}

fn judged(subject: Subject, what: String, how: String, outcome: Judgement, question: Option<String>) -> Judged {
    Judged { subject, what, how, speed: None, outcome, question }
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
    let (how, outcome) = match wrong || refused {
        true => ("wrong elements".into(), Judgement::Failed),
        false => (format!("0 wrong in {}", counted(rows, "row")), Judgement::Passed),
    };
    (rows > 0).then(|| judged(Subject::Results, "results".into(), how, outcome, None))
}
