//! What refutes an error: facts of the run, shared by all rules.
//!
//! A line speaks of trouble at its place in the stream. What comes after it may show that the trouble was survived: the
//! communicator came up, or the run ended well. Nothing refutes what a machine says of itself.

mod course;
mod launches;
pub(crate) mod pods;
mod processes;
mod servers;
mod survivors;

use crate::data::Until;
use crate::lines::{Line, is_event};
use crate::progress::{Counted, Progress, begun, progress, steps};
use crate::results::is_error_of_gpu;
use crate::words::{KNOWN, TIMED_OUT};
use busbw_model::{BenchTable, EndTeller, Ended, Place, RankEnd, Run, Speaker, TorchEvent, TorchStatement};
use launches::{Launches, StartedRanks, displaced, unordered};
use pods::Pods;
use processes::{Ranks, may_be_of_another};
use servers::Servers;
use std::collections::{HashMap, HashSet};
pub(crate) use survivors::is_of_agent_that_succeeded;
use survivors::{goes_on_anew, is_survived, recovered, strangers, survived};

/// Lines that a message of an exception has below its first.
const LINES_OF_MESSAGE: u64 = 3;

/// A launcher says so much before it says that it gave up.
const LINES_OF_A_START: u64 = 40;
/// An input with fewer lines holds what somebody copied.
const LITTLE: u64 = 12;

/// The facts that refute, of a run.
#[derive(Debug, Default)]
pub struct Refuters {
    launches: Launches,
    /// Lines that show a good end: a whole table, a program that reports success, ranks that all left in order.
    ended_well: Vec<Place>,
    /// Those that a program that fails does not print as it exits, and from where on they speak: of what ended before it began, a table shows only that
    /// an exit status is a command's before it.
    succeeded: Vec<(Place, Place)>,
    /// Where programs report success of the whole run.
    reported: Vec<Place>,
    /// Where launchers, and what runs scripts, report it of what they started: they may have gone on behind a command that failed.
    scripts: Vec<Place>,
    /// Reports of launchers that stand before what they report of, and warnings of processes that come up behind them.
    unordered: HashSet<Place>,
    displaced: HashSet<Place>,
    /// Ends that their process survived, and those of other programs.
    survived: HashSet<Place>,
    /// Those of them behind which a loop or a server begins, and nothing else shows that the run goes on.
    anew: HashSet<Place>,
    /// Lines of launchers, torchrun left out: it starts nothing over ssh.
    launchers: Vec<Place>,
    /// The number of lines of each input, and inputs whose last is no empty line and no prompt.
    lines: Vec<u64>,
    ends_in_text: HashSet<u32>,
    /// Lines that show that the program went on.
    progress: Vec<Progress>,
    /// Lines in which its loops count.
    steps: Vec<Counted>,
    /// Where they begin, in inputs in which one goes on.
    begun: HashMap<u32, Place>,
    servers: Servers,
    /// Where each input shows last that a process failed.
    failed: HashMap<u32, Place>,
    /// Ends of ranks that waited for others until their time was over.
    waited: Vec<Place>,
    /// Lines in which a launcher, or a torchrun whose workers had failed, reports that those of its last attempt left with status 0.
    recovered: Vec<Place>,
    /// Ends that a list of what runs on a cluster tells of.
    listed: HashSet<Place>,
    /// Warnings of connections that were never accepted.
    strangers: HashSet<Place>,
    /// The run did what it was to do: its tables are whole, or its program says so.
    finished: bool,
    /// A communicator has several ranks.
    several: bool,
    ranks: Ranks,
    pods: Pods,
}

