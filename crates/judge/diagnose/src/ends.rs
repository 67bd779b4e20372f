//! How the processes of a run ended: which ends nothing refutes, and which of them explains the others.
//!
//! The cause is the earliest end that no other explains. An exception, a crash or a program that gave up is a rank's own; lost
//! connections, time-outs, exit statuses and signals of the launcher follow from it, wherever they stand.

use crate::refute::{Refuters, heads_of};
use crate::results;
use crate::words::KNOWN;
use busbw_model::{EndTeller, Ended, Place, RankEnd, Run, TorchEvent, TorchStatement};

/// The ends of a run.
#[derive(Debug, Default)]
pub struct Ends<'a> {
    /// Those that nothing refutes, in order.
    pub standing: Vec<&'a RankEnd>,
    /// Those that came after the run had ended well.
    pub after_success: Vec<&'a RankEnd>,
    pub interrupted: Option<&'a RankEnd>,
    /// That of a run before the one that the input ends with.
    pub earlier: Option<&'a RankEnd>,
    /// Those of processes that may be none of the run, which nothing follows: a question.
    pub beside: Vec<&'a RankEnd>,
    /// Lines that look like exceptions behind time-outs of their input: the process was being taken down.
    pub aftermath: Vec<Place>,
    /// Time-outs that watchdogs reported.
    pub timeouts: Vec<&'a TorchStatement>,
}

impl<'a> Ends<'a> {
    pub fn of(run: &'a Run, refuters: &Refuters) -> Self {
        let timeout = |statement: &&TorchStatement| {
            matches!(statement.event, TorchEvent::Timeout { .. }) && !refuters.is_elsewhere(statement)
        };
        let mut ends = Ends { timeouts: run.torch_statements.iter().filter(timeout).collect(), ..Ends::default() };
        let (mut alone, mut beside, mut success) = (Vec::new(), Vec::new(), None::<&RankEnd>);
        for end in &run.ends {
            match &end.how {
                Ended::Success if end.ended_run_well() => success = Some(end),
                // Another launch may follow.
                Ended::Success => {}
                _ if refuters.survived(end.source.place) => {
                    let is_open = refuters.may_be_last(end) || refuters.may_be_others(end);
                    beside.extend((is_open || refuters.begins_anew(end.source.place)).then_some(end));
                    ends.earlier = ends.earlier.or(Some(end).filter(|end| is_of_earlier_run(end, refuters)));
                }
                // srun cancels a step itself after a task that was killed.
                Ended::Interrupted(by) if by == "Slurm: cancelled" && ends.a_rank_fell_before(end.source.place) => {}
                // Slurm starts it again.
                Ended::Interrupted(by) if is_of_a_restart(by) && refuters.progressed_after(end.source.place) => {}
                // So it does on other nodes, and those that are left print a step or two first.
                Ended::Interrupted(by) if by == "Slurm: node failure" && refuters.counts_after(end.source.place) => {}
                // What looks after a whole job sends it to launchers too, once a rank has failed.
                Ended::Interrupted(_) if end.told_by == EndTeller::Launcher => ends.standing.push(end),
                Ended::Interrupted(_) => ends.interrupted = ends.interrupted.or(Some(end)),
                _ if refuters.is_unordered(end.source.place) => beside.push(end),
                Ended::Exception { traceback: false, .. } if ends.timed_out_before(end.source.place) => {
                    ends.aftermath.push(end.source.place);
                }
                Ended::Exception { traceback: false, kind, message, .. } if !is_of_torch(kind, message) => {
                    alone.push(end)
                }
                _ if refuters.may_be_beside(end) || is_of_commands(end) && refuters.ended_well() => beside.push(end),
                _ if success.is_some_and(|success| success.source.place.input == end.source.place.input) => {
                    ends.after_success.push(end);
                }
                _ => ends.standing.push(end),
            }
        }
        ends.take_workers(run, refuters, &mut alone);
        beside.extend(alone.iter().copied().filter(|end| refuters.may_be_last(end)));
        alone.retain(|end: &&RankEnd| ends.failed_after(end.source.place) || is_all(run, end.source.place));
        beside.retain(|end| !alone.iter().any(|alone| std::ptr::eq(*end, *alone)));
        let explains = |end: &&RankEnd| ends.failed_after(end.source.place);
        let (of_run, beside): (Vec<&RankEnd>, _) = beside.into_iter().partition(explains);
        // A list without a name tells of an earlier run of the same container.
        let is_open = |end: &&RankEnd| match (end.told_by, &end.command) {
            (EndTeller::Report | EndTeller::Launcher, _) | (EndTeller::List, Some(_)) => true,
            _ if end.is_of_excepthook() => true,
            (EndTeller::Runner, _) | (_, Some(_)) => !refuters.ended_well_after(end.source.place),
            _ => !refuters.ended_well(),
        };
        ends.beside = beside.into_iter().filter(is_open).collect();
        ends.standing.extend(alone.into_iter().chain(of_run));
        if ends.interrupted.is_some() {
            ends.standing.retain(|end| weight(&end.how, false) < Weight::Killed);
        }
        ends.standing.sort_by_key(|end| end.source.place);
        ends.take_stopped();
        ends
    }

