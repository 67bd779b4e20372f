//! Where in the program ranks are: by the frames of their stacks, else by their system calls.

use super::{BUSY, Class, Fault, One, Seen, ranks};
use crate::case::Case;
use crate::words::KNOWN;
use busbw_model::{Evidence, SourceLine, Stack};
use std::collections::BTreeMap;

/// Where the main thread of a rank is, by its Python frames.
struct Spot<'a> {
    one: One<'a>,
    /// The innermost frame.
    frame: &'a SourceLine,
    /// The innermost frame outside of PyTorch and Python's own files.
    called: Option<&'a SourceLine>,
    /// Whether it is in a collective, or where a collective is waited for.
    in_collective: bool,
}

/// Files of PyTorch in which a rank waits for others beside those of `waits.collective`: the backward pass waits for its reductions.
const WAITS_FOR_OTHERS: [&str; 4] =
    ["torch/distributed/", "torch/nn/parallel/", "torch/autograd/", "torch/nn/modules/module.py"];

/// The main thread of a rank: hosts number their processes themselves.
pub(super) fn stack_of<'a>(case: &Case<'a>, one: One<'a>) -> Option<&'a Stack> {
    let own = |stack: &&Stack| {
        let place = stack.frames.first().map(|frame| frame.place);
        let file = place.map(|place| case.run.path(place)).unwrap_or_default();
        stack.pid == Some(one.rank.pid.into()) && file.ends_with(&format!("stacks-{}.txt", one.of.host))
    };
    let main = |stack: &&Stack| matches!(stack.thread.as_str(), "MainThread" | "1");
    case.run.stacks.iter().filter(own).find(main)
}

fn spot<'a>(case: &Case<'a>, one: One<'a>) -> Option<Spot<'a>> {
    let stack = stack_of(case, one)?;
    let frame = stack.frames.first()?;
    let of_library = |frame: &&SourceLine| frame.text.contains("(torch/") || frame.text.contains("(<");
    let called = stack.frames.iter().find(|frame| !of_library(frame));
    let collective = KNOWN
        .waits
        .iter()
        .filter(|(id, _)| matches!(id.as_str(), "waits.collective" | "waits.mpi" | "waits.rendezvous"));
    let files: Vec<&str> =
        collective.flat_map(|(_, files)| files).map(String::as_str).chain(WAITS_FOR_OTHERS).collect();
    let elsewhere = KNOWN.waits.iter().any(|(id, files)| {
        matches!(id.as_str(), "waits.data-loader" | "waits.checkpoint")
            && files.iter().any(|file| frame.text.contains(file))
    });
    let in_collective = !elsewhere && files.iter().any(|file| frame.text.contains(file));
    Some(Spot { one, frame, called, in_collective })
}

/// Ranks outside of collectives while others wait in one; or ranks in several.
pub(super) fn elsewhere<'a>(case: &Case<'a>, seen: &Seen<'a>) -> Option<Fault<'a>> {
    let spots: Vec<Spot> = seen.there().filter_map(|one| spot(case, one)).collect();
    let (inside, outside): (Vec<&Spot>, Vec<&Spot>) = spots.iter().partition(|spot| spot.in_collective);
    let line = |frame: &SourceLine| frame.text.trim().to_owned();
    let evidence = |spots: &[&Spot]| {
        spots
            .iter()
            .take(4)
            .map(|spot| Evidence::noted(spot.frame.clone(), format!("rank {}", spot.one.rank.rank)))
            .collect()
    };
    // Where the others are on hosts that are not seen, those here that are in no collective are told from them by that alone.
    let told = outside.len() <= inside.len() || inside.is_empty() && seen.unseen() > 0;
    if !outside.is_empty() && told {
        let those: Vec<One> = outside.iter().map(|spot| spot.one).collect();
        let computes = those.iter().all(|one| one.rank.cores >= BUSY);
        let class = if computes { Class::Busy } else { Class::Elsewhere };
        let first = outside.first()?;
        let at = first.called.filter(|called| called.place != first.frame.place).map(line);
        let from = at.map_or(String::new(), |at| format!(", called from {at}"));
        let doing = format!("it is in {}{from}", line(first.frame));
        return Some(Fault { evidence: evidence(&outside), ..seen.fault(class, &those, doing) });
    }
    // All in collectives: in the same one, as far as the program's own lines tell.
    let mut groups: BTreeMap<String, Vec<&Spot>> = BTreeMap::new();
    for spot in &inside {
        groups.entry(spot.called.map(line).unwrap_or_default()).or_default().push(spot);
    }
    if !outside.is_empty() || groups.len() < 2 {
        return None;
    }
    let mut by_size: Vec<(&String, &Vec<&Spot>)> = groups.iter().collect();
    by_size.sort_by_key(|(_, spots)| spots.len());
    let ((at, few), (_, many)) = (by_size[0], by_size[by_size.len() - 1]);
    let one_sided = few.len() < many.len();
    let named: Vec<One> = if one_sided { few.iter().map(|spot| spot.one).collect() } else { Vec::new() };
    let those = |spots: &[&Spot]| ranks(&spots.iter().map(|spot| spot.one.rank.rank).collect::<Vec<_>>());
    let parts: Vec<String> = by_size.iter().map(|(at, spots)| format!("{} in {at}", those(spots))).collect();
    let doing = if one_sided { format!("it is in {at}") } else { parts.join("; ") };
    let all: Vec<&Spot> = few.iter().chain(many.iter()).copied().collect();
    Some(Fault { evidence: evidence(&all), ..seen.fault(Class::Elsewhere, &named, doing) })
}

/// Ranks whose main thread is in another system call than those of most: where no stack can be read.
pub(super) fn by_calls<'a>(seen: &Seen<'a>) -> Option<Fault<'a>> {
    /// Condition variables: Gloo's and NCCL's callers wait on one.
    const OF_WAITERS: &str = "futex";
    let call = |one: &One<'a>| one.rank.system_call.clone().unwrap_or_default();
    let mut groups: BTreeMap<String, Vec<One>> = BTreeMap::new();
    for one in seen.there() {
        groups.entry(call(&one)).or_default().push(one);
    }
    let largest = groups.iter().max_by_key(|(call, those)| (those.len(), call.as_str() == OF_WAITERS))?.0.clone();
    let count = groups.get(&largest).map_or(0, Vec::len);
    let odd: Vec<One> = seen.there().filter(|one| call(one) != largest).collect();
    let told = !odd.is_empty() && (odd.len() < count || odd.len() == count && largest == OF_WAITERS);
    let first = odd.first().filter(|_| told && !largest.is_empty())?;
    let name = call(first);
    let name = if name.is_empty() { "no system call".to_owned() } else { name };
    Some(seen.fault(Class::Elsewhere, &odd, format!("its main thread is in {name}, theirs in {largest}")))
}
