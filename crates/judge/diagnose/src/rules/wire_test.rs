//! What perftest, OSU's benchmarks, iperf3 and DeepEP's tests measured against the rate of the port, where something in the input shows that (`ibstat`,
//! `rdma link`, the facts that `busbw check --save` keeps), or `--nics` tells it.

use super::{found, sound};
use crate::case::Case;
use crate::curve::{OUT_OF_LINE, median};
use busbw_model::{Bytes, Evidence, Finding, Judged, Judgement, Micros, PerfRow, PerfTest, Run, SourceLine, Subject};
use std::fmt::Display;

/// Perftest reaches 0.92 and more of an InfiniBand or RoCE port (docs/link.md).
const HEALTHY_SHARE: f64 = 0.85;
/// DeepEP counts the tokens that stay on the host of their rank as well, and reaches 0.82 to 1.2 of a healthy NIC.
const HEALTHY_EXCHANGE: f64 = 0.7;
/// A call takes so many times as long as the best one, on average, only where some stall.
const STALLED: f64 = 4.0;
/// TCP that is held back by nothing but a full queue sends up to 1% again: measured over veth at 23 and 32 Gbit/s, one stream and four.
const LOSSY: f64 = 0.02;
/// As much is too much where the port is not full.
const LOSSY_BELOW_RATE: f64 = 0.005;
/// Between hosts, RDMA takes 1 to 5 µs for a small message, also through a few switches; TCP takes 15 and more, on quick hosts a little less.
const AS_TCP: Micros = Micros(10.0);
/// A message of which the time is that of the call.
const SMALL: Bytes = Bytes(64);
/// Smaller messages may fill a port, but need not.
pub const LARGE: Bytes = Bytes(64 << 10);

/// A finding per device that was measured.
pub fn rule(case: &Case) -> Vec<Finding> {
    devices(case.run).into_iter().filter_map(|device| of_device(case, device)).collect()
}

