//! Launchers whose processes failed before they left in order, and connections of strangers.

use busbw_model::{EndTeller, Ended, Place, Run, SourceLine, Speaker, Warning};
use std::collections::HashSet;

/// Where launchers report that all that they started left with status 0. torchrun's agents: `[default] worker group successfully finished.`, `Local worker group finished
/// (WorkerState.SUCCEEDED).` Of those that had workers fail before, by the number of their process in front of the file's name.
pub(super) fn recovered(run: &Run) -> Vec<Place> {
    let agent = |text: &str| Some(text.split_once(" torch/distributed/elastic/")?.0.rsplit(' ').next()?.to_string());
    let succeeded = |text: &str| {
        text.contains("] worker group successfully finished")
            || text.contains("Local worker group finished (") && text.contains("SUCCEEDED)")
    };
    let failures = || run.ends.iter().map(|end| &end.source).filter(|line| line.text.contains("failed (exitcode: "));
    let said = run.statements.iter().filter(|one| one.speaker == Speaker::Launcher && succeeded(&one.source.text));
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
