//! Requests under way: how many, what happens beyond, both ways at once.

use super::connecting::pair;
use super::{arrived, close, kept};
use crate::api::{Memory, Request, Room};
use crate::case::{Case, CaseResult, End, Stop};
use crate::wire::Wrong;
use busbw_model::{Breach, RuleOutcome};
use std::collections::VecDeque;

const TAG: i32 = 1;
/// Of the messages in these cases: longer than what sockets hold, so that requests pile up.
const LEN: usize = 256 << 10;
/// Of messages both ways: what sockets hold is not enough for one of them.
const LARGE: usize = 4 << 20;
/// Requests that NCCL has at most on a connection without grouped receives: the steps of all operations that share buffers
/// (`NCCL_SHARED_STEPS`, `src/transport/net.cc:646` in NCCL 2.30.7, `:418` in 2.18.6).
const MOST_ALONE: usize = 16;
/// A plugin that took so many requests without a test takes any number.
const PLENTY: usize = 1024;

/// Posts a send or a receive; `None` when the plugin is busy.
fn post(case: &Case, end: End, memory: Memory) -> CaseResult<Option<Request>> {
    Ok(match end {
        End::Sender(sender) => {
            let registration = case.plugin.register_to_send(sender, memory)?;
            case.plugin.isend(sender, memory, TAG, registration)?
        }
        End::Receiver(receiver) => {
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            case.plugin.irecv(receiver, &[Room { memory, tag: TAG, registration }])?
        }
    })
}

fn memory(end: End, at: usize, len: usize) -> Memory {
    match end {
        End::Sender(_) => Memory::filled(len, at as u64 + 1),
        End::Receiver(_) => Memory::new(len),
    }
}

/// Posts requests of `len` bytes until `most` are under way or the plugin is busy. Those that were taken before an error stay.
fn pile_up(case: &Case, end: End, most: usize, len: usize, under_way: &mut Vec<(Request, Memory)>) -> CaseResult<()> {
    while under_way.len() < most {
        let memory = memory(end, under_way.len(), len);
        match post(case, end, memory).map_err(|stop| too_many(stop, under_way.len()))? {
            Some(request) => under_way.push((request, memory)),
            None => break,
        }
    }
    Ok(())
}

/// Either end may be refused first: that is one cause.
fn too_many(stop: Stop, in_flight: usize) -> Stop {
    let Stop::Wrong(wrong) = stop else { return stop };
    let cause = "a request was refused with an error".into();
    Stop::Wrong(Wrong { cause, detail: format!("{wrong}, with {in_flight} in flight") })
}

/// Ends them in order, and looks at what was received.
fn settle(case: &Case, end: End, under_way: Vec<(Request, Memory)>) -> CaseResult<()> {
    for (seed, (request, memory)) in (1..).zip(under_way) {
        case.finish(request, 1, "one of many")?;
        if matches!(end, End::Receiver(_)) {
            arrived(seed, LEN, memory)?;
        }
    }
    Ok(())
}

/// As many requests as a connection may have, on both ends, before the first test.
pub(super) fn as_many_as_nccl(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let most = case.plugin.most_requests();
    let mut under_way = Vec::new();
    let refused = pile_up(case, end, most, LEN, &mut under_way);
    let taken = under_way.len();
    match refused {
        Err(Stop::Wrong(wrong)) if taken >= MOST_ALONE && case.most_grouped()? == 1 => {
            return Ok(noted(
                wrong.to_string(),
                "without grouped receives NCCL has at most 16 requests (NCCL_SHARED_STEPS) on a connection",
            ));
        }
        refused => refused?,
    }
    if taken < most {
        return Ok(noted(
            format!("{taken} of {most} requests were taken before the first test, then null"),
            "NCCL asks again until a request is taken; fewer messages in flight can make it slower",
        ));
    }
    case.barrier()?;
    settle(case, end, under_way)?;
    close(case, end)?;
    Ok(kept(""))
}