impl Refuters {
    pub fn of(run: &Run) -> Self {
        let launches = Launches::of(run);
        let (lines, ends_in_text) = last_lines(run);
        let (of_run, of_parts): (Vec<&RankEnd>, Vec<_>) =
            run.ends.iter().filter(|end| end.how == Ended::Success).partition(|end| end.ended_run_well());
        let reported: Vec<Place> = of_run.into_iter().map(|end| end.source.place).collect();
        let scripts = of_parts.into_iter().filter(|end| !may_be_of_another(run, end));
        let scripts = scripts.map(|end| end.source.place).collect();
        let footer = |table: &BenchTable| Some(table.out_of_bounds.as_ref()?.source.place);
        let last = |table: &BenchTable| footer(table).max(table.rows.last().map(|row| row.source.place));
        let tables = run.tables.iter().filter(|table| table.finished);
        let tables = tables.filter_map(|table| Some((table.place, last(table)?)));
        let of_all_before = |place: &Place| (Place { line: 0, ..*place }, *place);
        let left = launches.left.iter().map(|(_, last)| last);
        let succeeded: Vec<(Place, Place)> = reported.iter().chain(left).map(of_all_before).chain(tables).collect();
        let ended_well = succeeded.iter().map(|(_, end)| *end).chain(launches.given_up.iter().copied()).collect();
        let ranks = Ranks::of(run);
        let failed = last_failures(run, &ranks);
        let is_of_launcher = |text: &str| KNOWN.launchers.iter().any(|word| text.starts_with(word));
        let launchers = run.statements.iter().filter(|one| is_of_launcher(one.text()));
        let waited = run.ends.iter().filter(|end| end.source.text.contains(TIMED_OUT));
        let listed = run.ends.iter().filter(|end| end.told_by == EndTeller::List);
        let steps = steps(run);
        let mut refuters = Refuters {
            unordered: unordered(run, &launches),
            displaced: displaced(run),
            launches,
            reported,
            scripts,
            ended_well,
            succeeded,
            survived: HashSet::new(),
            anew: HashSet::new(),
            launchers: launchers.map(|statement| statement.source.place).collect(),
            lines,
            ends_in_text,
            progress: progress(run),
            begun: begun(&steps),
            steps,
            servers: Servers::of(run),
            failed,
            waited: waited.map(|end| end.source.place).collect(),
            listed: listed.map(|end| end.source.place).collect(),
            strangers: strangers(run),
            recovered: recovered(run),
            finished: is_finished(run),
            several: run.communicators.iter().any(|comm| comm.nranks.is_some_and(|ranks| ranks > 1)),
            ranks,
            pods: Pods::of(run),
        };
        refuters.survived = survived(&refuters, run, is_survived);
        refuters.anew = survived(&refuters, run, goes_on_anew);
        refuters.anew.retain(|place| refuters.survived.insert(*place));
        refuters
    }

    /// Whether something stands behind an end that only a process that goes on prints, or a run behind it.
    pub fn is_followed(&self, end: Place) -> bool {
        self.succeeded.iter().any(|(began, later)| later.is_after(end) && !began.is_after(end))
            || self.recovered_after(end)
            || self.went_well_again_after(end)
            || self.starts_after(end)
    }

    /// Whether ranks of the job that was running at a place begin to come up behind it. Those of one communicator may be in parts of an input that were
    /// put one behind the other.
    fn starts_after(&self, place: Place) -> bool {
        self.is_of_job(&self.launches.started, place, |up| up.first.is_after(place))
    }

    /// Whether another run, or another attempt, begins behind an end.
    fn began_anew(&self, end: Place) -> bool {
        let begins = self.launches.started.iter().any(|up| up.first.is_after(end)) && !self.launches.is_before_all(end);
        let goes_on = || self.ended_well_after(end) || self.starts_after(end);
        self.recovered_after(end) || self.went_well_again_after(end) || begins && goes_on()
    }

    /// Whether what stands at a place is of a launch that is over, and the next one ends well or goes on.
    fn went_well_again_after(&self, place: Place) -> bool {
        self.launches.next_after(place).is_some_and(|again| {
            self.ended_well_after(again.next)
                || self.scripts.iter().any(|end| end.is_after(again.next))
                || again.goes_on
        })
    }

