//! Ranks that did not come up: which died, which wait, where, and for which rank.

use super::found;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Communicator, EdgeUse, Evidence, Finding, Rank, Severity, SourceLine, Stage, Warning};
use std::fmt::Display;

/// Ranks that a title names at most.
const MOST_NAMED: usize = 8;

/// A communicator whose start went wrong.
pub fn rule(case: &Case) -> Vec<Finding> {
    let starts = || case.run.communicators.iter().filter_map(|comm| Start::of(case, comm));
    starts().find_map(|start| start.finding()).into_iter().collect()
}

/// How the ranks of a communicator came up, or did not.
pub(crate) struct Start<'a> {
    case: &'a Case<'a>,
    comm: &'a Communicator,
    pub nranks: u32,
    /// Ranks that came up.
    pub up: Vec<u32>,
    /// Ranks whose init returned an error.
    pub failed: Vec<u32>,
    /// Ranks that began, and say no more.
    pub silent: Vec<u32>,
    /// Ranks that no line names.
    pub absent: Vec<u32>,
}

impl<'a> Start<'a> {
    /// Of a communicator that says how many ranks it has.
    pub(crate) fn of(case: &'a Case<'a>, comm: &'a Communicator) -> Option<Self> {
        let nranks = comm.nranks?;
        let those =
            |fits: fn(&Rank) -> bool| comm.ranks.iter().filter(|(_, rank)| fits(rank)).map(|(n, _)| *n).collect();
        Some(Start {
            case,
            comm,
            nranks,
            up: those(Rank::is_up),
            failed: those(|rank| rank.failed.is_some()),
            silent: those(|rank| !rank.is_up() && rank.failed.is_none()),
            // A damaged line may claim any number.
            absent: (0..nranks).filter(|rank| !comm.ranks.contains_key(rank)).take(4096).collect(),
        })
    }