    /// Takes what torchrun says of a signal to itself for the end of a run that somebody stopped, where nothing else is known of its ranks.
    fn take_stopped(&mut self) {
        let Some(stop) = self.standing.iter().copied().find(|end| stopped_by(end).is_some()) else { return };
        let follows = |end: &RankEnd| end.source.place.is_after(stop.source.place) && follows_a_stop(end);
        if self.timeouts.is_empty() && self.standing.iter().all(|end| stopped_by(end).is_some() || follows(end)) {
            self.interrupted = self.interrupted.or(Some(stop));
            self.standing.clear();
        }
    }

    /// Takes exceptions of workers where what Ray or vLLM raised of them stands: the worker's own may be printed behind it, and was caught.
    fn take_workers(&mut self, run: &'a Run, refuters: &Refuters, alone: &mut Vec<&'a RankEnd>) {
        let is_of_worker =
            |end: &&RankEnd| matches!(&end.how, Ended::Exception { kind, message, .. } if follows(kind, message));
        if self.standing.iter().any(is_of_worker) {
            let caught = run.ends.iter().filter(|end| end.caught && end.pid.is_some() && !end.went_on);
            self.standing.extend(caught.filter(|end| refuters.survived(end.source.place)));
            self.standing.extend(alone.extract_if(.., |end| end.pid.is_some()));
        }
    }

    /// Whether a watchdog reported a time-out before a place of its input.
    fn timed_out_before(&self, place: Place) -> bool {
        self.timeouts.iter().any(|timeout| place.is_after(timeout.source.place))
    }

    /// Whether a launcher reports ranks that failed before a place of its input.
    fn a_rank_fell_before(&self, place: Place) -> bool {
        let is_status = |how: &Ended| matches!(how, Ended::Exit(Some(_)));
        let fell =
            |end: &&&RankEnd| !end.ranks.is_empty() && (weight_of(end, false) <= Weight::Killed || is_status(&end.how));
        self.standing.iter().filter(fell).any(|end| place.is_after(end.source.place))
    }

    /// Whether a failure is reported behind a place of its input.
    fn failed_after(&self, place: Place) -> bool {
        let failures = self.timeouts.iter().map(|timeout| timeout.source.place);
        self.standing.iter().map(|end| end.source.place).chain(failures).any(|failure| failure.is_after(place))
    }

    /// Whether a line belongs to the message of a process that may be none of the run.
    pub fn are_open(&self, line: Place) -> bool {
        heads_of(line).any(|head| self.beside.iter().any(|end| end.source.place == head))
    }

    /// Whether the run failed, or somebody ended it.
    pub fn are_over(&self) -> bool {
        self.failed() || self.interrupted.is_some()
    }

    pub fn failed(&self) -> bool {
        !self.standing.is_empty() || !self.timeouts.is_empty()
    }

    fn is_of_a_consequence(&self, end: &RankEnd) -> bool {
        let aborted = matches!(&end.how, Ended::Crash { what, .. } if is_abort(what));
        let ranks = if aborted { self.ranks_of(end) } else { &[] };
        aborted && self.standing.iter().any(|said| repeats(end, ranks, said))
    }

