//! Whether ranks came up, and whether the data that arrived was right: what a run shows without any yardstick.

use crate::case::Case;
use crate::culprit;
use crate::data::Until;
use crate::ends::stopped_by;
use crate::last_word::{self, END_OF_RUN};
use crate::lines::Line;
use crate::refute::is_of_agent_that_succeeded;
use crate::rules::ends::who;
use crate::rules::hang;
use crate::rules::signatures::book::Role;
use crate::rules::start::Start;
use crate::rules::witnesses::ranks;
use crate::silence::Silence;
use crate::words::{capital, listed};
use crate::{unfit_nodes, unread, waiting_pods};
use busbw_model::{
    BenchTable, Check, Code, EndTeller, Ended, Finding, Judged, Judgement, Place, RankEnd, Run, Severity, SourceLine,
    Speaker, Statement, Subject, counted,
};
use std::collections::{BTreeMap, HashSet};

/// What the communicators and tables of a run show. `findings` tell whether something failed that these cannot show.
pub(crate) fn judge(case: &Case, findings: &[Finding]) -> Vec<Judged> {
    let course = [
        start(case, findings),
        beside(case),
        left_apart(case),
        in_vain(case, findings),
        next_launch(case),
        cut_short(case),
        first_size(case),
        missing_sizes(case),
        last_word::judge(case),
        unread::judge(case),
        done(case, findings),
        unfit_nodes::judge(case),
        waiting_pods::judge(case),
    ];
    let parts = course.into_iter().chain([results(case), not_numbers(case), answers(case)]);
    parts.flatten().collect()
}

/// A table that ends before its first row: a question, unless something else shows how the run ended.
fn first_size(case: &Case) -> Option<Judged> {
    let table = case.run.tables.first()?;
    let measured = case.run.tables.iter().any(|table| table.finished || !table.rows.is_empty());
    let what = match table.devices.len() {
        0 => "the first size".into(),
        ranks => format!("the first size on {}", counted(ranks, "rank")),
    };
    let question = "The first size never ended: the table has its header and no row. Does the first collective hang, or does the log only \
         end there? If it hangs, see where: `gdb -p PID -batch -ex 'thread apply all bt'`, and run again with NCCL_DEBUG=INFO";
    (!measured && !case.refuters.ended_well()).then(|| undecided(what, "no result", question))
}

/// A run that a batch system ended, of which nothing shows that it was done: it may have hung, unless its steps go on until then.
fn cut_short(case: &Case) -> Option<Judged> {
    let end = case.ends.interrupted.filter(|_| !case.refuters.finished())?;
    let by = stopped_by(end)?;
    let silence = Silence::before(end, case.run);
    if let Some(short) = silence.filter(|silence| silence.is_of_a_step()) {
        let how = format!("ended ({by}) {short} after its last step: it went on until then");
        return Some(Judged::new(Subject::Course, END_OF_RUN, how, Judgement::Passed));
    }
    let last = silence.map_or(String::new(), |long| format!(" Its last line is {long} older."));
    let question = format!(
        "The run was ended ({by}), and nothing shows that it was done.{last} Did the run hang, or was it only stopped? If it hangs, look \
         before the end where each rank is: `py-spy dump --pid PID`"
    );
    Some(undecided(END_OF_RUN, format!("not done: `{}`", end.source.text.trim()), question))
}

/// Sizes that a table lacks which its header announces: it holds what it holds, and where it stops a run may hang.
fn missing_sizes(case: &Case) -> Option<Judged> {
    let open = case.run.tables.iter().filter(|table| !table.finished);
    let (table, missing) = open.map(|table| (table, table.missing_sizes())).find(|(_, missing)| !missing.is_empty())?;
    let (last, next, largest) = (table.rows.last()?.size, *missing.first()?, *missing.last()?);
    let question = format!(
        "The table stops at {last}: {} of those that its header announces are missing, {}. Did the run hang at {next}, or was it \
         stopped, or is the rest of its output elsewhere? Give the rest, or run these alone: `-b {} -e {}`",
        counted(missing.len(), "size"),
        if next == largest { next.to_string() } else { format!("{next} to {largest}") },
        next.0,
        largest.0,
    );
    let what = format!("{} above {last}", counted(missing.len(), "size"));
    Some(undecided(what, "no result", question))
}