    /// Whether a place is of a launch that is over, the next one goes on, and nothing shows a good end.
    pub fn is_before_running(&self, place: Place) -> bool {
        self.launches.next_after(place).is_some_and(|again| again.goes_on) && !self.ended_well()
    }

    /// Whether what a launcher reports is of a launch before the one that the input ends with: only another launch refutes it, as it is over then.
    pub fn is_of_earlier_launch(&self, place: Place) -> bool {
        let succeeds = || self.reported.iter().any(|later| later.is_after(place));
        self.recovered_after(place)
            || self.went_well_again_after(place)
            || succeeds() && !self.launches.is_before_all(place)
    }

    /// Whether a time-out, or what PyTorch says of ranks that did not come, is of a launch before the one that the input ends with, or of another job.
    pub fn is_elsewhere(&self, timeout: &TorchStatement) -> bool {
        let place = timeout.source.place;
        self.recovered_after(place) || self.went_well_again_after(place) || self.pods.are_others(timeout)
    }

    /// Whether a launcher's report stands before what it reports of, as where two outputs were put together.
    pub fn is_unordered(&self, place: Place) -> bool {
        self.unordered.contains(&place)
    }

    /// Whether a launcher that had processes fail saw those of a later attempt end in order, behind a place of its input.
    pub fn recovered_after(&self, place: Place) -> bool {
        self.recovered.iter().any(|later| later.is_after(place))
    }

    /// Whether ranks of the job that was running at a place came up behind it, on a host.
    fn came_up_after(&self, place: Place, host: Option<&str>) -> bool {
        self.is_of_job(&self.launches.up, place, |up| {
            up.last.is_after(place) && (host.is_none() || up.host.as_deref() == host)
        })
    }

    /// Whether there are such starts of the job that was running at a place. What no job came before is of the next one.
    fn is_of_job(&self, ups: &[StartedRanks], place: Place, fits: impl Fn(&StartedRanks) -> bool) -> bool {
        let before = |up: &&StartedRanks| place.is_after(up.first);
        let jobs: HashSet<usize> = self.launches.up.iter().filter(before).map(|up| up.job).collect();
        ups.iter().any(|up| (jobs.is_empty() || jobs.contains(&up.job)) && fits(up))
    }

    /// Lines that show that the program went on.
    pub fn progress(&self) -> &[Progress] {
        &self.progress
    }

    /// Whether the program printed figures behind a place of its input.
    pub fn progressed_after(&self, place: Place) -> bool {
        self.progress.iter().any(|later| later.place.is_after(place))
    }

    /// Whether ranks came up before a place of its input, and neither a rank nor the program says a thing that shows that it goes on behind it.
    pub fn is_behind_all(&self, place: Place) -> bool {
        self.launches.up.iter().any(|up| place.is_after(up.last))
            && !self.launches.up.iter().any(|up| up.last.is_after(place))
            && !self.progressed_after(place)
    }

    /// Whether the run did what it was to do: its tables are whole, or its program says so.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Whether anything shows a good end.
    pub fn ended_well(&self) -> bool {
        !self.ended_well.is_empty()
    }

    /// Whether the process survived an end: it went on.
    pub fn survived(&self, end: Place) -> bool {
        self.survived.contains(&end)
    }

    /// Whether only what begins behind an end shows that it was survived.
    pub fn begins_anew(&self, end: Place) -> bool {
        self.anew.contains(&end)
    }

    /// Whether an exception that somebody may have caught or logged, or one alone right behind figures, is the last that its input has.
    pub fn may_be_last(&self, end: &RankEnd) -> bool {
        let place = end.source.place;
        let is_above = |earlier: &Progress| place.is_after(earlier.place) && place.line - earlier.place.line == 1;
        let of_gpu = || !self.ended_well() && is_error_of_gpu(&end.source.text);
        let alone = || may_be_caught(end) && (self.progress.iter().any(is_above) || of_gpu());
        // Of several processes, one may answer to another that goes on.
        let speaks_for_all = || end.pid.is_none() || self.launches.up.is_empty() && self.progress.is_empty();
        let handled = || if end.logged { is_of_outermost(end) } else { end.caught };
        !end.went_on && self.is_last(place) && (handled() && speaks_for_all() || alone())
    }