    /// Whose end it is: torchrun tells the number of a process first, and in its report the rank as well.
    fn ranks_of(&self, end: &'a RankEnd) -> &'a [u32] {
        let same = |other: &&&RankEnd| end.pid.is_some() && other.pid == end.pid && !other.ranks.is_empty();
        let known = self.standing.iter().find(same).filter(|_| end.ranks.is_empty());
        known.map_or(&end.ranks, |known| &known.ranks)
    }

    /// The end that explains the others: the program's own exception or crash before what NCCL returned.
    pub fn cause(&self) -> Option<&'a RankEnd> {
        let weight = |end: &&RankEnd| weight_of(end, !self.timeouts.is_empty());
        // A launcher kills the others after the first that leaves with an exit status; who leaves behind one that was killed follows it.
        let exits = self.standing.iter().filter(|end| matches!(end.how, Ended::Exit(_)));
        let exits: Vec<Place> = exits.map(|end| end.source.place).collect();
        let left = |killed: &&RankEnd| exits.iter().any(|exit| !exit.is_after(killed.source.place));
        let explains = |end: &&RankEnd| match weight(end) {
            Weight::Killed => self.timeouts.is_empty() && !left(end),
            weight => weight < Weight::Consequence,
        };
        let found = self.standing.iter().copied().filter(explains);
        let found = found.filter(|end| !self.is_of_a_consequence(end));
        found.min_by_key(|end| (weight(end), end.source.place))
    }
}

/// Whether Slurm stopped a job that it starts again.
fn is_of_a_restart(by: &str) -> bool {
    ["Slurm: requeued", "Slurm: preempted"].contains(&by)
}

/// Who stopped a run: what a batch system or a terminal says, and torchrun of a signal that it got
/// (`torch/distributed/elastic/multiprocessing/api.py`, `_terminate_process_handler`): SIGHUP, SIGINT or SIGTERM.
pub fn stopped_by(end: &RankEnd) -> Option<String> {
    match &end.how {
        Ended::Interrupted(by) => Some(by.clone()),
        Ended::Exception { kind, message, .. } if kind.ends_with("SignalException") => {
            let (_, signal) = message.split_once(" got signal: ")?;
            ["1", "2", "15"].contains(&signal).then(|| format!("torchrun got signal {signal}"))
        }
        _ => None,
    }
}

/// Whether an end behind torchrun's word of a signal may follow from it: a process that got the same one, or a launcher's report of torchrun's own.
fn follows_a_stop(end: &RankEnd) -> bool {
    match &end.how {
        // Where a traceback is cut off, nobody sees of what.
        Ended::Exit(status) => end.told_by == EndTeller::Launcher || status.is_none(),
        Ended::Killed(by) => ["signal 15", "SIGTERM", "Terminated"].contains(&by.as_str()),
        // Its peers got the signal first.
        Ended::Exception { kind, message, .. } => {
            follows(kind, message)
                || KNOWN.lost.contains(kind)
                || message.trim_end().ends_with("is killed by signal: Terminated.")
        }
        Ended::Crash { what, message, .. } => is_abort(what) || follows(what, message),
        Ended::Failure(said) => follows("", said),
        _ => false,
    }
}

/// Whether an end is the abort or signal of a process that says itself what it follows from: in its own output, or as its rank.
fn repeats(report: &RankEnd, ranks: &[u32], said: &RankEnd) -> bool {
    let same_rank = !ranks.is_empty() && ranks == said.ranks;
    let crashed = matches!(&said.how, Ended::Crash { what, message, .. } if follows(what, message));
    crashed && (same_rank || report.source.place.input == said.source.place.input)
}

/// Whether it is told of what runs commands, one of which may have failed behind the run.
fn is_of_commands(end: &RankEnd) -> bool {
    matches!(end.told_by, EndTeller::Runner | EndTeller::Report)
}

