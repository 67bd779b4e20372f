//! Who is slow among many that were measured alike, and how far from the rest.
//!
//! Nodes of a cluster are bought alike and should be equally fast, so that the others say what one should reach. Medians
//! decide: half of the peers may be in any state without moving the answer.

use crate::curve::Curve;
use busbw_model::{
    BenchTable, Blame, CopyRate, CopyTable, LinkRun, PeerGroup, Run, SlowPeer, SourceLine, counted, median,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Fewer peers do not show what is usual.
const FEWEST_PEERS: usize = 4;
/// Below this share of the median a peer is slow, if it also lies outside of the spread.
const FAR_BELOW: f64 = 0.85;
/// Distance from the median in scaled median deviations from which a value is an outlier (Iglewicz and Hoaglin, How to Detect
/// and Handle Outliers, 1993).
const OUTLIER: f64 = 3.5;
/// What makes the median deviation of a normal distribution its standard deviation.
const MEDIAN_TO_STANDARD: f64 = 1.4826;
/// A node is to blame when so many of its measurements are slow.
const NEARLY_ALL: f64 = 0.75;

/// A measurement: who took part, and how fast it was.
struct Reading {
    /// In order of name, each once.
    hosts: Vec<String>,
    value: f64,
    source: SourceLine,
}

/// Measurements of the same nodes, as one.
struct Measured {
    hosts: Vec<String>,
    value: f64,
    count: usize,
    source: SourceLine,
}

/// What must be the same of measurements to be compared, and how their figures read.
type Kind = (String, &'static str);

/// The groups of peers that a run holds, the largest first.
pub(crate) fn groups(run: &Run) -> Vec<PeerGroup> {
    let mut kinds: BTreeMap<Kind, Vec<Reading>> = BTreeMap::new();
    for (kind, reading) in run.tables.iter().filter_map(of_table) {
        kinds.entry(kind).or_default().push(reading);
    }
    for (kind, reading) in run.link_runs.iter().flat_map(|(source, links)| of_links(source, links)) {
        kinds.entry(kind).or_default().push(reading);
    }
    let mut groups: Vec<PeerGroup> = kinds.into_iter().filter_map(|(kind, readings)| group(kind, readings)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.measured));
    groups
}

/// The GPUs of a host and the pairs of them, as a table of nvbandwidth compares them. A copy from the host or to it is one GPU's.
pub(crate) fn of_copies(table: &CopyTable) -> Option<PeerGroup> {
    let between = table.is_between_gpus();
    let name = |number: u32| format!("GPU {number}");
    let reading = |copy: &CopyRate| {
        let (one, other) = (copy.row.min(copy.column), copy.row.max(copy.column));
        let hosts = if between { vec![name(one), name(other)] } else { vec![name(copy.column)] };
        Reading { hosts, value: copy.gb_s, source: copy.source.clone() }
    };
    group((table.what.clone(), "GB/s"), table.copies.iter().map(reading).collect())
}

/// The peak of a table, of those whose device list names the hosts.
fn of_table(table: &BenchTable) -> Option<(Kind, Reading)> {
    let hosts: BTreeSet<String> =
        table.hosts().into_iter().map(str::to_owned).filter(|host| !host.is_empty()).collect();
    let Curve { peak_row: row, peak: busbw, .. } = Curve::of(table).filter(|curve| curve.peak.0.is_finite())?;
    let (collective, ranks) = (table.collective?.name(), table.nranks?);
    let last = table.rows.last()?.size;
    let nodes = counted(hosts.len(), "node");
    let gpu = &table.devices.first()?.name;
    let what = format!("{collective} to {last} on {ranks} ranks of {nodes}, {gpu}: peak busbw");
    let reading = Reading { hosts: hosts.into_iter().collect(), value: busbw.0, source: row.source.clone() };
    Some(((what, "GB/s"), reading))
}

/// Every link that was measured, each direction by itself.
fn of_links(source: &SourceLine, links: &LinkRun) -> Vec<(Kind, Reading)> {
    let measured = links.links.iter().filter_map(|link| Some((link, link.outcome.as_ref().ok()?)));
    let reading = |(link, figures): (&busbw_model::Link, &busbw_model::LinkFigures)| {
        let mut hosts = vec![links.name(link.from), links.name(link.to)];
        let text = format!("{} → {}: {} Gbit/s", hosts[0], hosts[1], busbw_model::gbit(figures.gbit_s));
        hosts.sort_unstable();
        let what = format!("links over {}", links.transport.name());
        ((what, "Gbit/s"), Reading { hosts, value: figures.gbit_s, source: SourceLine::new(source.place, &text) })
    };
    measured.map(reading).collect()
}

fn group((what, unit): Kind, readings: Vec<Reading>) -> Option<PeerGroup> {
    let measured = together(readings);
    if measured.len() < FEWEST_PEERS {
        return None;
    }
    let values = || measured.iter().map(|one| one.value);
    let median = median(values())?;
    let deviation = MEDIAN_TO_STANDARD * busbw_model::median(values().map(|value| (value - median).abs()))?;
    let is_slow = |one: &Measured| one.value < FAR_BELOW * median && one.value < median - OUTLIER * deviation;
    let nodes: BTreeSet<&String> = measured.iter().flat_map(|one| &one.hosts).collect();
    Some(PeerGroup {
        what,
        unit,
        nodes: nodes.len(),
        measured: measured.len(),
        usual: measured.iter().filter(|one| !is_slow(one)).count(),
        median,
        deviation,
        least: values().fold(f64::INFINITY, f64::min),
        most: values().fold(0.0, f64::max),
        slow: blame(&measured, is_slow),
    })
}

/// Measurements of the same nodes are repetitions of each other.
fn together(readings: Vec<Reading>) -> Vec<Measured> {
    let mut by_hosts: BTreeMap<Vec<String>, Vec<(f64, SourceLine)>> = BTreeMap::new();
    for Reading { hosts, value, source } in readings {
        by_hosts.entry(hosts).or_default().push((value, source));
    }
    let one = |(hosts, mut readings): (Vec<String>, Vec<(f64, SourceLine)>)| {
        readings.sort_by(|a, b| a.0.total_cmp(&b.0));
        let value = median(readings.iter().map(|(value, _)| *value))?;
        let count = readings.len();
        Some(Measured { hosts, value, count, source: readings.into_iter().next()?.1 })
    };
    by_hosts.into_iter().filter_map(one).collect()
}

/// Who is slow: first nodes with which nearly all is, those that explain most before the others, then what is left.
fn blame(measured: &[Measured], is_slow: impl Fn(&Measured) -> bool) -> Vec<SlowPeer> {
    let mut of_host: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, one) in measured.iter().enumerate() {
        one.hosts.iter().for_each(|host| of_host.entry(host).or_default().push(index));
    }
    let mut unexplained: BTreeSet<usize> = (0..measured.len()).filter(|index| is_slow(&measured[*index])).collect();
    let mut found: Vec<SlowPeer> = Vec::new();
    while let Some(host) = most_to_blame(&of_host, measured, &unexplained) {
        let slow: Vec<usize> = of_host[host].iter().copied().filter(|index| unexplained.remove(index)).collect();
        found.extend(slow_peer(vec![host.to_owned()], &slow, Blame::Node, measured));
    }
    for index in unexplained {
        let hosts = &measured[index].hosts;
        let fast_elsewhere = |host: &String| of_host[host.as_str()].iter().any(|other| !is_slow(&measured[*other]));
        let blame = if hosts.iter().all(fast_elsewhere) { Blame::Between } else { Blame::Open };
        found.extend(slow_peer(hosts.clone(), &[index], blame, measured));
    }
    found.sort_by(|a, b| a.value.total_cmp(&b.value));
    found
}