fn noted(seen: String, why: &str) -> RuleOutcome {
    RuleOutcome::Noted(Breach { seen, stumbles: false, why: why.into() })
}

/// Requests without end; both ends then go on with as many as the one that took fewer.
pub(super) fn busy(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let mut under_way = Vec::new();
    pile_up(case, end, PLENTY, LEN, &mut under_way)?;
    let mine = under_way.len();
    let told = case.exchange(&(mine as u32).to_le_bytes())?;
    let theirs = told.try_into().map_or(0, u32::from_le_bytes) as usize;
    // The end that took fewer posts the rest as the first ones end.
    let rest = under_way.len()..mine.max(theirs);
    let mut finished = 0;
    for at in rest {
        let (request, room) = under_way[finished];
        case.finish(request, 1, "one of many")?;
        finished += 1;
        if matches!(end, End::Receiver(_)) {
            arrived(finished as u64, LEN, room)?;
        }
        let memory = memory(end, at, LEN);
        let request = case.until("room for a request", || post(case, end, memory))?;
        under_way.push((request, memory));
    }
    for (request, _) in under_way.split_off(finished) {
        case.finish(request, 1, "one of many")?;
    }
    close(case, end)?;
    Ok(kept(if mine == PLENTY { format!("{PLENTY} and more are taken") } else { format!("{mine} are taken") }))
}

/// One direction of messages, as many in flight as the plugin takes.
struct Way {
    end: End,
    left: Vec<Memory>,
    under_way: VecDeque<Request>,
}

impl Way {
    fn new(end: End, messages: usize) -> Self {
        Way { end, left: (0..messages).map(|at| memory(end, at, LARGE)).collect(), under_way: VecDeque::new() }
    }

    /// Posts what is taken and asks after the first that is in flight. Whether all messages are through.
    fn progress(&mut self, case: &Case) -> CaseResult<bool> {
        while let Some(&memory) = self.left.last()
            && let Some(request) = post(case, self.end, memory)?
        {
            self.left.pop();
            self.under_way.push_back(request);
        }
        if let Some(&first) = self.under_way.front()
            && case.plugin.test(first, 1)?.is_some()
        {
            self.under_way.pop_front();
        }
        Ok(self.left.is_empty() && self.under_way.is_empty())
    }
}

/// Large messages each way. Both directions are tested in turn, as NCCL's proxy does: what waits is a call that does not come
/// back.
pub(super) fn both_ways(case: &mut Case) -> CaseResult<RuleOutcome> {
    let (there, back) = pair(case)?;
    for _ in 0..4 {
        let mut ways = [back, there].map(|end| Way::new(end, 8));
        case.until("the end of messages both ways", || {
            let mut done = true;
            for way in &mut ways {
                done &= way.progress(case)?;
            }
            Ok(done.then_some(()))
        })?;
        case.barrier()?;
    }
    close(case, there)?;
    close(case, back)?;
    Ok(kept(""))
}

pub(super) fn flush(case: &mut Case) -> CaseResult<RuleOutcome> {
    if !case.plugin.properties(case.device())?.gpu_memory {
        return Ok(RuleOutcome::NotOffered("the device offers no GPU memory, so NCCL never flushes".into()));
    }
    let end = case.one_way()?;
    let mut seen = "";
    let memory = memory(end, 0, LEN);
    match end {
        End::Sender(sender) => {
            let registration = case.plugin.register_to_send(sender, memory)?;
            let request = case.send(sender, memory, TAG, registration)?;
            case.finish(request, 1, "a send")?;
        }
        End::Receiver(receiver) => {
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            let room = Room { memory, tag: TAG, registration };
            let request = case.receive(receiver, &[room])?;
            case.finish(request, 1, "a receive")?;
            match case.plugin.iflush(receiver, room)? {
                Some(request) => drop(case.finish(request, 0, "a flush")?),
                None => seen = "nothing to wait for",
            }
        }
    }
    close(case, end)?;
    Ok(kept(seen))
}
