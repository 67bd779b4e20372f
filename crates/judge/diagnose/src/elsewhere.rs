//! What the input tells that is not about its run: nodes that the run does not use, times long before it.

use crate::lines::Line;
use crate::node_rows::nodes_of_reason;
use crate::refute::Refuters;
use crate::times;
use busbw_model::{BenchTable, Communicator, HostList, Run, Severity, Speaker};
use time::{Duration, PrimitiveDateTime};

/// Clocks of two zones are no further apart.
const ZONES: Duration = Duration::hours(27);

/// Docker calls a host as its container.
const OF_CONTAINER: usize = 12;

/// Where and when the run was, as far as the input shows.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// All of its hosts, or none.
    hosts: Vec<String>,
    /// The first time of its program, where the run ended well.
    began: Option<PrimitiveDateTime>,
}

impl Elsewhere {
    pub fn of(run: &Run, refuters: &Refuters) -> Self {
        let is_container = |host: &str| host.len() == OF_CONTAINER && host.bytes().all(|b| b.is_ascii_hexdigit());
        let are_all = shows_all_hosts(run) && !hosts(run).any(is_container);
        let hosts = if are_all { hosts(run).map(str::to_string).collect() } else { Vec::new() };
        let said = run.statements.iter().filter(|one| one.speaker == Speaker::Program).map(|one| &one.source);
        let printed = said.chain(run.outputs.iter().map(|output| &output.last));
        let first = || printed.filter_map(|line| times::of(&line.text)).map(|dated| dated.time).min();
        Elsewhere { hosts, began: if refuters.ended_well() { first() } else { None } }
    }

    /// Why a line says nothing of the run, as a sentence.
    pub fn why(&self, severity: Severity, line: &Line) -> Option<&'static str> {
        if self.is_of_other_nodes(line) {
            return Some("The list names it of nodes that the run did not use.");
        }
        // What costs speed may go on to.
        (severity == Severity::Error && self.is_long_before(line)).then_some(
            "That was more than a day before the run, which ended well: it is a fact of the host, and no cause of this run.",
        )
    }

    fn is_of_other_nodes(&self, line: &Line) -> bool {
        let uses_none = |nodes: HostList| !self.hosts.iter().any(|host| nodes.names(host));
        !self.hosts.is_empty() && nodes_of_reason(&line.text).is_some_and(uses_none)
    }

    fn is_long_before(&self, line: &Line) -> bool {
        let Some(began) = self.began.filter(|_| line.speaker == Speaker::Kernel) else { return false };
        times::of(&line.source.text).is_some_and(|said| began - said.time > ZONES)
    }
}

/// The hosts that nodes and tables of the input name.
pub(crate) fn hosts(run: &Run) -> impl Iterator<Item = &str> {
    let of_tables = run.tables.iter().flat_map(BenchTable::hosts);
    run.nodes.iter().map(|node| node.host.as_str()).chain(of_tables)
}

/// Whether the input shows of each rank where it was.
fn shows_all_hosts(run: &Run) -> bool {
    let listed = |table: &BenchTable| table.nranks.is_some_and(|ranks| table.devices.len() == ranks as usize);
    let told = |comm: &Communicator| {
        let placed = comm.ranks.values().filter(|rank| rank.node.is_some());
        comm.nranks.is_some_and(|ranks| placed.count() == ranks as usize)
    };
    run.tables.iter().any(listed) || run.communicators.first().is_some_and(told)
}