    /// Whether a place is the last of its input, but for an empty line or a shell's prompt.
    pub fn is_last(&self, place: Place) -> bool {
        let behind = u64::from(!self.ends_in_text.contains(&place.input));
        self.lines.get(place.input as usize).is_some_and(|lines| *lines <= place.line + behind)
    }

    /// Whether other ranks may have printed what stands behind an exception that nobody caught: the output does not tell them apart.
    pub fn may_be_others(&self, end: &RankEnd) -> bool {
        let unlabelled = end.ranks.is_empty() && end.pid.is_none() && end.local.is_none();
        let uncaught = !end.is_handled() && matches!(&end.how, Ended::Exception { at: Some(_), .. });
        self.several && unlabelled && uncaught && !self.is_followed(end.source.place)
    }

    /// Whether ranks came up, or ended well, and a process that ended may be none of them: a child of `multiprocessing`, a program that starts no ranks, or a
    /// script of Python's whose number is not among theirs.
    pub fn may_be_beside(&self, end: &RankEnd) -> bool {
        let script = end.command.as_ref().is_some_and(|command| self.ranks.are_not(end.pid, command));
        (!self.launches.up.is_empty() || self.ended_well())
            && end.ranks.is_empty()
            && (end.child || script || end.told_by == EndTeller::List || self.ranks.is_none(end))
    }

    /// Whether a process that ended may be one of the run: a rank by its number, or by its name one that starts ranks, unless all ended well. Where the
    /// input shows neither the number of a rank nor that ranks are PyTorch's, any may be.
    pub fn may_be_of_run(&self, pid: Option<u64>, command: &str) -> bool {
        self.ranks.may_have(pid, command) && !(self.ended_well() && self.ranks.are_others(pid))
    }

    /// Whether a good end stands at a place or behind it in the same input.
    pub fn ended_well_after(&self, place: Place) -> bool {
        self.ended_well.iter().any(|end| *end == place || end.is_after(place))
    }

    /// Whether anything shows a good end that is not known to stand before a place.
    pub fn may_have_ended_well_after(&self, place: Place) -> bool {
        self.ended_well.iter().any(|end| !place.is_after(*end))
    }

    /// Whether trouble of a rank's start stands behind ranks that came up: theirs it cannot be.
    fn is_of_another_start(&self, line: &Line) -> bool {
        line.speaker == Speaker::Launcher && self.launches.up.iter().any(|up| line.source.place.is_after(up.last))
    }

    /// Whether a line is ssh's, and no launcher says that it failed: another program called it.
    fn is_of_another_program(&self, line: &Line) -> bool {
        let place = line.source.place;
        let is_all = || self.is_little(place) && !self.launches.up.iter().any(|up| place.is_after(up.last));
        line.speaker == Speaker::Ssh && !self.is_reported_by_launcher(place) && !is_all()
    }

    /// Whether trouble of a launch stands behind a run that is whole: it is of another command.
    pub fn is_of_another_launch(&self, line: &Line) -> bool {
        line.speaker == Speaker::Launcher && self.succeeded.iter().any(|(_, end)| line.source.place.is_after(*end))
    }

    /// Whether trouble of MPI or a library below it stands before rows of the program: it had started.
    fn had_started(&self, line: &Line) -> bool {
        let rows = || self.progress.iter().filter(|later| later.is_row);
        let rows_after = || rows().any(|row| row.place.is_after(line.source.place));
        matches!(line.speaker, Speaker::Launcher | Speaker::NetLibrary) && rows_after()
    }

