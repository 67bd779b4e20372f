//! What refutes an error: facts of the run, shared by all rules.
//!
//! A line speaks of trouble at its place in the stream. What comes after it may show that the trouble was survived: the
//! communicator came up, or the run ended well. Nothing refutes what a machine says of itself.

use crate::data::Until;
use crate::lines::Line;
use busbw_model::{Communicator, Ended, Place, Run, Speaker};

/// Lines that a message of an exception has below its first.
const LINES_OF_MESSAGE: u64 = 3;

/// The facts that refute, of a run.
#[derive(Debug, Default)]
pub struct Refuters {
    /// Where a rank came up, and on which host.
    up: Vec<(Place, Option<String>)>,
    /// Lines that show a good end: a whole table, a program that reports success, ranks that all left in order.
    ended_well: Vec<Place>,
    /// Those that a program that fails does not print as it exits.
    succeeded: Vec<Place>,
    /// Exceptions that their process survived.
    survived: Vec<Place>,
}

impl Refuters {
    /// Collects them.
    pub fn of(run: &Run) -> Self {
        let host = |node: Option<u32>| node.and_then(|node| run.nodes.get(node as usize)).map(|node| node.host.clone());
        let ranks = run.communicators.iter().flat_map(|comm| comm.ranks.values());
        let up = ranks.filter_map(|rank| Some((rank.up?, host(rank.node)))).collect();
        let finished = run.ends.iter().filter(|end| end.how == Ended::Success).map(|end| end.source.place);
        let tables = run.tables.iter().filter(|table| table.finished && !table.rows.is_empty());
        let tables = tables.filter_map(|table| table.rows.last()).map(|row| row.source.place);
        let left = run.communicators.iter().filter(|comm| comm.ranks.values().all(|rank| rank.left.is_some()));
        let last = |comm: &Communicator| comm.ranks.values().filter_map(|rank| rank.left).max();
        let destroyed = left.clone().filter(|comm| comm.ranks.values().all(|rank| !rank.aborted)).filter_map(last);
        let ended: Vec<Place> = finished.chain(tables).chain(destroyed).collect();
        let ended_well = ended.iter().copied().chain(left.filter_map(last)).collect();
        // A communicator of all ranks comes up only with all of them.
        let largest = run.communicators.iter().filter_map(|comm| comm.nranks).max();
        let whole = run.communicators.iter().filter(|comm| comm.nranks == largest && comm.came_up());
        let started = whole.filter_map(|comm| comm.ranks.values().filter_map(|rank| rank.up).min());
        let succeeded = ended.into_iter().chain(started).collect();
        let survived = run.ends.iter().filter(|end| end.went_on).map(|end| end.source.place).collect();
        Refuters { up, ended_well, succeeded, survived }
    }

    /// Whether anything shows a good end.
    pub fn ended_well(&self) -> bool {
        !self.ended_well.is_empty()
    }

    /// Whether the process survived an end: it went on, or something behind it shows that only a process that goes on prints.
    pub fn survived(&self, end: Place) -> bool {
        self.survived.contains(&end) || self.succeeded.iter().any(|later| is_after(*later, end))
    }

    /// Whether a good end stands behind a place of the same input.
    pub fn ended_well_after(&self, place: Place) -> bool {
        self.ended_well.iter().any(|end| is_after(*end, place))
    }

    /// Whether the run went on after a line in spite of what it says.
    pub fn refute(&self, until: Until, line: &Line) -> bool {
        let place = line.source.place;
        let after = |later: Place| is_after(later, place);
        let same_host = |host: &Option<String>| line.host.is_none() || host.as_deref() == line.host;
        if is_torch_warning(line) && !self.up.is_empty() && until != Until::Never {
            return true;
        }
        let of_survived =
            |known: &Place| *known == place || is_after(place, *known) && place.line <= known.line + LINES_OF_MESSAGE;
        if line.speaker == Speaker::Python && self.survived.iter().any(of_survived) {
            return true;
        }
        let ended = || self.ended_well_after(place);
        match until {
            Until::Never => false,
            Until::End => ended(),
            Until::Start => ended() || self.up.iter().any(|(up, host)| after(*up) && same_host(host)),
        }
    }
}

/// Whether a place is behind another of the same input.
pub fn is_after(later: Place, place: Place) -> bool {
    later.input == place.input && later.line > place.line
}

/// A warning or note of PyTorch's C++ log, `[W1012 10:00:00.0 socket.cpp:752]`: where ranks came up it was survived, whenever it was printed.
fn is_torch_warning(line: &Line) -> bool {
    let letter = |text: &str| text.trim_start().strip_prefix('[').is_some_and(|rest| rest.starts_with(['W', 'I']));
    line.speaker == Speaker::Torch
        && (letter(&line.text) || line.text.split_once("]:").is_some_and(|(_, rest)| letter(rest)))
}
