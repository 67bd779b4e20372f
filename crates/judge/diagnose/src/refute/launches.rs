//! When ranks came up and when they left: whether another launch stands behind a place, and whether the order of two can be known.

use super::processes::pids;
use busbw_model::{Communicator, EndTeller, Place, RankEnd, Run};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The launches that an input shows.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Ranks that came up.
    pub up: Vec<StartedRanks>,
    /// Communicators of all ranks that came up, which they do only with all of them.
    pub started: Vec<StartedRanks>,
    again: Vec<Again>,
    /// Communicators that all ranks left in order: where the first came up, where the last one left.
    pub left: Vec<(Place, Place)>,
    /// Where the last rank left of communicators that all gave up (`Abort COMPLETE`), as some programs do at their end.
    pub given_up: Vec<Place>,
    /// The line of each input with which the first launch shows: ranks come up, or a table begins.
    begins: HashMap<u32, u64>,
}

/// Where ranks of one launch came up, and the same ranks of a later one, in other processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    since: Place,
    pub next: Place,
    /// The program of the later one goes on.
    pub goes_on: bool,
}

/// Ranks of one host and communicator that came up.
#[derive(Debug, Clone)]
pub(super) struct StartedRanks {
    pub first: Place,
    pub last: Place,
    pub host: Option<String>,
    /// Communicators of one process are of one job. An input may hold several jobs, one after the other.
    pub job: usize,
}

impl StartedRanks {
    /// Those of a communicator.
    fn of(run: &Run, comm: &Communicator, job: usize) -> Vec<StartedRanks> {
        let mut hosts: BTreeMap<Option<u32>, (Place, Place)> = BTreeMap::new();
        for (node, place) in comm.ranks.values().filter_map(|rank| Some((rank.node, rank.up?))) {
            let (first, last) = hosts.entry(node).or_insert((place, place));
            (*first, *last) = ((*first).min(place), (*last).max(place));
        }
        let host = |node: Option<u32>| Some(run.nodes.get(node? as usize)?.host.clone());
        hosts.into_iter().map(|(node, (first, last))| StartedRanks { first, last, host: host(node), job }).collect()
    }
}

impl Launches {
    pub fn of(run: &Run) -> Self {
        let jobs = jobs(run);
        let largest = run.communicators.iter().filter_map(|comm| comm.nranks).max();
        let whole: Vec<(&Communicator, usize)> =
            jobs.iter().copied().filter(|(comm, _)| comm.nranks == largest).collect();
        let first = |(comm, job): &(&Communicator, usize)| {
            StartedRanks::of(run, comm, *job).into_iter().min_by_key(|up| up.first)
        };
        let (mut left, mut given_up) = (Vec::new(), Vec::new());
        for (comm, _) in &jobs {
            let ranks = || comm.ranks.values();
            let Some(last) = ranks().map(|rank| rank.left).max().flatten() else { continue };
            let aborted = ranks().filter(|rank| rank.aborted).count();
            let up = ranks().filter_map(|rank| rank.up.filter(|up| up.input == last.input)).min();
            match () {
                () if ranks().any(|rank| rank.left.is_none()) => {}
                () if aborted == 0 => left.push((up.unwrap_or(Place { line: 0, ..last }), last)),
                () if aborted == comm.ranks.len() => given_up.push(last),
                // Ranks of one program leave alike.
                () => {}
            }
        }
        let tables = run.tables.iter().filter(|table| !table.rows.is_empty()).map(|table| table.place);
        let mut begins = HashMap::new();
        for place in jobs.iter().flat_map(|(comm, _)| comm.ranks.values().filter_map(|rank| rank.up)).chain(tables) {
            let line = begins.entry(place.input).or_insert(place.line);
            *line = place.line.min(*line);
        }
        let up: Vec<StartedRanks> = jobs.iter().flat_map(|(comm, job)| StartedRanks::of(run, comm, *job)).collect();
        Launches {
            again: again(&jobs, &whole, &running(run, &up)),
            up,
            started: whole.iter().filter_map(first).collect(),
            left,
            given_up,
            begins,
        }
    }

    /// The launch behind a place whose ranks had come up before it in other processes: what stands there is of a launch that is over.
    pub fn next_after(&self, place: Place) -> Option<Again> {
        let over = self.again.iter().filter(|again| place.is_after(again.since) && again.next.is_after(place));
        over.min_by_key(|again| again.next).copied()
    }

    /// Whether all that an input shows of a launch stands behind a place: the place may be of this launch, in an output that was put in front of the
    /// ranks', or of one before.
    pub fn is_before_all(&self, place: Place) -> bool {
        self.begins.get(&place.input).is_some_and(|line| *line > place.line)
    }
}

/// Communicators in order, with the number of their job: those of one process are of one.
fn jobs(run: &Run) -> Vec<(&Communicator, usize)> {
    let mut comms: Vec<&Communicator> = run.communicators.iter().collect();
    comms.sort_by_key(|comm| comm.place);
    let mut job_of = HashMap::new();
    let numbered = comms.into_iter().enumerate().map(|(number, comm)| {
        let processes = || comm.ranks.values().map(|rank| (rank.node, rank.pid));
        let job = processes().find_map(|process| job_of.get(&process).copied()).unwrap_or(number);
        job_of.extend(processes().map(|process| (process, job)));
        (comm, job)
    });
    numbered.collect()
}