/// A process that ended and may be none of the run.
fn beside(case: &Case) -> Option<Judged> {
    let end = case.ends.beside.first()?;
    let line = end.source.text.trim();
    let of_job = |how: String, question| (String::from("the end of the job"), how, question);
    let (what, how, question) = if end.told_by == EndTeller::Report {
        let how = format!("the job's report tells of a failure: `{line}`");
        let question = format!(
            "The run looks whole, but {how}. Which of the job's commands failed? Give the whole output of the job"
        );
        of_job(how, question)
    } else if case.refuters.is_unordered(end.source.place) {
        let how = format!("a failure is reported before the ranks' own lines: `{line}`");
        let question = format!(
            "Ranks came up, but {how}. Is it of this launch, and were two outputs put together, or of one before? Give each output in a file of its own"
        );
        of_job(how, question)
    } else if case.refuters.begins_anew(end.source.place) {
        let how = format!("something begins behind it: `{line}`");
        let question = format!(
            "{} failed, and what begins behind it goes on: `{line}`. Was that caught, or started again? See that all ranks are there: `pgrep -af python` on their hosts",
            who(end)
        );
        (who(end), how, question)
    } else {
        let how = format!("nothing shows whether it was one of the run: `{line}`");
        let question = format!("{} failed, and {how}. Did the run go on? Give the rest of the output", who(end));
        (who(end), how, question)
    };
    Some(undecided(what, how, question))
}

/// The end of a run of which nothing else was seen, where its program says that it ended well, or what started it at the end of the input, and no launcher
/// that one of its processes failed.
fn done(case: &Case, findings: &[Finding]) -> Option<Judged> {
    let run = case.run;
    let is_seen = !run.communicators.is_empty() || !run.tables.is_empty();
    let failed = |end: &RankEnd| end.how != Ended::Success && end.told_by == EndTeller::Launcher;
    if is_seen || case.ends.are_over() || run.ends.iter().any(failed) || has_trouble(findings) {
        return None;
    }
    let by_program = run.ends.iter().rfind(|end| end.ended_run_well()).map(|end| &end.source);
    let line = by_program.or_else(|| last_success(run))?;
    let how = format!("ended well: `{}`", line.text.trim());
    Some(Judged::new(Subject::Course, END_OF_RUN, how, Judgement::Passed))
}

/// What a launcher or a runner says at the end of an input of what it started, where no line of it tells of a failure, in whatever words. What is told of one
/// of several by its name is not the run.
fn last_success(run: &Run) -> Option<&SourceLine> {
    let succeeded = run.ends.iter().filter(|end| end.how == Ended::Success && end.command.is_none());
    let agents = run.statements.iter().filter(|one| is_of_agent_that_succeeded(one)).map(|one| &one.source);
    let lines: Vec<&SourceLine> = succeeded.map(|end| &end.source).chain(agents).collect();
    let line = *lines.iter().max_by_key(|line| line.place)?;
    let is_own = |one: &Statement| lines.iter().any(|line| line.place == one.source.place);
    let spoken = |one: &Statement| one.speaker != Speaker::NcclInfo && !is_own(one) && speaks_of_failure(one.text());
    let says_more = |one: &Statement| {
        // Ray puts a rule below it, behind its place in the file.
        let said = one.text().rsplit(" -- ").next();
        let is_said = said.is_some_and(|said| said.contains(|c: char| c.is_ascii_alphanumeric()));
        one.source.place > line.place && one.speaker != Speaker::Launcher && is_said
    };
    let all_succeeded = run.ends.iter().all(|end| end.how == Ended::Success);
    (all_succeeded && !run.statements.iter().any(|one| says_more(one) || spoken(one))).then_some(line)
}

/// Whether a line has a word for a failure, and does not count none of them: `0 failed`, `failed: 0`.
fn speaks_of_failure(text: &str) -> bool {
    const SPOKEN: &str = "fail failed fails failure failures error lost aborted aborting killed crashed cannot unable unreachable gave \
                          giving nan skipping";
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    let none = |at: usize| words.get(at).is_some_and(|word| word == "0" || word == "no");
    let is_spoken = |(at, word): (usize, &String)| {
        SPOKEN.split(' ').any(|spoken| spoken == word) && !none(at + 1) && !at.checked_sub(1).is_some_and(none)
    };
    words.iter().enumerate().any(is_spoken)
}

