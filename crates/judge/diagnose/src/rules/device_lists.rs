//! Lists of devices in which several processes each have a rank 0: nccl-tests that runs without the MPI that starts it.
//!
//! With MPI, rank 0 prints one header and the devices of all ranks. Without, each process prints its own, from rank 0 on.

use super::found;
use super::launch_command::Launch;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{BenchDevice, BenchTable, Evidence, Finding, Place, Severity};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Hosts and lines of evidence that the finding shows at most.
const MOST_NAMED: usize = 4;

/// Processes of one job that each list their devices from rank 0 on.
pub fn rule(case: &Case) -> Vec<Finding> {
    let launches = Launch::all(&case.lines);
    let lists: Vec<List> = case.run.tables.iter().filter_map(List::of).collect();
    let groups = groups(&lists, &launches);
    groups.iter().find_map(|group| separate(group, &launches)).into_iter().collect()
}

/// A process: its host and number. Old nccl-tests, and people, leave the number out.
type Process<'a> = (&'a str, u64);

fn process(device: &BenchDevice) -> Process<'_> {
    (device.host.as_str(), device.pid)
}

/// A table with the list of its devices.
struct List<'a> {
    table: &'a BenchTable,
    processes: BTreeSet<Process<'a>>,
    /// Its last line.
    end: Place,
}

impl<'a> List<'a> {
    fn of(table: &'a BenchTable) -> Option<Self> {
        let last = table.devices.last().filter(|device| device.source.place.line > 0)?;
        let later = table.rows.last().map(|row| row.source.place);
        let end = last.source.place.max(later.unwrap_or_default());
        Some(List { table, processes: table.devices.iter().map(process).collect(), end })
    }

    fn hosts(&self) -> BTreeSet<&'a str> {
        self.processes.iter().map(|(host, _)| *host).collect()
    }

    fn start(&self) -> Place {
        self.table.place
    }

    /// Whether it was printed while a table before it was: its head stands within the other, or it has none of its own
    /// and so shares the other's.
    fn is_within(&self, group: &[&List]) -> bool {
        let shares_head = self.table.devices.first().is_some_and(|device| device.source.place == self.start());
        let begun = |list: &&List| list.table.rows.first().is_some_and(|row| row.source.place < self.start());
        group.iter().any(|list| self.start() < list.end) || shares_head && !group.iter().any(begun)
    }

    /// Whether the command that started the group started this one too, on another host. Processes of a job that know each
    /// other are listed together.
    fn is_started_with(&self, group: &[&List], launches: &[Launch]) -> bool {
        let command = |list: &List| launches.iter().rposition(|launch| launch.place() < list.start());
        let another = |list: &&List| {
            command(list) == command(self) && list.processes.len() == 1 && list.hosts().is_disjoint(&self.hosts())
        };
        let several = command(self).and_then(|at| launches.get(at)).is_some_and(|l| l.processes > group.len());
        several && self.processes.len() == 1 && group.iter().all(another)
    }

    /// Whether its lines carry the name of its host, as a parallel shell puts it in front: tests that are meant to be apart.
    fn is_labelled_by_host(&self) -> bool {
        let (label, short) = (self.table.label.as_str(), |name: &'a str| name.split('.').next().unwrap_or_default());
        !label.is_empty() && self.processes.iter().all(|(host, _)| short(host) == short(&self.table.label))
    }
}

/// Lists of one input that were printed at once, or by what one command started.
fn groups<'l, 'a>(lists: &'l [List<'a>], launches: &[Launch]) -> Vec<Vec<&'l List<'a>>> {
    let mut groups: Vec<Vec<&List>> = Vec::new();
    for list in lists {
        let same_input = |group: &Vec<&List>| group.iter().all(|l| l.start().input == list.start().input);
        let open = groups.last_mut().filter(|group| same_input(group));
        match open.filter(|group| list.is_within(group) || list.is_started_with(group, launches)) {
            Some(group) => group.push(list),
            None => groups.push(vec![list]),
        }
    }
    groups
}

/// The finding about a group in which every process has a rank 0.
fn separate(group: &[&List], launches: &[Launch]) -> Option<Finding> {
    let launch = launches.iter().filter(|launch| launch.processes > 1).max_by_key(|launch| {
        (launch.place() < group[0].start() && launch.place().input == group[0].start().input, launch.place())
    });
    let mut seen = BTreeSet::new();
    let devices = group.iter().flat_map(|list| &list.table.devices);
    let first: Vec<&BenchDevice> = devices.filter(|d| d.rank == 0 && seen.insert(process(d))).collect();
    let processes: BTreeSet<Process> = group.iter().flat_map(|list| list.processes.iter().copied()).collect();
    let meant = launch.is_none() && group.iter().all(|list| list.is_labelled_by_host());
    if first.len() < 2 || first.len() < processes.len() || meant {
        return None;
    }
    let hosts: BTreeSet<&str> = first.iter().map(|device| device.host.as_str()).collect();
    let asked = launch.map_or(String::new(), |launch| format!(" The command asks for {} processes.", launch.processes));
    let severity = if launch.is_some() { Severity::Error } else { Severity::Warning };
    let hosts = listed(hosts.iter(), MOST_NAMED);
    let words: [(&str, &dyn Display); 3] = [("processes", &first.len()), ("hosts", &hosts), ("asked", &asked)];
    let rank_0 = first.iter().take(MOST_NAMED).map(|d| Evidence::noted(d.source.clone(), "a rank 0"));
    let command = launch.map(|launch| Evidence::noted(launch.line.source.clone(), "one launch"));
    Some(Finding { severity, ..found("launch.lists", &words, rank_0.chain(command).collect()) })
}
