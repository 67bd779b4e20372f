//! What was survived: ends whose process went on, launchers whose processes failed before they left in order, and connections of strangers.

use super::processes::starts_ranks;
use super::{Refuters, may_be_caught};
use busbw_model::{EndTeller, Ended, Place, RankEnd, Run, SourceLine, Speaker, Statement, Warning};
use std::collections::HashSet;

/// Where ends are told for which something holds.
pub(super) fn survived(refuters: &Refuters, run: &Run, holds: fn(&Refuters, &Run, &RankEnd) -> bool) -> HashSet<Place> {
    let of_place = run.ends.iter().filter(|end| !is_of_any_place(end));
    of_place.filter(|end| holds(refuters, run, end)).map(|end| end.source.place).collect()
}

/// Whether the loop of a training begins behind an exception of nobody, or a server behind any end.
pub(super) fn goes_on_anew(facts: &Refuters, _: &Run, end: &RankEnd) -> bool {
    let place = end.source.place;
    let begins = || !facts.fails_after(place) && facts.begins_behind(place);
    is_of_nobody(end) && begins() || facts.serves_anew_after(place)
}

/// Whether a process went on behind what tells of its end, or the run without it.
pub(super) fn is_survived(facts: &Refuters, run: &Run, end: &RankEnd) -> bool {
    let place = end.source.place;
    let goes_on = || match end.told_by {
        EndTeller::Launcher => facts.is_of_earlier_launch(place),
        _ if end.is_of_excepthook() => facts.began_anew(place),
        _ => facts.is_followed(place),
    };
    let is_of_program = || match end.how {
        Ended::Exit(_) => end.told_by != EndTeller::Launcher,
        Ended::Exception { .. } => end.ranks.is_empty() && end.told_by != EndTeller::Launcher,
        _ => false,
    };
    let fails = || facts.fails_after(place);
    let progressed = || facts.progressed_after(place);
    facts.ranks.lives(end) && !is_reported(run, place)
        || facts.ranks.is_none(end) && progressed()
        || end.is_handled() && !fails()
        || (may_be_caught(end) || may_go_on(end)) && !fails() && progressed()
        || goes_on()
        || is_of_program() && facts.succeeded.iter().any(|(began, _)| began.is_after(place))
}

/// Whether an agent of torchrun's says that its workers left with status 0: `[default] worker group successfully finished.`, `Local worker group finished
/// (WorkerState.SUCCEEDED).`
pub(crate) fn is_of_agent_that_succeeded(one: &Statement) -> bool {
    let text = &one.source.text;
    let succeeded = text.contains("] worker group successfully finished")
        || text.contains("Local worker group finished (") && text.contains("SUCCEEDED)");
    succeeded && one.speaker == Speaker::Launcher
}

/// Where launchers report that all that they started left with status 0. Of torchrun's agents those that had workers fail before, by the number of their
/// process in front of the file's name.
pub(super) fn recovered(run: &Run) -> Vec<Place> {
    let agent = |text: &str| Some(text.split_once(" torch/distributed/elastic/")?.0.rsplit(' ').next()?.to_string());
    let failures = || run.ends.iter().map(|end| &end.source).filter(|line| line.text.contains("failed (exitcode: "));
    let said = run.statements.iter().filter(|one| is_of_agent_that_succeeded(one));
    let of_one = said.filter(|said| {
        let same = |failure: &&SourceLine| agent(&failure.text) == agent(&said.source.text);
        failures().filter(same).any(|failure| said.source.place.is_after(failure.place))
    });
    let of_launcher = run.ends.iter().filter(|end| end.how == Ended::Success && end.told_by == EndTeller::Launcher);
    of_one.map(|one| one.source.place).chain(of_launcher.map(|end| end.source.place)).collect()
}

/// Warnings of a connection that closed while NCCL's service thread waited for its first words, which the thread says next: NCCL goes on to listen.
/// It is none of a rank's, but of a scan of ports or the like (NCCL src/proxy.cc, `ncclProxyService`).
pub(super) fn strangers(run: &Run) -> HashSet<Place> {
    const LINES: u64 = 8;
    let warnings = &run.nccl.warnings;
    let closed = warnings.iter().filter(|warning| warning.message.contains("Connection closed by remote peer"));
    let refused = |closed: &&Warning| {
        let place = closed.source.place;
        let next =
            |later: &&Warning| later.source.place.is_after(place) && later.source.place.line <= place.line + LINES;
        closed.who.is_some()
            && warnings
                .iter()
                .filter(next)
                .any(|later| later.who == closed.who && later.message.starts_with("[Service thread] Accept failed"))
    };
    closed.filter(refused).map(|warning| warning.source.place).collect()
}

/// Whether an end is an exception of which the output does not show whose it is.
fn is_of_nobody(end: &RankEnd) -> bool {
    matches!(end.how, Ended::Exception { .. }) && end.ranks.is_empty() && end.pid.is_none() && end.local.is_none()
}

/// Whether a launcher reports a failure in the next lines of an input.
fn is_reported(run: &Run, place: Place) -> bool {
    const LINES: u64 = 12;
    let reports = run.ends.iter().filter(|end| matches!(end.how, Ended::Exit(_)));
    reports.map(|end| end.source.place).any(|report| report.is_after(place) && report.line - place.line <= LINES)
}

/// Whether the place of what tells of an end does not show when it was.
fn is_of_any_place(end: &RankEnd) -> bool {
    matches!(end.told_by, EndTeller::List | EndTeller::Report)
}

/// Whether what reports an end may go on with other commands, or a shell names the command, and it starts no ranks.
fn may_go_on(end: &RankEnd) -> bool {
    matches!(end.told_by, EndTeller::Runner | EndTeller::Library)
        || end.command.as_ref().is_some_and(|command| !starts_ranks(command))
}
