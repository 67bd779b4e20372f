//! Tables of ranks on CPU cores, as `busbw bench` gives them without GPUs: judged by what the host's memory, or the NICs that were
//! told, or the links that were measured, can carry.

use crate::UserFacts;
use crate::case::{Case, Test};
use crate::rules::links;
use busbw_model::{Collective, GBps, Judged, Judgement, Reached, Subject};
use busbw_predict::sockets_at_best;

/// Shares of what is expected between which a run is sound. Runs of 2, 4 and 8 ranks on 2 idle cores lie between 86% and 120%; half of
/// more than the upper one would be praised.
const SOUND: std::ops::RangeInclusive<f64> = 0.65..=1.25;
/// What these runs reach of the bound below: a rank reads what the others reduced while they still reduce.
const OVERLAP: f64 = 1.2;

/// Judges such a table; `None` for others.
pub(super) fn judged(case: &Case, test: &Test, given: &UserFacts) -> Option<Judged> {
    if !test.on_cores() {
        return None;
    }
    let plateau = test.curve.plateau;
    let expected = if test.crosses_nodes() { by_network(case, test, given) } else { by_memory(test) };
    let speed = expected.map(|expected| Reached { measured: plateau, expected });
    let passed = speed.is_some_and(|speed| SOUND.contains(&speed.share()));
    let how = match speed {
        Some(speed) => {
            format!("{plateau}, {:.0}% of the {} expected{}", 100.0 * speed.share(), speed.expected, load(test))
        }
        None => format!("{plateau}"),
    };
    Some(Judged {
        subject: Subject::Speed,
        what: format!("{} on CPU cores", test.table.collective.map_or("the collective", |c| c.name())),
        outcome: if passed { Judgement::Passed } else { Judgement::Undecided },
        question: (!passed).then(|| question(test, &how, expected.is_some())),
        how,
        speed,
    })
}

/// Within a host an all-reduce of S bytes among n ranks moves as much as copies of (n + 1) S: each rank reads a part of all, and
/// copies what the others reduced. Measured for all-reduce alone.
fn by_memory(test: &Test) -> Option<GBps> {
    test.table.collective.filter(|collective| *collective == Collective::AllReduce)?;
    let (memory, ranks) = (test.table.settings.memory?, f64::from(test.table.nranks?));
    Some(GBps(OVERLAP * memory.copy.0 * Collective::AllReduce.busbw_factor(test.table.nranks?) / (ranks + 1.0)))
}

/// Between hosts, with a rank on each, kernel sockets carry what the NICs do, or what `busbw link` measured between the hosts, as far
/// as a host can copy.
fn by_network(case: &Case, test: &Test, given: &UserFacts) -> Option<GBps> {
    let nics = given.nics.and_then(|nics| Some(nics.rate.0 * nics.count? as f64));
    let carried = nics.or_else(|| links::typical_gbit_s(case).map(|gbit_s| gbit_s / 8.0));
    let carried = carried.filter(|_| test.nodes == test.table.nranks)?;
    Some(GBps(carried.min(sockets_at_best().0)))
}

fn load(test: &Test) -> String {
    let memory = test.table.settings.memory.as_ref();
    memory.map_or(String::new(), |memory| format!("; the load was {:.1} on {} cores", memory.load, memory.cores))
}

fn question(test: &Test, how: &str, expected: bool) -> String {
    if expected {
        let caches = if test.crosses_nodes() { "" } else { ", and with sizes that no cache holds (-e 1G)" };
        return format!("{how}. Measure again with nothing else on the machine{caches}");
    }
    let unknown = if test.crosses_nodes() {
        "cores of several hosts: how fast is their network? Measure with one rank per host, and state its NICs with --nics 1x10G"
    } else {
        "cores of a host, and the speed of its memory is not known: measure with `busbw bench all_reduce`, and give its whole output"
    };
    format!("{how} between {unknown}")
}
