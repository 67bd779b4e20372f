//! Processes of one job that load different versions of NCCL.

use super::found;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Communicator, Evidence, Finding, Library, Place, Severity, VersionLine};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Hosts and ranks that a title names at most, for each version.
const MOST_NAMED: usize = 4;

/// Ranks of one communicator with different versions; without a communicator, hosts that spoke at the same time.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mixed = case.run.communicators.iter().find_map(|comm| in_communicator(case, comm));
    mixed.or_else(|| at_once(case)).or_else(|| nameless(case)).into_iter().collect()
}

/// The release without what it was built for: `2.27.7` of `2.27.7+cuda12.4`.
fn release(line: &VersionLine) -> (&str, Library) {
    (line.version.split('+').next().unwrap_or_default(), line.library)
}

/// Who loads each release, and a line that says it.
type Loaders<'a, T> = BTreeMap<&'a str, (&'a VersionLine, BTreeSet<T>)>;

/// The only release among some lines. A process that loads two, its own and that of a library, says nothing.
fn only<'a>(lines: impl Iterator<Item = &'a VersionLine> + Clone) -> Option<&'a VersionLine> {
    let first = lines.clone().next()?;
    lines.into_iter().all(|line| release(line) == release(first)).then_some(first)
}

fn in_communicator(case: &Case, comm: &Communicator) -> Option<Finding> {
    let versions = &case.run.nccl.versions;
    if versions.is_empty() || only(versions.iter()).is_some() {
        return None;
    }
    let mut loaded: Vec<(&VersionLine, HashSet<(&str, u64)>)> = Vec::new();
    for line in versions {
        loaded.push((line, line.processes.iter().map(|(host, pid)| (host.as_str(), *pid)).collect()));
    }
    let mut hosts: Loaders<&str> = BTreeMap::new();
    let mut ranks: Loaders<u32> = BTreeMap::new();
    for (number, rank) in &comm.ranks {
        let Some((host, pid)) = rank.node.and_then(|node| case.run.nodes.get(node as usize)).zip(rank.pid) else {
            continue;
        };
        let loads = loaded.iter().filter(|(_, by)| by.contains(&(&*host.host, pid))).map(|(line, _)| *line);
        let Some(line) = only(loads) else { continue };
        hosts.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(&host.host);
        ranks.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(*number);
    }
    let failed = case.ends.failed() || !comm.came_up() && case.run.nccl.warn_lines > 0;
    let of_hosts = hosts.values().map(|(_, hosts)| hosts.len()).sum::<usize>()
        == hosts.values().flat_map(|(_, hosts)| hosts).collect::<BTreeSet<_>>().len();
    match of_hosts {
        true => mixed(&hosts, "", failed, 0.93),
        false => mixed(&ranks, "rank ", failed, 0.93),
    }
}

/// Hosts of one input without any communicator, each with one release, whose lines lie between each other's, as those of runs
/// one after the other do not; or whose messages do not fit each other.
fn at_once(case: &Case) -> Option<Finding> {
    if !case.run.communicators.is_empty() {
        return None;
    }
    let of_host = |host: &str| {
        let loads = |line: &&VersionLine| line.processes.iter().any(|(name, _)| name == host);
        only(case.run.nccl.versions.iter().filter(loads))
    };
    let (spans, misread) = (spans(case), misread(case));
    let meets = |(input, host): &(u32, &str)| {
        let Some((line, (from, to))) = of_host(host).zip(spans.get(&(*input, *host))) else { return false };
        spans.iter().any(|((other_input, other), (first, last))| {
            let differs = of_host(other).is_some_and(|theirs| release(theirs) != release(line));
            other_input == input && differs && (misread || first < to && from < last)
        })
    };
    let mut hosts: Loaders<&str> = BTreeMap::new();
    for (_, host) in spans.keys().filter(|key| meets(key)) {
        let Some(line) = of_host(host) else { continue };
        hosts.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(host);
    }
    let failed = case.ends.failed() || case.run.nccl.warn_lines > 0;
    mixed(&hosts, "", failed, 0.8)
}

/// Versions on lines without a name, more than one, in an input whose only communicator began on several hosts and never came up.
fn nameless(case: &Case) -> Option<Finding> {
    let [comm] = case.run.communicators.as_slice() else { return None };
    let here = |line: &&VersionLine| line.processes.is_empty() && line.source.place.input == comm.place.input;
    let mut loaded: Loaders<&str> = BTreeMap::new();
    let who: BTreeSet<&str> = comm.hosts(&case.run.nodes).into_iter().collect();
    for line in case.run.nccl.versions.iter().filter(here) {
        loaded.entry(release(line).0).or_insert((line, BTreeSet::new()));
    }
    let apart = who.len() > 1 && !comm.came_up();
    let hosts = listed(who.iter(), MOST_NAMED);
    mixed(&loaded, &format!("one of {hosts}"), apart, 0.85).filter(|_| apart)
}

/// Whether a rank read another's message as what it is not: one of another length, an address that is none.
fn misread(case: &Case) -> bool {
    const SIGNS: [&str; 3] = ["Message truncated", "message truncated", "is neither AF_INET"];
    case.lines.iter().any(|line| SIGNS.iter().any(|sign| line.text.contains(sign)))
}

/// From where to where each host speaks in each input, as far as its statements were kept.
fn spans<'a>(case: &Case<'a>) -> HashMap<(u32, &'a str), (u64, u64)> {
    let log = &case.run.nccl;
    let networks = log.networks.iter().filter_map(|line| Some((line.host.as_deref()?, line.source.place)));
    let warnings = log.warnings.iter().filter_map(|line| Some((&*line.who.as_ref()?.host, line.source.place)));
    let steps = log.error_steps.iter().filter_map(|line| Some((&*line.who.as_ref()?.host, line.source.place)));
    let notes = case.run.statements.iter().filter_map(|line| Some((line.host.as_deref()?, line.source.place)));
    let mut spans: HashMap<(u32, &str), (u64, u64)> = HashMap::new();
    let spoken: Vec<(&str, Place)> = networks.chain(warnings).chain(steps).chain(notes).collect();
    for (host, place) in spoken {
        let (first, last) = spans.entry((place.input, host)).or_insert((place.line, place.line));
        (*first, *last) = ((*first).min(place.line), (*last).max(place.line));
    }
    spans
}

fn mixed<T: std::fmt::Display>(loaders: &Loaders<T>, noun: &str, failed: bool, confidence: f64) -> Option<Finding> {
    if loaders.len() < 2 {
        return None;
    }
    let said = |(release, (_, who)): (&&str, &(&VersionLine, BTreeSet<T>))| {
        format!("{release} on {noun}{}", listed(who.iter(), MOST_NAMED))
    };
    let said: Vec<String> = loaders.iter().map(said).collect();
    let severity = if failed { Severity::Error } else { Severity::Warning };
    let evidence = loaders.values().map(|(line, _)| Evidence::noted(line.source.clone(), release(line).0)).collect();
    Some(Finding { severity, confidence, ..found("versions.mixed", &[("said", &said.join(", "))], evidence) })
}