/// Jobs whose program loops behind where ranks of theirs came up, in any input.
fn running(run: &Run, up: &[StartedRanks]) -> HashSet<usize> {
    /// One or two may be of ranks of the launch before, whose output came late.
    const STEPS: usize = 3;
    let loops = |up: &&StartedRanks| {
        let before = run.steps.partition_point(|step| *step <= up.last);
        run.steps.get(before + STEPS - 1).is_some_and(|step| step.is_after(up.last))
    };
    up.iter().filter(loops).map(|up| up.job).collect()
}

/// Where ranks of a job came up, and those of the same numbers of a later one, of which the input shows nothing before the first is over.
fn again(jobs: &[(&Communicator, usize)], whole: &[(&Communicator, usize)], running: &HashSet<usize>) -> Vec<Again> {
    if whole.iter().all(|(_, job)| *job == whole[0].1) {
        return Vec::new();
    }
    let mut shown: HashMap<(usize, u32), u64> = HashMap::new();
    for (comm, job) in jobs {
        for place in comm.ranks.values().flat_map(|rank| [rank.up, rank.left]).flatten() {
            let last = shown.entry((*job, place.input)).or_insert(place.line);
            *last = place.line.max(*last);
        }
    }
    // Of two jobs side by side, neither is over.
    let is_over = |job: usize, next: Place| shown.get(&(job, next.input)).is_none_or(|last| *last < next.line);
    // Of each rank the first places of two jobs: where they stand in turn, one of them is over.
    type FirstUps = [Option<(usize, Place)>; 2];
    let mut came_up: HashMap<(u32, u32), FirstUps> = HashMap::new();
    let mut begun = HashSet::new();
    let mut found = Vec::new();
    for (comm, job) in whole.iter().filter(|(_, job)| begun.insert(*job)) {
        let mut firsts: BTreeMap<u32, (Place, Option<Place>)> = BTreeMap::new();
        for (number, up) in comm.ranks.iter().filter_map(|(number, rank)| Some((*number, rank.up?))) {
            let places = came_up.entry((up.input, number)).or_default();
            let (first, since) = firsts.entry(up.input).or_insert((up, None));
            *first = up.min(*first);
            let before = places.iter().flatten().filter(|(other, _)| is_over(*other, up)).map(|(_, place)| *place);
            *since = since.iter().copied().chain(before).min();
            if let Some(free) = places.iter_mut().find(|place| place.is_none()) {
                *free = Some((*job, up));
            }
        }
        found.extend(
            firsts
                .into_values()
                .filter_map(|(next, since)| Some(Again { since: since?, next, goes_on: running.contains(job) })),
        );
    }
    found
}

/// Reports of launchers that stand before what they report of: ranks of theirs leave in order behind them, or all that the input shows of a launch
/// does. Two outputs were put together then, and which is the earlier nobody can tell. A report that names a process of these ranks is of this launch.
pub(super) fn unordered(run: &Run, launches: &Launches) -> HashSet<Place> {
    let is_report = |end: &&RankEnd| end.told_by == EndTeller::Launcher || end.is_of_excepthook();
    let reports: Vec<&RankEnd> = run.ends.iter().filter(is_report).collect();
    if reports.is_empty() {
        return HashSet::new();
    }
    let ranks = || run.communicators.iter().flat_map(|comm| &comm.ranks);
    let pids = pids(run);
    let mut leaves: HashMap<(u32, u32), Place> = HashMap::new();
    for (number, place) in ranks().filter_map(|(number, rank)| Some((*number, rank.left.filter(|_| !rank.aborted)?))) {
        let last = leaves.entry((place.input, number)).or_insert(place);
        *last = place.max(*last);
    }
    let leaves_after =
        |number: &u32, place: Place| leaves.get(&(place.input, *number)).is_some_and(|left| left.is_after(place));
    let is_unordered = |end: &&&RankEnd| {
        let place = end.source.place;
        let left = || match end.ranks.as_slice() {
            _ if end.told_by != EndTeller::Launcher => false,
            [] => launches.left.iter().any(|(up, last)| place.is_after(*up) && last.is_after(place)),
            ranks => ranks.iter().all(|rank| leaves_after(rank, place)),
        };
        !end.pid.is_some_and(|pid| pids.contains(&pid)) && (launches.is_before_all(place) || left())
    };
    reports.iter().filter(is_unordered).map(|end| end.source.place).collect()
}

/// Warnings of processes that come up only behind them in their input: their place shows nothing.
pub(super) fn displaced(run: &Run) -> HashSet<Place> {
    let warnings =
        || run.nccl.warnings.iter().filter_map(|warning| Some((warning.who.as_ref()?, warning.source.place)));
    let warned: HashSet<(&str, u64)> = warnings().map(|(who, _)| (&*who.host, who.pid)).collect();
    let mut up: HashMap<(u32, &str, u64), u64> = HashMap::new();
    let ranks = run.communicators.iter().flat_map(|comm| comm.ranks.values());
    for (rank, place) in ranks.filter(|_| !warned.is_empty()).filter_map(|rank| Some((rank, rank.up?))) {
        let host = rank.node.and_then(|node| run.nodes.get(node as usize)).map(|node| node.host.as_str());
        if let Some(process) = host.zip(rank.pid).filter(|process| warned.contains(process)) {
            let line = up.entry((place.input, process.0, process.1)).or_insert(place.line);
            *line = place.line.min(*line);
        }
    }
    let comes_up_behind = |who: (u32, &str, u64), line: u64| up.get(&who).is_some_and(|up| *up > line);
    let behind = warnings().filter(|(who, place)| comes_up_behind((place.input, &who.host, who.pid), place.line));
    behind.map(|(_, place)| place).collect()
}