/// The devices that were measured; `None` is one that no line names.
fn devices(run: &Run) -> Vec<Option<&str>> {
    let mut devices: Vec<Option<&str>> = run.perftests.iter().map(|test| test.device.as_deref()).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// How each measured device compares with its port. What is open is asked, unless the input is about more than the wire.
pub fn judge(case: &Case) -> Vec<Judged> {
    let alone = case.run.tables.is_empty() && case.run.communicators.is_empty();
    let judged = devices(case.run).into_iter().filter_map(|device| judged(case, device));
    judged.chain(as_over_tcp(case)).filter(|one| alone || one.outcome != Judgement::Undecided).collect()
}

/// The test of which the least message takes as long as over TCP, if one does: which network carried it, only the user knows. That of EFA is slow as well.
fn as_over_tcp(case: &Case) -> Option<Judged> {
    let is_efa = |test: &&PerfTest| test.connection.as_deref() == Some("SRD");
    let times = case.run.perftests.iter().filter(|test| is_between_two(test) && !is_efa(test));
    let times = times.filter_map(|test| Some((test, least(test)?)));
    let (test, (size, time)) =
        times.max_by(|a, b| a.1.1.0.total_cmp(&b.1.1.0)).filter(|(_, (_, time))| *time >= AS_TCP)?;
    let (name, on) = (name(test), on(test.device.as_deref()));
    let question = format!(
        "{name} takes {time} for {size}{on}, as over TCP: RDMA takes 1 to 5 µs. Which network carried it? UCX tells with UCX_LOG_LEVEL=info, Open MPI with --mca btl_base_verbose 100"
    );
    let how = format!("{time} for {size}");
    Some(Judged {
        question: Some(question),
        ..Judged::new(Subject::Host, format!("{name}{on}"), how, Judgement::Undecided)
    })
}

/// Whether two processes exchange messages, as in all tests of perftest; of OSU's, collectives have a name before the word that all have.
fn is_between_two(test: &PerfTest) -> bool {
    let kind = name(test).strip_prefix("OSU ").and_then(|name| name.split_once(" Latency Test"));
    kind.is_none_or(|(kind, _)| matches!(kind.split_once(' '), None | Some((_, "Multi" | "Multi-threaded"))))
}

/// What the least message takes, where it is small enough to show what a call costs.
fn least(test: &PerfTest) -> Option<(Bytes, Micros)> {
    let times = test.rows.iter().filter_map(|row| match row {
        PerfRow::Latency { size: Some(size), typical, average, .. } => Some((*size, typical.or(*average)?)),
        _ => None,
    });
    times.min_by_key(|(size, _)| *size).filter(|(size, _)| *size <= SMALL)
}

fn judged(case: &Case, device: Option<&str>) -> Option<Judged> {
    let (test, Rate { gbit_s, at }) = best(case, device)?;
    let on = on(device);
    let what = format!("{}{on}", name(test));
    let said = |ask: &str| format!("{} reaches {gbit_s:.2} Gbit/s{at}{on}. {ask}", name(test));
    let rate = port_rate(case, device).map(|(_, rate)| rate);
    let (outcome, question) = match rate {
        Some(rate) if gbit_s >= healthy_share(test) * rate => (Judgement::Passed, None),
        // One core may not fill a port with TCP.
        Some(_) if test.lost.is_some() => (Judgement::Undecided, Some(said(STREAMS))),
        Some(_) if shows_bandwidth(case, device) => (Judgement::Failed, None),
        Some(_) => (Judgement::Undecided, Some(said("What do large messages reach? Measure with `-s 8388608`"))),
        None if device.is_none() => (Judgement::Undecided, Some(said(NIC))),
        None => (Judgement::Undecided, Some(said(RATE))),
    };
    let share =
        rate.map_or(String::new(), |rate| format!(", {:.0}% of its port's {rate} Gbit/s", 100.0 * gbit_s / rate));
    let how = format!("{gbit_s:.2} Gbit/s{at}{share}");
    Some(Judged { question, ..Judged::new(Subject::Host, what, how, outcome) })
}

const STREAMS: &str = "What do several streams reach? A core may be too slow for one: measure with `-P 8`";
const RATE: &str = "What is the port's rate? Tell with --nics 1x400G, or add the output of `ibstat`";
const NIC: &str = "If it went between hosts: how fast is the NIC? Tell with --nics 1x400G";

fn on(device: Option<&str>) -> String {
    device.map_or(String::new(), |device| format!(" on {device}"))
}

fn healthy_share(test: &PerfTest) -> f64 {
    if test.is_of_job() { HEALTHY_EXCHANGE } else { HEALTHY_SHARE }
}

/// The test whose calls stall most, if they do: latencies of which the average is far above the least.
pub fn stalls(case: &Case) -> Vec<Finding> {
    let times = case.run.perftests.iter().flat_map(|test| test.rows.iter().map(move |row| (test, row)));
    let stalled = times.filter_map(|(test, row)| match row {
        PerfRow::Latency { min: Some(min), average: Some(average), .. } if average.0 >= STALLED * min.0 => {
            Some((test, *min, *average))
        }
        _ => None,
    });
    let worst = stalled.max_by(|a, b| a.2.0.total_cmp(&b.2.0));
    let finding = worst.map(|(test, min, average)| {
        let words: [(&str, &dyn Display); 3] = [("test", &name(test)), ("average", &average), ("min", &min)];
        found("wire.stalls", &words, vec![Evidence::new(test.source.clone())])
    });
    finding.into_iter().collect()
}

/// Of tests that lost more than where a queue runs over now and then, the fastest: that of all streams together.
pub fn loses(case: &Case) -> Vec<Finding> {
    let port = port_rate(case, None).map(|(_, rate)| rate);
    let rate = |test: &PerfTest| one_way(test).map_or(0.0, |rate| rate.gbit_s);
    let is_lossy = |test: &PerfTest, lost: f64| match port {
        Some(port) => lost >= LOSSY_BELOW_RATE && rate(test) < healthy_share(test) * port,
        None => lost >= LOSSY,
    };
    let all = case.run.perftests.iter().filter_map(|test| Some((test, test.lost?)));
    let losing = all.filter(|(test, lost)| is_lossy(test, *lost));
    let fastest = losing.max_by(|a, b| rate(a.0).total_cmp(&rate(b.0)));
    let finding = fastest.map(|(test, lost)| {
        let words: [(&str, &dyn Display); 2] = [("test", &name(test)), ("lost", &format!("{:.1}%", 100.0 * lost))];
        found("wire.loses", &words, vec![Evidence::new(test.source.clone())])
    });
    finding.into_iter().collect()
}

fn name(test: &PerfTest) -> &str {
    test.test.as_deref().unwrap_or("perftest")
}

/// The test of a device with the best bandwidth. Of a test that was repeated between the same ports in one input the last run counts: it shows them as
/// they are now. Else the slowest does: whose device or which run came first is not known.
fn best<'a>(case: &Case<'a>, device: Option<&str>) -> Option<(&'a PerfTest, Rate)> {
    let of_device = case.run.perftests.iter().filter(|test| test.device.as_deref() == device);
    let measured: Vec<_> = of_device.filter_map(|test| Some((test, one_way(test)?))).collect();
    let is_again = |later: &PerfTest, test: &PerfTest| {
        let same_ends = !test.ends.is_empty() && later.ends == test.ends;
        same_ends && later.source.place.is_after(test.source.place) && settings(later) == settings(test)
    };
    let is_last = |test: &PerfTest| !measured.iter().any(|(later, _)| is_again(later, test));
    let measured: Vec<_> = measured.iter().filter(|(test, _)| is_last(test)).cloned().collect();
    let is_slowest = |(test, rate): &&(&PerfTest, Rate)| {
        let mut alike = measured.iter().filter(|(other, _)| settings(other) == settings(test));
        alike.all(|(_, other)| rate.gbit_s <= other.gbit_s)
    };
    let best = measured.iter().filter(is_slowest).max_by(|a, b| a.1.gbit_s.total_cmp(&b.1.gbit_s));
    best.map(|(test, rate)| (*test, rate.clone()))
}