    /// Whether trouble of PyTorch's store stands before the time-out of a rank that waited for another: these had found each other.
    fn had_met(&self, line: &Line) -> bool {
        let torch = matches!(line.speaker, Speaker::Torch | Speaker::Python);
        torch && self.waited.iter().any(|waited| waited.is_after(line.source.place))
    }

    /// Whether a launcher reports a failure behind a line of ssh's.
    fn is_reported_by_launcher(&self, place: Place) -> bool {
        let reports = |report: &Place| report.is_after(place) && report.line - place.line < LINES_OF_A_START;
        self.launchers.iter().any(reports)
    }

    /// Whether an input holds little.
    fn is_little(&self, place: Place) -> bool {
        self.lines.get(place.input as usize).copied().unwrap_or_default() < LITTLE
    }

    /// Whether a line that ends a communicator is of an earlier launch, or the program went on for long and ended well.
    fn goes_on_after(&self, line: &Line) -> bool {
        /// Other ranks print a step or two before they notice.
        const LONG: usize = 4;
        let place = line.source.place;
        let ended = self.ended_well_after(place);
        let steps = self.progress.iter().filter(|later| later.place.is_after(place)).take(LONG).count();
        self.went_well_again_after(place) || ended && steps == LONG && !self.displaced.contains(&place)
    }

    /// Whether the program of a line goes on behind it, and nothing fails there. What a machine says of itself is of no program.
    fn went_on_after(&self, line: &Line) -> bool {
        let place = line.source.place;
        let is_of_library = matches!(line.speaker, Speaker::Launcher | Speaker::NetLibrary);
        line.speaker != Speaker::Kernel && (self.counts_after(place) || self.serves_after(place))
            || is_of_library && self.was_done_after(place)
    }

    /// Whether something says behind a place that a program, or what a launcher started, ended well, in an input of which nothing fails.
    fn was_done_after(&self, place: Place) -> bool {
        !self.failed.contains_key(&place.input) && self.scripts.iter().any(|end| end.is_after(place))
    }

    /// Whether an input shows behind a place that a process failed.
    fn fails_after(&self, place: Place) -> bool {
        self.failed.get(&place.input).is_some_and(|last| last.is_after(place))
    }

    /// Whether a line gives the reason of an end in a list, which stands below it: the end is judged.
    fn is_of_list(&self, line: &Line) -> bool {
        let place = line.source.place;
        let mut below = (1..=2).map(|below| Place { line: place.line + below, ..place });
        line.text.trim_start().starts_with("Reason: ") && below.any(|place| self.listed.contains(&place))
    }

    /// Whether the run went on after a line in spite of what it says.
    pub fn refute(&self, until: Until, line: &Line) -> bool {
        let place = line.source.place;
        if until == Until::Never {
            return false;
        }
        if is_torch_warning(line) && !self.launches.up.is_empty() {
            return true;
        }
        // A message goes on in lines with an indent.
        let is_of_python = line.speaker == Speaker::Python || line.source.text.starts_with(['\t', ' ']);
        if is_of_python && heads_of(place).any(|head| self.survived(head)) {
            return true;
        }
        // Events of a cluster are of any of its pods.
        let of_any = || self.ended_well() && is_event(line.text.trim());
        let ended = || self.ended_well_after(place) || self.went_well_again_after(place) || of_any();
        let came_up = || self.came_up_after(place, line.host);
        if self.strangers.contains(&place) || pods::is_of_another(&line.text) || self.is_of_list(line) {
            return true;
        }
        match until {
            Until::Never | Until::End => ended() || self.went_on_after(line),
            Until::Rerun => self.goes_on_after(line) || self.serves_after(place) || self.counts_long_after(place),
            Until::Start => {
                ended()
                    || came_up()
                    || self.is_of_another_start(line)
                    || self.had_started(line)
                    || self.had_met(line)
                    || self.went_on_after(line)
            }
            Until::Launch => {
                ended()
                    || came_up()
                    || self.is_of_another_program(line)
                    || self.progressed_after(place)
                    || self.was_done_after(place)
                    || self.is_of_another_launch(line)
            }
        }
    }
}