/// Whether an input holds little more than the line at a place: somebody copied what a program died of.
fn is_all(run: &Run, place: Place) -> bool {
    const MOST_BEFORE: u64 = 4;
    let input = run.inputs.get(place.input as usize);
    place.line <= MOST_BEFORE && input.is_some_and(|input| input.kinds.is_empty()) && run.communicators.is_empty()
}

/// Whether a process of a run ended so that failed before the one that the input ends with.
fn is_of_earlier_run(end: &RankEnd, refuters: &Refuters) -> bool {
    let place = end.source.place;
    match end.told_by {
        EndTeller::Launcher => refuters.is_of_earlier_launch(place),
        EndTeller::Job | EndTeller::Library => {
            let of_run = !end.is_handled() && !end.went_on;
            of_run && weight_of(end, false) < Weight::Consequence && refuters.is_followed(place)
        }
        _ => false,
    }
}

/// How likely an end is the cause of the others; the first explains those behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Own,
    /// NCCL returned an error to it.
    Nccl,
    /// It was killed, and nothing else shows why the run ended.
    Killed,
    /// It follows from another, or only says that there was one.
    Consequence,
}

/// The weight of an end, which its way of ending alone does not show where a parent passes on what became of a child.
pub fn weight_of(end: &RankEnd, timed_out: bool) -> Weight {
    match weight(&end.how, timed_out) {
        Weight::Own if end.relays => Weight::Consequence,
        weight => weight,
    }
}

/// `timed_out`: watchdogs ended ranks, and they abort to do so.
pub fn weight(how: &Ended, timed_out: bool) -> Weight {
    match how {
        Ended::Exception { kind, message, .. } if follows(kind, message) => Weight::Consequence,
        Ended::Exception { kind, message, .. } if is_nccl_error(kind, message) => Weight::Nccl,
        Ended::Exception { .. } => Weight::Own,
        Ended::Crash { what, message, .. } if is_abort(what) && timed_out || follows(what, message) => {
            Weight::Consequence
        }
        Ended::Crash { what, message, .. } if is_nccl_error(what, message) => Weight::Nccl,
        Ended::Crash { what, .. } if is_abort(what) => Weight::Nccl,
        Ended::Crash { .. } => Weight::Own,
        Ended::Failure(said) if follows("", said) => Weight::Consequence,
        Ended::Failure(_) | Ended::Lost(_) => Weight::Nccl,
        Ended::Killed(by) if by == "oom_kill" || by.starts_with("Out Of Memory") => Weight::Own,
        Ended::Killed(by) if by.starts_with("Killed") || by == "signal 9" || by == "SIGKILL" => Weight::Killed,
        _ => Weight::Consequence,
    }
}

fn is_abort(what: &str) -> bool {
    what.starts_with("Aborted") || what == "signal 6" || what == "SIGABRT" || what.ends_with("DistBackendError")
}

/// Whether an exception is a result of NCCL's, in PyTorch (`torch/csrc/distributed/c10d/NCCLUtils.hpp`) or another framework.
pub fn is_nccl_error(kind: &str, message: &str) -> bool {
    kind.ends_with("DistBackendError") || results::by_words(kind).is_some() || results::reported(message).is_some()
}

fn is_of_torch(kind: &str, message: &str) -> bool {
    kind.starts_with("torch.") || is_nccl_error(kind, message)
}

/// Whether an exception is about another process's end: wrappers around a worker's exception, and lost connections.
fn follows(kind: &str, message: &str) -> bool {
    is_one_of(kind, &KNOWN.wrappers)
        || is_one_of(kind, &KNOWN.gone)
        || KNOWN.lost.iter().any(|text| message.contains(text))
}

/// Whether the type of an exception is in a list, whatever its module.
pub fn is_one_of(kind: &str, names: &[String]) -> bool {
    let name = kind.rsplit(['.', ':']).next().unwrap_or(kind);
    names.iter().any(|known| known == name)
}

/// Whether an end only says that a process failed.
pub fn is_report(end: &RankEnd) -> bool {
    match &end.how {
        Ended::Exception { kind, .. } => end.relays || is_one_of(kind, &KNOWN.wrappers),
        Ended::Exit(_) => true,
        _ => false,
    }
}