/// What makes two runs comparable.
fn settings(test: &PerfTest) -> impl PartialEq {
    let largest = bandwidths(test).map(|(size, _)| size).max();
    let network = (test.link_type.clone(), test.mtu, test.gid_index);
    (test.test.clone(), test.queue_pairs, test.connection.clone(), network, largest)
}

fn of_device(case: &Case, device: Option<&str>) -> Option<Finding> {
    let (port, rate) = port_rate(case, device)?;
    let (test, Rate { gbit_s, at }) = best(case, device)?;
    let filled = gbit_s >= healthy_share(test) * rate;
    if !filled && (test.lost.is_some() || !shows_bandwidth(case, device)) {
        return None;
    }
    let (test_name, reached, on) = (name(test), format!("{gbit_s:.2}"), on(device));
    let percent = format!("{:.0}", 100.0 * gbit_s / rate);
    let mut evidence: Vec<Evidence> = vec![Evidence::new(test.source.clone())];
    evidence.extend(port.map(Evidence::new));
    if filled {
        const WHY: &str =
            "Large messages fill nine tenths of a healthy port, the rest are headers and acknowledgements.";
        let title = format!("{test_name} reaches {reached} Gbit/s{on}, {percent}% of its port's {rate} Gbit/s");
        return Some(sound(0.8, title, WHY, evidence));
    }
    let option = device.map_or(String::new(), |device| format!("-d {device} "));
    let words: [(&str, &dyn Display); 7] = [
        ("test", &test_name),
        ("reached", &reached),
        ("at", &at),
        ("on", &on),
        ("option", &option),
        ("percent", &percent),
        ("rate", &rate),
    ];
    Some(found("wire.slow", &words, evidence))
}

