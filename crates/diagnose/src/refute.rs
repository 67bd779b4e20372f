//! What refutes an error: facts of the run, shared by all rules.
//!
//! A line speaks of trouble at its place in the stream. What comes after it may show that the trouble was survived: the
//! communicator came up, or the run ended well. Nothing refutes what a machine says of itself.

use crate::data::Until;
use crate::lines::Line;
use busbw_model::{Place, RemarkKind, Run};

/// The facts that refute, of a run.
#[derive(Debug, Default)]
pub struct Refuters {
    /// Where a rank came up, and on which host.
    up: Vec<(Place, Option<String>)>,
    /// Lines that show a good end: a whole table, a program that reports success, ranks that all left in order.
    ended_well: Vec<Place>,
}

impl Refuters {
    /// Collects them.
    pub fn of(run: &Run) -> Self {
        let host = |node: Option<u32>| node.and_then(|node| run.nodes.get(node as usize)).map(|node| node.host.clone());
        let ranks = run.communicators.iter().flat_map(|comm| comm.ranks.values());
        let up = ranks.filter_map(|rank| Some((rank.up?, host(rank.node)))).collect();
        let finished = run.remarks.iter().filter(|remark| remark.kind == RemarkKind::Finished).map(|r| r.source.place);
        let tables = run.tables.iter().filter(|table| table.finished && !table.rows.is_empty());
        let tables = tables.filter_map(|table| table.rows.last()).map(|row| row.source.place);
        let left = run.communicators.iter().filter(|comm| comm.ranks.values().all(|rank| rank.left.is_some()));
        let left = left.filter_map(|comm| comm.ranks.values().filter_map(|rank| rank.left).max());
        Refuters { up, ended_well: finished.chain(tables).chain(left).collect() }
    }

    /// Whether the run went on after a line in spite of what it says.
    pub fn refute(&self, until: Until, line: &Line) -> bool {
        let place = line.source.place;
        let after = |later: Place| later.input == place.input && later.line > place.line;
        let same_host = |host: &Option<String>| line.host.is_none() || host.as_deref() == line.host;
        let ended = || self.ended_well.iter().any(|end| after(*end));
        match until {
            Until::Never => false,
            Until::End => ended(),
            Until::Start => ended() || self.up.iter().any(|(up, host)| after(*up) && same_host(host)),
        }
    }
}