    /// The ranks that came up: where one did, those too whose own line is torn or not in the input.
    pub(crate) fn came_up(&self) -> impl Iterator<Item = &'a Rank> {
        let went_on = !self.up.is_empty() || self.failed.is_empty() && self.ran();
        self.comm.ranks.values().filter(move |rank| went_on && rank.failed.is_none())
    }

    pub(crate) fn ranks_up(&self) -> usize {
        self.came_up().count()
    }

    /// Whether an excerpt has the connections of every rank, and no line of init.
    fn connected(&self) -> bool {
        let of_init = |rank: &Rank| rank.bus_id.is_some() || rank.is_up();
        self.comm.all_told() && !self.comm.ranks.values().any(of_init)
    }

    /// Whether it is open how the start went: no rank came up, none failed, and nothing shows that they ran.
    pub(crate) fn is_open(&self) -> bool {
        self.up.is_empty() && self.failed.is_empty() && !self.silent.is_empty() && !self.ran()
    }

    /// Whether later lines show that ranks ran, though none says `Init COMPLETE`.
    fn ran(&self) -> bool {
        let Case { run, .. } = self.case;
        self.connected()
            || self.comm.ranks.values().any(|rank| rank.left.is_some())
            || self.comm.edges.iter().any(|edge| edge.use_ == EdgeUse::PointToPoint)
            || run.tables.iter().any(|table| !table.rows.is_empty())
            || self.case.refuters.ended_well()
    }

    fn finding(&self) -> Option<Finding> {
        if self.is_open() { self.hang() } else { self.lost().or_else(|| self.missing()) }
    }

    /// Ranks that ended without a word while the others' connections to them were closed.
    fn lost(&self) -> Option<Finding> {
        let of_comm = |warning: &&Warning| {
            let host = warning.who.as_ref().map(|who| &*who.host);
            host.is_some_and(|host| self.comm.hosts(&self.case.run.nodes).contains(&host))
        };
        let closed = |warning: &&Warning| warning.message.contains("Connection closed by remote peer");
        let warning = self.case.run.nccl.warnings.iter().filter(of_comm).find(closed)?;
        let gone: Vec<u32> = self.silent.iter().chain(&self.absent).copied().collect();
        let few = !gone.is_empty() && gone.len() < self.failed.len();
        if !self.up.is_empty() || !few || self.hosts(&gone).len() > 1 {
            return None;
        }
        let who = self.named(&gone);
        let words: [(&str, &dyn Display); 3] =
            [("who", &who), ("failed", &self.failed.len()), ("nranks", &self.nranks)];
        Some(found("start.lost", &words, vec![Evidence::noted(warning.source.clone(), "a consequence")]))
    }

    /// All ranks began, or all but a few, and none gets past the bootstrap over TCP.
    fn hang(&self) -> Option<Finding> {
        let bootstrapping = self.comm.ranks.values().all(|rank| rank.stage == Stage::Bootstrap && rank.pid.is_some());
        let nearly_all = self.absent.len() * 4 <= self.nranks as usize;
        if !bootstrapping || !nearly_all || self.nranks < 2 {
            return None;
        }
        let came = self.silent.len();
        let hosts = self.comm.hosts(&self.case.run.nodes);
        let addresses = self.addresses();
        let words: [(&str, &dyn Display); 7] = [
            ("nranks", &self.nranks),
            ("absent", &self.named(&self.absent)),
            ("came", &came),
            ("places", &self.places()),
            ("host", hosts.first().unwrap_or(&"a host")),
            ("other", hosts.get(1).unwrap_or(&"the other host")),
            ("address", &addresses.first().map_or("ADDRESS", |(address, _)| address)),
        ];
        let id = if self.absent.is_empty() { "start.nobody-met" } else { "start.never-came" };
        let confidence = if self.hosts(&self.silent).len() > 1 { 0.75 } else { 0.55 };
        let evidence = addresses.iter().map(|(_, line)| Evidence::noted((*line).clone(), "where ranks meet")).collect();
        let severity = if self.time_passed() { Severity::Error } else { Severity::Info };
        Some(Finding { severity, confidence, ..found(id, &words, evidence) })
    }

    /// Whether something shows that ranks waited: an input may just end, or be cut, behind `Init START`, and `course` asks.
    fn time_passed(&self) -> bool {
        let Case { run, ends, .. } = self.case;
        ends.are_over() || !run.stacks.is_empty() || !run.ras_reports.is_empty()
    }

    /// Most came up, and these did not.
    fn missing(&self) -> Option<Finding> {
        let complete = self.up.len() as u32;
        if complete == 0 || complete == self.nranks || complete * 2 < self.nranks || !self.case.ends.failed() {
            return None;
        }
        let absent: Vec<u32> = (0..self.nranks).filter(|rank| !self.up.contains(rank)).collect();
        let words: [(&str, &dyn Display); 3] =
            [("absent", &self.named(&absent)), ("complete", &complete), ("nranks", &self.nranks)];
        Some(found("start.unfinished", &words, Vec::new()))
    }

    fn host(&self, rank: u32) -> Option<&'a str> {
        Some(self.case.run.nodes.get(self.comm.node_of(rank)? as usize)?.host.as_str())
    }

    fn hosts(&self, ranks: &[u32]) -> Vec<&'a str> {
        let mut hosts: Vec<&str> = ranks.iter().filter_map(|rank| self.host(*rank)).collect();
        hosts.dedup();
        hosts
    }

    /// `Ranks 2, 3 (on node02)`.
    fn named(&self, ranks: &[u32]) -> String {
        let noun = if ranks.len() == 1 { "Rank" } else { "Ranks" };
        let hosts = self.hosts(ranks);
        let place =
            if hosts.is_empty() { String::new() } else { format!(" (on {})", listed(hosts.iter(), MOST_NAMED)) };
        format!("{noun} {}{place}", listed(ranks.iter(), MOST_NAMED))
    }

    /// Which ranks wait on which host.
    fn places(&self) -> String {
        let on = |host: &&str| {
            let ranks: Vec<u32> = self.silent.iter().copied().filter(|rank| self.host(*rank) == Some(host)).collect();
            format!("ranks {} wait on {host}", listed(ranks.iter(), MOST_NAMED))
        };
        self.comm.hosts(&self.case.run.nodes).iter().take(MOST_NAMED).map(on).collect::<Vec<_>>().join(", ")
    }

    /// The address at which each host meets the others, with the line that says it.
    fn addresses(&self) -> Vec<(&'a str, &'a SourceLine)> {
        let hosts = self.comm.hosts(&self.case.run.nodes);
        let lines = self.case.run.nccl.networks.iter().filter(|line| line.network == "Bootstrap");
        let lines = lines.filter(|line| line.host.as_deref().is_some_and(|host| hosts.contains(&host)));
        let lists = lines.filter_map(|line| Some((line.listed().first()?.address.as_deref()?, &line.source)));
        lists.take(2).collect()
    }
}