/// Whether anything stands above a note.
fn has_trouble(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity > Severity::Info)
}

/// A communicator that some ranks gave up, and others left in order: ranks of one program leave alike.
fn left_apart(case: &Case) -> Option<Judged> {
    let apart = case.run.communicators.iter().find_map(|comm| {
        let (gave_up, left): (Vec<_>, Vec<_>) =
            comm.ranks.iter().filter(|(_, rank)| rank.left.is_some()).partition(|(_, rank)| rank.aborted);
        let is_apart = !gave_up.is_empty() && !left.is_empty();
        is_apart.then(|| (listed(gave_up.iter().map(|(number, _)| number), 8), left.len()))
    });
    let (gave_up, left) = apart.filter(|_| !case.ends.failed())?;
    let how = format!("ranks {gave_up} gave up their communicator (`Abort COMPLETE`), and {left} left it in order");
    let question = format!("{how}. Did ranks {gave_up} fail? Give their whole output");
    Some(undecided(END_OF_RUN, how, question))
}

/// Ranks that wait in a collective by their dumps, while nothing shows for whom.
fn in_vain(case: &Case, findings: &[Finding]) -> Option<Judged> {
    let is_known = has_trouble(findings);
    let moved = || hang::ended_well(case) || hang::is_dumps_alone(case) && hang::moved(case);
    if is_known || case.run.flight_dumps.is_empty() || moved() {
        return None;
    }
    let behind = findings.iter().find(|finding| finding.code == Code::HangMismatch);
    let waiting = culprit::waits(case, &[]).filter(|waiting| behind.is_some() || waiting.ranks.len() > 1)?;
    let who = ranks("rank", &waiting.ranks);
    let what = format!("{who} in {} of {}", waiting.collective, waiting.group);
    let unseen: Vec<u32> = case.ranks.which(|view| view.dump.is_none() && view.stack.is_none()).into_iter().collect();
    let still = if behind.is_some() { "Is it still so" } else { "Do they still" };
    let whose = match unseen.as_slice() {
        [] => format!("{still}? Let all write their dumps again, some seconds later"),
        unseen => {
            let whose = ranks("rank", unseen);
            let verb = if unseen.len() > 1 { "are" } else { "is" };
            format!("Where {verb} {whose}? Give their dumps as well, or see on their hosts: `py-spy dump --pid PID`")
        }
    };
    let question = match behind {
        Some(behind) => format!("{}, at the moment of the dumps. {whose}", behind.title),
        None => format!(
            "{} wait in {} of {}, and nothing shows for whom. {whose}",
            capital(&who),
            waiting.collective,
            waiting.group
        ),
    };
    Some(undecided(what, "they wait", question))
}

