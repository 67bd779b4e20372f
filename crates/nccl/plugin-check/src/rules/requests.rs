//! Requests under way: how many, what happens beyond, both ways at once.

use super::connecting::{close, pair};
use super::{kept, wrong};
use crate::api::{Memory, Request, Room};
use crate::case::{Case, CaseResult, End};
use busbw_model::RuleOutcome;

const TAG: i32 = 1;
/// Of the messages in these cases: longer than what sockets hold, so that requests pile up.
const LEN: usize = 256 << 10;
/// Of messages both ways: what sockets hold is not enough for one of them.
const LARGE: usize = 4 << 20;
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

/// Posts requests of `len` bytes until `most` are under way or the plugin is busy.
fn pile_up(case: &Case, end: End, most: usize, len: usize) -> CaseResult<Vec<(Request, Memory)>> {
    let mut under_way = Vec::new();
    while under_way.len() < most {
        let memory = memory(end, under_way.len(), len);
        match post(case, end, memory)? {
            Some(request) => under_way.push((request, memory)),
            None => break,
        }
    }
    Ok(under_way)
}

/// Ends them in order, and looks at what was received.
fn settle(case: &Case, end: End, under_way: Vec<(Request, Memory)>) -> CaseResult<()> {
    for (at, (request, memory)) in under_way.into_iter().enumerate() {
        let sizes = case.finish(request, 1, "the end of a request")?;
        let seed = at as u64 + 1;
        if matches!(end, End::Receiver(_)) && (sizes != [LEN] || memory.differs(LEN, seed).is_some()) {
            return wrong(format!("message {seed} of many arrived as {sizes:?} bytes, or changed"));
        }
    }
    Ok(())
}

/// NCCL's number of requests, on both ends, before the first test.
pub(super) fn as_many_as_nccl(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let most = case.plugin.most_requests();
    let under_way = pile_up(case, end, most, LEN)?;
    let taken = under_way.len();
    case.barrier()?;
    if taken < most {
        return wrong(format!("only {taken} of {most} requests were taken before the first test"));
    }
    settle(case, end, under_way)?;
    close(case, end)?;
    Ok(kept(""))
}

/// Requests without end; both ends then go on with as many as the one that took fewer.
pub(super) fn busy(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let mut under_way = pile_up(case, end, PLENTY, LEN)?;
    let mine = under_way.len();
    let told = case.exchange(&(mine as u32).to_le_bytes())?;
    let theirs = told.try_into().map_or(0, u32::from_le_bytes) as usize;
    // The end that took fewer posts the rest as the first ones end.
    let rest = under_way.len()..mine.max(theirs);
    let mut finished = 0;
    for at in rest {
        let (request, room) = under_way[finished];
        case.finish(request, 1, "the end of a request")?;
        finished += 1;
        if matches!(end, End::Receiver(_)) && room.differs(LEN, finished as u64).is_some() {
            return wrong(format!("message {finished} of many changed"));
        }
        let memory = memory(end, at, LEN);
        let request = case.until("room for a request", || post(case, end, memory))?;
        under_way.push((request, memory));
    }
    for (request, _) in under_way.split_off(finished) {
        case.finish(request, 1, "the end of a request")?;
    }
    close(case, end)?;
    Ok(kept(if mine == PLENTY { format!("{PLENTY} and more are taken") } else { format!("{mine} are taken") }))
}

/// Large messages each way. Both directions are tested in turn, as NCCL's proxy does: what waits is a call that does not come
/// back.
pub(super) fn both_ways(case: &mut Case) -> CaseResult<RuleOutcome> {
    let (there, back) = pair(case)?;
    for _ in 0..4 {
        let receives = pile_up(case, back, 8, LARGE)?;
        let sends = pile_up(case, there, 8, LARGE)?;
        if receives.len() < 8 || sends.len() < 8 {
            return wrong("8 requests each way were not taken");
        }
        let mut left = [sends.into_iter(), receives.into_iter()].map(Iterator::peekable);
        case.until("the end of messages both ways", || {
            for side in &mut left {
                if let Some((request, _)) = side.peek()
                    && case.plugin.test(*request, 1)?.is_some()
                {
                    side.next();
                }
            }
            Ok(left.iter_mut().all(|side| side.peek().is_none()).then_some(()))
        })?;
        case.barrier()?;
    }
    close(case, there)?;
    close(case, back)?;
    Ok(kept(""))
}

pub(super) fn flush(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let mut seen = "";
    let memory = memory(end, 0, LEN);
    match end {
        End::Sender(sender) => {
            let registration = case.plugin.register_to_send(sender, memory)?;
            let request = case.send(sender, memory, TAG, registration)?;
            case.finish(request, 1, "the end of a send")?;
        }
        End::Receiver(receiver) => {
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            let room = Room { memory, tag: TAG, registration };
            let request = case.receive(receiver, &[room])?;
            case.finish(request, 1, "a message")?;
            match case.plugin.iflush(receiver, room)? {
                Some(request) => drop(case.finish(request, 1, "the end of a flush")?),
                None => seen = "nothing to wait for",
            }
        }
    }
    close(case, end)?;
    Ok(kept(seen))
}
