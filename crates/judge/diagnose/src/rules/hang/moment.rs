//! What dumps alone leave open: whether ranks stand still, or only stood so at that moment.

use super::{Job, is_dumps_alone};
use crate::case::Case;
use busbw_model::{Finding, FlightCalls, FlightDump, FlightEntry, GroupName, Suspects, WorkState};
use std::collections::BTreeMap;

/// Whether one dump alone shows that anybody waits, and no rank called what others did not: a rank that is a little late looks so too.
pub(crate) fn is_of_a_moment(case: &Case) -> bool {
    let job = Job::of(case);
    is_dumps_alone(case) && job.diverged().is_empty() && job.waiting().len() < 2
}

/// Whether suspects only wait for others that may be at fault; or nothing but dumps is given, and they do not show that anybody is at fault: they are of
/// a moment, or as many as half of their ranks are behind, as ranks of a job are that moves, or the others wait for these in each round, or fewer than
/// two do, or many ranks lack, for whom these may wait, and nobody called what others did not.
pub(crate) fn is_unsure_of(case: &Case, finding: &Finding) -> bool {
    let dumps = case.run.flight_dumps.len();
    let many = |suspects: &Suspects| suspects.ranks.len() > 1 && suspects.ranks.len() * 2 >= dumps;
    let job = Job::of(case);
    let odd = |suspects: &Suspects| {
        let odd = &job.diverged() | &job.went_another_way();
        suspects.ranks.iter().all(|rank| odd.contains(rank))
    };
    let lacking = case.ranks.which(|view| view.dump.is_none_or(|dump| dump.cut)).len();
    let lack = lacking * 3 >= case.ranks.all().len();
    let few = |suspects: &Suspects| !odd(suspects) && (lack || job.led_to(&suspects.ranks).len() < 2);
    let usual = |suspects: &Suspects| many(suspects) || are_always_late(case, suspects) || few(suspects);
    let looked_for = job.others_than_who_waits();
    let only_wait =
        |suspects: &Suspects| suspects.class.is_none() && suspects.ranks.iter().all(|rank| !looked_for.contains(rank));
    let told = finding.suspects.as_ref();
    is_of_a_moment(case) || told.is_some_and(only_wait) || is_dumps_alone(case) && told.is_some_and(usual)
}

/// Whether the job moved while its dumps were written, one after the other: a rank is a whole round further than another of its group, which it
/// could not be without that one.
pub(crate) fn moved(case: &Case) -> bool {
    let mut last: BTreeMap<&GroupName, BTreeMap<u32, u64>> = BTreeMap::new();
    let mut again: BTreeMap<&GroupName, u64> = BTreeMap::new();
    for dump in &case.run.flight_dumps {
        let (Some(rank), FlightCalls { kinds, calls }) = (dump.rank, &dump.calls) else { continue };
        let mut before: Vec<Option<u64>> = vec![None; kinds.len()];
        for call in calls {
            let kind = &kinds[call.kind as usize];
            last.entry(&kind.group).or_default().insert(rank, call.sequence);
            let passed = before[call.kind as usize].replace(call.sequence).filter(|_| kind.waits_for_all());
            if let Some(passed) = passed {
                let known = again.entry(&kind.group).or_default();
                *known = (*known).max(passed);
            }
        }
    }
    let behind = |(group, ranks): (&&GroupName, &BTreeMap<u32, u64>)| {
        ranks.values().min().is_some_and(|least| again.get(group).is_some_and(|passed| least < passed))
    };
    last.iter().any(behind)
}

/// Whether suspects came late to the rounds before as well: a job that moves waits for such ranks at any moment.
fn are_always_late(case: &Case, suspects: &Suspects) -> bool {
    let dump = |rank: &u32| case.ranks.get(*rank)?.dump;
    let open = |dump: &&FlightDump| dump.at.as_ref().is_some_and(|at| at.state != WorkState::Completed);
    let all = case.ranks.all();
    let waiting = || all.iter().filter(|rank| !suspects.ranks.contains(rank)).filter_map(dump).filter(open);
    let late = |one: &FlightDump| waiting().any(|other| is_always_later(one, other));
    !suspects.ranks.is_empty() && suspects.ranks.iter().all(|rank| dump(rank).is_some_and(late))
}

/// Whether a rank came later than another to rounds of what the other waits in now: to a third of them at least, by a good part of a round.
fn is_always_later(one: &FlightDump, other: &FlightDump) -> bool {
    const SHARE: f64 = 0.2;
    const FEWEST: usize = 2;
    let Some(at) = &other.at else { return false };
    let (mine, theirs) = (rounds(one, at), rounds(other, at));
    let (Some((first, began)), Some((last, ended))) = (theirs.first_key_value(), theirs.last_key_value()) else {
        return false;
    };
    let round_ns = ended.saturating_sub(*began) as f64 / last.saturating_sub(*first).max(1) as f64;
    let lateness = mine.iter().filter_map(|(number, came)| Some(*came as f64 - *theirs.get(number)? as f64));
    let (late, on_time): (Vec<f64>, Vec<f64>) = lateness.partition(|late| *late >= SHARE * round_ns);
    late.len() >= FEWEST && late.len() * 2 >= on_time.len()
}

/// When a rank came to each operation like one that is open, before it.
fn rounds(dump: &FlightDump, open: &FlightEntry) -> BTreeMap<u64, u64> {
    let FlightCalls { kinds, calls } = &dump.calls;
    let like = |kind: u32| {
        let kind = &kinds[kind as usize];
        let elements = (open.work.numel_in, open.work.numel_out);
        (&kind.group, &kind.op, kind.elements) == (&open.group, &open.work.op, elements)
    };
    let before = calls.iter().filter(|call| call.sequence < open.work.sequence && like(call.kind));
    before.map(|call| (call.sequence, call.created_ns)).collect()
}