/// The node with most slow measurements, if nearly all of its own are slow. One measurement with another node blames
/// nobody.
fn most_to_blame<'a>(
    of_host: &HashMap<&'a str, Vec<usize>>,
    measured: &[Measured],
    unexplained: &BTreeSet<usize>,
) -> Option<&'a str> {
    let suspects: BTreeSet<&str> =
        unexplained.iter().flat_map(|index| &measured[*index].hosts).map(String::as_str).collect();
    let weigh = |host: &&'a str| {
        let all = &of_host[host];
        let slow = all.iter().filter(|index| unexplained.contains(index)).count();
        let alone = all.iter().any(|index| measured[*index].hosts.len() == 1);
        let blamed = (slow >= 2 || (alone && slow == 1)) && slow as f64 >= NEARLY_ALL * all.len() as f64;
        blamed.then_some(slow)
    };
    let hosts = of_host.keys().filter(|host| suspects.contains(**host));
    hosts
        .filter_map(|host| Some((weigh(host)?, *host)))
        .max_by_key(|(slow, host)| (*slow, std::cmp::Reverse(*host)))
        .map(|(_, host)| host)
}

fn slow_peer(hosts: Vec<String>, slow: &[usize], blame: Blame, measured: &[Measured]) -> Option<SlowPeer> {
    let slow = || slow.iter().map(|index| &measured[*index]);
    let slowest = slow().min_by(|a, b| a.value.total_cmp(&b.value))?;
    Some(SlowPeer {
        hosts,
        value: median(slow().map(|one| one.value))?,
        measurements: slow().map(|one| one.count).sum(),
        blame,
        source: slowest.source.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::{BenchDevice, BenchRow, Bytes, Check, Collective, GBps, Measure, Micros};
    use proptest::prelude::*;

    fn table(hosts: &[String], busbw: f64) -> BenchTable {
        let device = |(rank, host): (usize, &String)| BenchDevice {
            rank: rank as u32,
            host: host.clone(),
            ..Default::default()
        };
        let size = Bytes(1 << 30);
        let (time, busbw, check) = (Micros(size.0 as f64 / busbw / 1e3), GBps(busbw), Check::NotDone);
        let half = Measure { time, algbw: busbw, busbw, check, iterations: None };
        let row = BenchRow { size, out_of_place: Some(half), ..BenchRow::default() };
        BenchTable {
            collective: Some(Collective::AllReduce),
            nranks: Some(hosts.len() as u32),
            devices: hosts.iter().enumerate().map(device).collect(),
            rows: vec![row],
            ..BenchTable::default()
        }
    }

    fn node(number: usize) -> String {
        format!("n{number:02}")
    }

    /// Every node with the next and the one after that: four measurements each.
    fn ring(nodes: usize, busbw: impl Fn(usize, usize) -> f64) -> Vec<(Vec<String>, Blame)> {
        let pairs = (0..nodes).flat_map(|a| [1, 2].map(|step| (a, (a + step) % nodes)));
        slow(pairs.map(|(a, b)| table(&[node(a), node(b)], busbw(a, b))).collect())
    }

    fn slow(tables: Vec<BenchTable>) -> Vec<(Vec<String>, Blame)> {
        let groups = groups(&Run { tables, ..Run::default() });
        groups.into_iter().flat_map(|group| group.slow).map(|peer| (peer.hosts, peer.blame)).collect()
    }

    #[test]
    fn a_node_measured_alone_is_compared_with_the_others() {
        let tables = |slowest| (0..6).map(|n| table(&[node(n)], if n == 3 { slowest } else { 48.0 })).collect();
        assert_eq!(slow(tables(24.0)), [(vec![node(3)], Blame::Node)]);
        assert_eq!(slow(tables(47.0)), []);
    }

    #[test]
    fn a_pair_measured_once_leaves_open_who_is_slow() {
        let pairs = |n: usize| table(&[node(2 * n), node(2 * n + 1)], if n == 1 { 20.0 } else { 48.0 });
        assert_eq!(slow((0..5).map(pairs).collect()), [(vec![node(2), node(3)], Blame::Open)]);
    }

    #[test]
    fn three_tell_nothing_and_neither_do_repetitions() {
        assert_eq!(slow((0..3).map(|n| table(&[node(n)], 10.0 * n as f64)).collect()), []);
        assert_eq!(slow((0..9).map(|n| table(&[node(n % 3)], 10.0 * n as f64)).collect()), []);
    }

    #[test]
    fn what_was_measured_otherwise_is_no_peer() {
        let larger = |n: usize| {
            let mut table = table(&[node(n)], 20.0);
            table.devices[0].name = "another GPU".into();
            table
        };
        let tables = (0..6).map(|n| if n < 2 { larger(n) } else { table(&[node(n)], 48.0) });
        assert_eq!(slow(tables.collect()), []);
    }

    proptest! {
        #[test]
        fn the_slow_node_and_no_other(nodes in 7usize..40, which in 0usize..7, share in 0.1f64..0.7, noise in prop::collection::vec(0.97f64..1.03, 1600)) {
            let of = |a: usize, b: usize| 48.0 * noise[a * 40 + b] * if a == which || b == which { share } else { 1.0 };
            prop_assert_eq!(ring(nodes, of), vec![(vec![node(which)], Blame::Node)]);
        }

        #[test]
        fn the_slow_pair_and_neither_of_its_nodes(nodes in 7usize..40, which in 0usize..5, share in 0.1f64..0.7, noise in prop::collection::vec(0.97f64..1.03, 1600)) {
            let of = |a: usize, b: usize| 48.0 * noise[a * 40 + b] * if (a, b) == (which, which + 1) { share } else { 1.0 };
            prop_assert_eq!(ring(nodes, of), vec![(vec![node(which), node(which + 1)], Blame::Between)]);
        }

        #[test]
        fn nobody_for_noise(nodes in 4usize..40, noise in prop::collection::vec(0.93f64..1.07, 1600)) {
            prop_assert_eq!(ring(nodes, |a, b| 48.0 * noise[a * 40 + b]), vec![]);
        }
    }
}