/// A launch that failed behind a run that is whole.
fn next_launch(case: &Case) -> Option<Judged> {
    let fails = |line: &&Line| {
        let until_launch = |(cause, role): (usize, Role)| {
            matches!(role, Role::Printed(_)) && case.book.cause(cause).until == Until::Launch
        };
        let causes = || case.book.read(line.speaker, &line.text).into_iter();
        case.refuters.is_of_another_launch(line) && causes().any(until_launch)
    };
    let line = case.lines.iter().find(fails)?.source.text.trim();
    let how = format!("behind the run a launch failed: `{line}`");
    let question = format!(
        "The run is whole, and {how}. Is that another command's? If not, give the output of each in a file of its own"
    );
    Some(undecided("the next launch", how, question))
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
    Some(Judged::new(Subject::Course, "what RAS sees", how, outcome))
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
    let measured =
        case.tests.iter().map(|test| test.sweep.iter().map(|table| table.rows.len()).sum::<usize>()).sum::<usize>();
    let open = starts.iter().find(|start| start.is_open() && ranks == 0 && measured == 0);
    let most = case.run.communicators.iter().filter_map(|comm| comm.nranks).max();
    let how = match (ranks, measured, open) {
        (0, 0, Some(start)) => {
            format!("{} of {} ranks began, none says that it came up", start.silent.len(), start.nranks)
        }
        (0, 0, None) => return None,
        (0, rows, _) => format!("all ranks measured {}", counted(rows, "size")),
        (ranks, ..) => match most.filter(|most| (*most as usize) > ranks) {
            Some(most) => format!("{ranks} of {most} ranks came up"),
            None => format!("{} came up", counted(ranks, "rank")),
        },
    };
    if let Some(claimed) = most.filter(|claimed| *claimed > MOST_RANKS) {
        let what = format!("the start of {claimed} ranks");
        let question = format!(
            "The log claims {claimed} ranks, more than any cluster has, and {ranks} are seen: was it edited? Give the whole output of all ranks"
        );
        return Some(undecided(what, format!("{ranks} seen"), question));
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
    Some(Judged { question, ..Judged::new(Subject::Course, what, how, outcome) })
}

fn undecided(what: impl Into<String>, how: impl Into<String>, question: impl Into<String>) -> Judged {
    Judged::open(Subject::Course, what, how, question)
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
        false if rows == 0 => ("0 values out of bounds, by the table's last line".into(), Judgement::Passed),
        false => (format!("0 wrong in {}", counted(rows, "row")), Judgement::Passed),
    };
    let is_counted = case.run.tables.iter().any(|table| table.out_of_bounds.is_some() && table.rows.is_empty());
    (rows > 0 || is_counted).then(|| Judged::new(Subject::Results, "results", how, outcome))
}

/// Figures of the program that are no numbers (NaN), step after step and until the end: it diverged, or was given wrong data.
fn not_numbers(case: &Case) -> Option<Judged> {
    const FEWEST: usize = 3;
    let run = case.run;
    let of_program = run.statements.iter().filter(|one| one.speaker == Speaker::Program).map(|one| &one.source);
    let is_step = |last: &&SourceLine| run.steps.binary_search(&last.place).is_ok();
    let mut lines: Vec<&SourceLine> =
        of_program.chain(run.outputs.iter().map(|output| &output.last).filter(is_step)).collect();
    lines.sort_by_key(|line| line.place);
    lines.dedup_by_key(|line| line.place);
    // By input and name: whether it was a number, and since when it is none.
    let mut named: BTreeMap<(u32, &str), (bool, Vec<Place>)> = BTreeMap::new();
    for (line, (name, is_nan)) in lines.iter().flat_map(|line| figures(&line.text).map(move |figure| (line, figure))) {
        let (was_number, since) = named.entry((line.place.input, name)).or_default();
        match is_nan {
            true => since.push(line.place),
            false => (*was_number, *since) = (true, Vec::new()),
        }
    }
    let counts = |((_, name), (was_number, since)): (&(u32, &str), &(bool, Vec<Place>))| {
        (since.len() >= FEWEST && (*was_number || is_loss(name))).then(|| since[0])
    };
    let line = named.iter().filter_map(counts).min()?.line;
    let how = format!("no numbers (nan) from line {line} on");
    let question = format!(
        "The program's figures are {how}. Did it diverge, or was it given wrong data? See that transfers between the same GPUs are right: nccl-tests with \
         `-c 1`; then go on from the last checkpoint before that line"
    );
    Some(Judged::open(Subject::Results, "the program's figures", how, question))
}

/// The figures of a line by the word in front, and whether each is no number: `loss: nan`, `{'grad_norm': nan}`, `Loss nan (nan)`; without a mark between
/// them only those of a loss, because words may stand in front of any: `number of nan iterations: 0`.
fn figures(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '+');
    let words = text.split(move |c| !is_of_word(c)).filter(|word| !word.is_empty());
    let at = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter_map(move |(name, value)| {
        let between = &text[at(name) + name.len()..at(value)];
        let is_joined = between.contains([':', '=']) || between.trim().is_empty() && is_loss(name);
        let is_nan = value.eq_ignore_ascii_case("nan");
        let is_figure = is_nan || value.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.eq_ignore_ascii_case("nan");
        (is_joined && is_figure && is_name).then_some((name, is_nan))
    })
}

/// Whether a figure is a training's loss or gradient; of what is measured beside it, some have no value yet.
fn is_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    (name.contains("loss") || name.contains("grad"))
        && !["val", "eval", "test"].iter().any(|beside| name.starts_with(beside))
}