/// Where an exception may begin whose message a line belongs to.
pub(crate) fn heads_of(place: Place) -> impl Iterator<Item = Place> {
    (place.line.saturating_sub(LINES_OF_MESSAGE)..=place.line).map(move |line| Place { line, ..place })
}

/// The number of lines of each input, one without an end of line counted, and the inputs whose last line somebody said.
fn last_lines(run: &Run) -> (Vec<u64>, HashSet<u32>) {
    let is_prompt = |text: &str| text.trim_end().ends_with(['$', '#', '>']);
    let said = run.statements.iter().filter(|one| !is_prompt(&one.source.text)).map(|one| one.source.place);
    let told = said.chain(run.ends.iter().map(|end| end.source.place));
    let mut lines: Vec<u64> = run.inputs.iter().map(|input| input.lines).collect();
    let mut in_text = HashSet::new();
    for place in told {
        let Some(count) = lines.get_mut(place.input as usize).filter(|count| **count <= place.line) else { continue };
        *count = place.line;
        in_text.insert(place.input);
    }
    (lines, in_text)
}

/// Whether tables are there and whole, or a program reports success.
fn is_finished(run: &Run) -> bool {
    let mut tables = run.tables.iter().filter(|table| !table.rows.is_empty()).peekable();
    run.ends.iter().any(RankEnd::ended_run_well) || tables.peek().is_some() && tables.all(|table| table.finished)
}

/// Whether an exception reached the program's outermost function: who catches it there has nothing left to do.
fn is_of_outermost(end: &RankEnd) -> bool {
    end.frames.first().is_some_and(|frame| frame.function == "main" || frame.function.starts_with('<'))
}

/// Whether an end is a line alone of an exception, without the traceback of one that nobody caught: programs print it and try again. A communicator
/// is gone after an error.
fn may_be_caught(end: &RankEnd) -> bool {
    let of_communicator = |kind: &str| kind.starts_with("nccl") || kind.contains("Dist");
    matches!(&end.how, Ended::Exception { traceback: false, kind, .. } if !of_communicator(kind))
}

/// Where each input shows last that a process failed, other than by an exception that was logged, or of a command beside the run. What a library reports
/// ends no process by itself.
fn last_failures(run: &Run, ranks: &Ranks) -> HashMap<u32, Place> {
    let is_beside = |end: &RankEnd| end.told_by == EndTeller::Runner && matches!(end.how, Ended::Exception { .. });
    let fails = |end: &&RankEnd| {
        let is_failure = !matches!(end.how, Ended::Success | Ended::Interrupted(_));
        let is_of_process = end.told_by != EndTeller::Library;
        is_failure && is_of_process && !end.is_handled() && !is_beside(end) && !ranks.lives(end)
    };
    let ends = run.ends.iter().filter(fails).map(|end| end.source.place);
    let timeouts = run.torch_statements.iter().filter(|told| matches!(told.event, TorchEvent::Timeout { .. }));
    let mut places: Vec<Place> = ends.chain(timeouts.map(|told| told.source.place)).collect();
    places.sort_unstable();
    places.into_iter().map(|place| (place.input, place)).collect()
}

/// A warning or note of PyTorch's C++ log, `[W1012 10:00:00.0 socket.cpp:752]`: where ranks came up it was survived, whenever it was printed.
fn is_torch_warning(line: &Line) -> bool {
    let letter = |text: &str| text.trim_start().strip_prefix('[').is_some_and(|rest| rest.starts_with(['W', 'I']));
    line.speaker == Speaker::Torch
        && (letter(&line.text) || line.text.split_once("]:").is_some_and(|(_, rest)| letter(rest)))
}
