//! What the inputs show of each rank where a run stands still: its dump, its output, its end, its stack, put together.

use crate::ends::Ends;
use busbw_model::{Ended, FlightDump, GroupName, ProcessGroup, RankEnd, RankOutput, Run, SourceLine, Stack};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// More ranks than any job has: a label that only looks like a rank's.
const MOST_RANKS: u32 = 1 << 16;

/// Ranks, ascending.
pub type RankSet = BTreeSet<u32>;

/// All ranks of the job, as far as any input names them.
#[derive(Default)]
pub struct Ranks<'a> {
    of: BTreeMap<u32, RankView<'a>>,
}

#[derive(Default)]
pub struct RankView<'a> {
    pub rank: Option<u32>,
    pub dump: Option<&'a FlightDump>,
    pub output: Option<&'a RankOutput>,
    /// How it ended, the first end that nothing refutes.
    pub end: Option<&'a RankEnd>,
    /// Its main thread.
    pub stack: Option<&'a Stack>,
    /// The line that shows that it is stopped.
    pub stopped: Option<&'a SourceLine>,
    /// Its launcher was told to end it, and did not end itself.
    pub unended: Option<&'a SourceLine>,
    pub host: Option<&'a str>,
    /// The addresses of its connections.
    pub addresses: BTreeSet<&'a str>,
}

impl<'a> Ranks<'a> {
    pub fn of(run: &'a Run, ends: &Ends<'a>) -> Self {
        let mut ranks = Ranks::default();
        let mut of_pid = ranks_of_pids(run);
        of_pid.extend(run.stacks.iter().filter_map(|stack| Some((stack.pid?, stack.rank?))));
        let known = |rank: Option<u32>, pid: Option<u64>| rank.or_else(|| of_pid.get(&pid?).copied());
        for dump in &run.flight_dumps {
            for member in dump.members.iter().flat_map(|(_, members)| members) {
                ranks.at(*member);
            }
            if let Some(view) = dump.rank.and_then(|rank| ranks.at(rank)) {
                // Of two, the other is of another job or start.
                if view.dump.is_none_or(|known| known.cut) {
                    view.dump = Some(dump);
                }
            }
        }
        for output in &run.outputs {
            if let Some(view) = output.rank.and_then(|rank| ranks.at(rank)) {
                view.output = Some(output);
                view.host = output.host.as_deref().or(view.host);
            }
        }
        for end in &ends.standing {
            for rank in end.ranks.iter().copied().chain(known(None, end.pid).filter(|_| end.ranks.is_empty())) {
                if let Some(view) = ranks.at(rank) {
                    // What a rank itself says tells more than that its launcher saw it end.
                    let says = |end: &RankEnd| match &end.how {
                        Ended::Exception { .. } => 2,
                        Ended::Crash { message, .. } if !message.is_empty() => 2,
                        Ended::Exit(_) | Ended::Killed(_) => 0,
                        _ => 1,
                    };
                    let says_more = |known: &RankEnd| says(end) > says(known);
                    if view.end.is_none_or(says_more) {
                        view.end = Some(end);
                    }
                }
            }
        }
        for end in &run.ends {
            for rank in &end.ranks {
                if let (Some(host), Some(view)) = (&end.host, ranks.at(*rank)) {
                    view.host = Some(host);
                }
            }
        }
        for stack in run.stacks.iter().filter(|stack| is_main(stack)) {
            if let Some(view) = known(stack.rank, stack.pid).and_then(|rank| ranks.at(rank)) {
                view.stack.get_or_insert(stack);
            }
        }
        for stopped in &run.stopped {
            if let Some(view) = known(stopped.rank, stopped.pid).and_then(|rank| ranks.at(rank)) {
                view.stopped = Some(&stopped.source);
            }
        }
        for one in run.watched.iter().flat_map(|(_, watched)| &watched.ranks) {
            if let Some(view) = ranks.at(one.rank) {
                view.host.get_or_insert(&one.host);
            }
        }
        for launcher in &run.unended {
            for rank in &launcher.ranks {
                if let Some(view) = ranks.at(*rank) {
                    view.unended = Some(&launcher.source);
                }
            }
        }
        for socket in &run.sockets {
            if let Some(view) = known(None, socket.pid).and_then(|rank| ranks.at(rank)) {
                view.addresses.insert(&socket.local);
            }
        }
        for member in run.process_groups.iter().flat_map(|group| group.members.iter().chain(group.ranks.keys())) {
            ranks.at(*member);
        }
        ranks.complete();
        ranks
    }

    fn at(&mut self, rank: u32) -> Option<&mut RankView<'a>> {
        let view = (rank < MOST_RANKS).then(|| self.of.entry(rank).or_default())?;
        view.rank = Some(rank);
        Some(view)
    }

    /// Ranks count from 0: those below the highest that is named exist.
    fn complete(&mut self) {
        let highest = self.of.keys().next_back().copied();
        for rank in 0..highest.unwrap_or(0) {
            self.at(rank);
        }
    }

    pub fn all(&self) -> RankSet {
        self.of.keys().copied().collect()
    }

    pub fn get(&self, rank: u32) -> Option<&RankView<'a>> {
        self.of.get(&rank)
    }

    /// Ranks of which something holds.
    pub fn which(&self, holds: impl Fn(&RankView<'a>) -> bool) -> RankSet {
        self.of.iter().filter(|(_, view)| holds(view)).map(|(rank, _)| *rank).collect()
    }

    /// The host of several ranks, where it is one.
    pub fn host_of(&self, ranks: &[u32]) -> Option<&'a str> {
        let mut hosts = ranks.iter().map(|rank| self.of.get(rank).and_then(|view| view.host));
        let first = hosts.next()??;
        hosts.all(|host| host == Some(first)).then_some(first)
    }

    /// The members of a group: as its dumps tell, else all ranks for the first group, else those that ever called it.
    pub fn members(&self, group: &ProcessGroup) -> RankSet {
        match group.members.as_slice() {
            [] if is_default(&group.name) => self.all(),
            [] => group.ranks.keys().copied().collect(),
            members => members.iter().copied().collect(),
        }
    }
}

/// Whether a group is that of all ranks.
fn is_default(name: &GroupName) -> bool {
    name.id == Some(0) || name.description.as_deref() == Some("default_pg") || name.name.as_deref() == Some("0")
}

fn is_main(stack: &Stack) -> bool {
    matches!(stack.thread.as_str(), "MainThread" | "1")
}

/// Which rank a process is, where a log, RAS or a launcher tells.
fn ranks_of_pids(run: &Run) -> HashMap<u64, u32> {
    let of_ends = run.ends.iter().filter_map(|end| match end.ranks.as_slice() {
        [rank] => Some((end.pid?, *rank)),
        _ => None,
    });
    let of_largest = run.communicators.iter().take(1).flat_map(|comm| &comm.ranks);
    of_largest.filter_map(|(rank, of)| Some((of.pid?, *rank))).chain(of_ends).collect()
}