/// The port of the device that runs slowest, of all hosts that report one; else the rate that the user told.
pub fn port_rate(case: &Case, device: Option<&str>) -> Option<(Option<SourceLine>, f64)> {
    let seen = device.and_then(|device| seen_rate(case, device)).map(|(line, rate)| (Some(line), rate));
    seen.or_else(|| Some((None, case.nics?.rate.0 * 8.0)))
}

fn seen_rate(case: &Case, device: &str) -> Option<(SourceLine, f64)> {
    let devices = case.run.machines.iter().flat_map(|machine| machine.rdma.iter().map(move |rdma| (machine, rdma)));
    let ports = devices.filter(|(_, rdma)| rdma.name == device);
    let rates = ports.flat_map(|(machine, rdma)| {
        rdma.ports.iter().filter_map(move |port| Some((machine, port.port, port.rate_gbps.filter(|rate| *rate > 0.0)?)))
    });
    let (machine, port, rate) = rates.min_by(|a, b| a.2.total_cmp(&b.2))?;
    let name = format!("{device}/{port}");
    let line = machine.lines_of("rate", Some(&name)).next().map(|told| told.source.clone());
    let saved = || SourceLine::new(machine.saved.unwrap_or_default(), &format!("{name}: {rate} Gbit/s"));
    Some((line.unwrap_or_else(saved), rate))
}

/// What a test says of its port, in one direction.
#[derive(Clone)]
struct Rate {
    gbit_s: f64,
    /// ` at 2 MiB`, where that size is slow and smaller ones are not.
    at: String,
}

/// The plateau of large messages; where one of them is far behind what smaller ones reach, the slowest of these; the best where all are small.
fn one_way(test: &PerfTest) -> Option<Rate> {
    let both_ways = ["Bidirectional", "Bi-Directional"].iter().any(|both| name(test).contains(both));
    let mut rows: Vec<(Bytes, f64)> = bandwidths(test).collect();
    rows.sort_by_key(|(size, _)| *size);
    let best = |rows: &[(Bytes, f64)]| rows.iter().map(|(_, rate)| *rate).reduce(f64::max);
    let first_large = rows.iter().position(|(size, _)| *size >= LARGE).unwrap_or(rows.len());
    let large = &rows[first_large..];
    let is_behind = |at: &usize| best(&rows[..*at]).is_some_and(|before| rows[*at].1 < OUT_OF_LINE * before);
    let behind = (first_large..rows.len()).filter(is_behind).map(|at| rows[at]);
    let slowest = behind.min_by(|a, b| a.1.total_cmp(&b.1));
    let plateau = || median(large.iter().rev().take(3).map(|(_, rate)| *rate).collect());
    let rate = slowest.map(|(_, rate)| rate).or_else(plateau).or_else(|| best(&rows))?;
    let at = slowest.map_or(String::new(), |(size, _)| format!(" at {size}"));
    Some(Rate { gbit_s: if both_ways { rate / 2.0 } else { rate }, at })
}

/// Each size with its average in Gbit/s. A program that chooses its sizes takes large ones.
fn bandwidths(test: &PerfTest) -> impl Iterator<Item = (Bytes, f64)> + '_ {
    test.rows.iter().filter_map(|row| match row {
        PerfRow::Bandwidth { size, average_gbit_s, .. } => Some((size.unwrap_or(LARGE), *average_gbit_s)),
        PerfRow::Latency { .. } => None,
    })
}

fn shows_bandwidth(case: &Case, device: Option<&str>) -> bool {
    let measured = case.run.perftests.iter().filter(|test| test.device.as_deref() == device);
    measured.flat_map(bandwidths).any(|(size, _)| size >= LARGE)
}
