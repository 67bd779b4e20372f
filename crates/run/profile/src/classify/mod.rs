//! Who holds up an operation, and how, from what the ranks' steps waited for.
//!
//! In a ring, all wait for the slowest, so that long waits are everywhere. Who is at fault shows where nobody else is to blame:
//!
//! | class | its own sign | what must not be |
//! | --- | --- | --- |
//! | late | it begins after the others | - |
//! | network | its sends stay in the network longer than others' | - |
//! | slow receiver | its sender waits for room | its GPU waits for nothing: what came is taken at once |
//! | slow GPU | what came lies there until its GPU takes it | it waits neither for the network nor for room: its GPU could go on |

use crate::ledger::Steps;
use busbw_model::StragglerClass;

/// A rank must begin later than the usual one by this share of the operation.
const LATE: f64 = 0.25;
/// A wait per step must be longer than the usual one by this share of the operation's time per step.
const LONG: f64 = 0.3;
/// What is shorter is chance, in nanoseconds.
const LEAST_NS: f64 = 20_000.0;
/// Of fewer ranks, nobody is usual.
const FEWEST: usize = 3;

/// One rank's part of an operation. Times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub rank: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The rank that it sends to.
    pub peer: Option<u32>,
    pub steps: Steps,
}

/// Who is at fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    pub class: StragglerClass,
    pub rank: u32,
    pub peer: Option<u32>,
    /// What the other ranks lost, in nanoseconds.
    pub cost_ns: f64,
}

/// Who holds up an operation of all these ranks; `None` where nobody does more than others. `error_ns`: what the times of ranks may be
/// wrong by beside each other.
pub fn judge(parts: &[Part], error_ns: f64) -> Option<Verdict> {
    late(parts, error_ns).or_else(|| slow(parts))
}

fn late(parts: &[Part], error_ns: f64) -> Option<Verdict> {
    let last = parts.iter().max_by_key(|part| part.begin_ns)?;
    let usual = median(parts.iter().filter(|part| part.rank != last.rank).map(|part| part.begin_ns as f64))?;
    let end = parts.iter().map(|part| part.end_ns).max()?;
    let later = last.begin_ns as f64 - usual;
    let whole = end as f64 - usual;
    if later < LEAST_NS.max(error_ns) || later < LATE * whole {
        return None;
    }
    let cost_ns = parts.iter().map(|part| last.begin_ns.saturating_sub(part.begin_ns) as f64).sum();
    Some(Verdict { class: StragglerClass::Late, rank: last.rank, peer: None, cost_ns })
}

/// A rank's waits per step.
struct Waits {
    rank: u32,
    peer: Option<u32>,
    network: f64,
    room: f64,
    taken: f64,
}

fn slow(parts: &[Part]) -> Option<Verdict> {
    let waits: Vec<Waits> = parts.iter().filter_map(Waits::of).collect();
    if waits.len() < FEWEST {
        return None;
    }
    // The fast half is what is usual: one that is slow slows down most others.
    let usual = |of: fn(&Waits) -> f64| quantile(waits.iter().map(of), 0.25).unwrap_or(0.0);
    let (network, room, taken) = (usual(|w| w.network), usual(|w| w.room), usual(|w| w.taken));
    let steps = parts.iter().map(|part| part.steps.count).max().unwrap_or(0) as f64 / 2.0;
    let begin = parts.iter().map(|part| part.begin_ns).min()?;
    let end = parts.iter().map(|part| part.end_ns).max()?;
    // Many steps are under way at once: the operation's time is the measure, not the steps'.
    let least = (LONG * end.saturating_sub(begin) as f64 / steps).max(LEAST_NS);
    let excess = |value: f64, usual: f64| (value - usual).max(0.0);
    let found = |class, rank, peer, each: f64| {
        let cost_ns = each * steps * (waits.len() - 1) as f64;
        Some(Verdict { class, rank, peer, cost_ns })
    };
    let worst = |of: &dyn Fn(&Waits) -> f64| waits.iter().max_by(|a, b| of(a).total_cmp(&of(b))).map(|w| (w, of(w)));
    let (slowest, each) = worst(&|w| excess(w.network, network))?;
    if each >= least {
        return found(StragglerClass::Network, slowest.rank, slowest.peer, each);
    }
    let taken_by =
        |rank: Option<u32>| waits.iter().find(|w| Some(w.rank) == rank).map_or(0.0, |w| excess(w.taken, taken));
    // Whose receiver offers no room, though its own GPU takes what comes.
    let (sender, each) = worst(&|w| excess(w.room, room) - 2.0 * taken_by(w.peer))?;
    if each >= least
        && let Some(receiver) = sender.peer
    {
        return found(StragglerClass::SlowReceiver, receiver, Some(sender.rank), each);
    }
    let (slowest, each) = worst(&|w| excess(w.taken, taken) - excess(w.room, room) - excess(w.network, network))?;
    (each >= least).then(|| found(StragglerClass::SlowGpu, slowest.rank, None, each))?
}

impl Waits {
    /// `None` for a rank without steps.
    fn of(part: &Part) -> Option<Self> {
        let Steps { count, send_peer, send_network, receive_gpu, .. } = part.steps;
        // Half of them send.
        let each = |time: u64| 2.0 * time as f64 / count as f64;
        (count > 0).then(|| Waits {
            rank: part.rank,
            peer: part.peer,
            network: each(send_network),
            room: each(send_peer),
            taken: each(receive_gpu),
        })
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

fn quantile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 - 1.0).max(0.0) * share).round() as usize).copied()
}

#[cfg(test)]
mod tests;
