//! How connections end: closed with work under way, or with a peer that dies.

use super::connecting::pair;
use super::{close, kept, wrong};
use crate::api::{Memory, Request, Room};
use crate::case::{Case, CaseResult, End, Stop};
use busbw_model::RuleOutcome;
use std::time::Instant;

/// More than the sockets of a connection hold, so that a send does not end before its receive is posted.
const LEN: usize = 256 << 20;
const TAG: i32 = 1;
/// Plugins without threads of their own work when they are tested.
const TESTS: usize = 20;

fn begin(case: &Case, end: End) -> CaseResult<Request> {
    match end {
        End::Sender(sender) => {
            let memory = Memory::new(LEN);
            let registration = case.plugin.register_to_send(sender, memory)?;
            case.send(sender, memory, TAG, registration)
        }
        End::Receiver(receiver) => {
            let memory = Memory::new(LEN);
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            case.receive(receiver, &[Room { memory, tag: TAG, registration }])
        }
    }
}

/// Tests until the request ends in whatever way: the error, or nothing if it was served.
fn outcome(case: &Case, request: Request) -> CaseResult<Option<String>> {
    case.until("word that the other end is closed", || match case.plugin.test(request, 1) {
        Ok(None) => Ok(None),
        Ok(Some(_)) => Ok(Some(None)),
        Err(wrong) => Ok(Some(Some(wrong.to_string()))),
    })
}

/// A sender is closed whose message nobody receives, and a receiver that nobody sends to; the other end then tries.
pub(super) fn close_under_way(case: &mut Case) -> CaseResult<RuleOutcome> {
    let mut seen = String::new();
    for closer_sends in [true, false] {
        let end = case.one_way()?;
        if matches!(end, End::Sender(_)) == closer_sends {
            let request = begin(case, end)?;
            for _ in 0..TESTS {
                if case.plugin.test(request, 1)?.is_some() && !closer_sends {
                    return wrong("a receive ended before anything was sent");
                }
            }
            close(case, end)?;
            case.barrier()?;
            case.barrier()?;
            continue;
        }
        case.barrier()?;
        // The other end is closed once this is said.
        case.barrier()?;
        // A post that fails has noticed as well.
        seen = match begin(case, end).map(|request| outcome(case, request)) {
            Ok(told) => told?.unwrap_or_default(),
            Err(Stop::Wrong(wrong)) => wrong.to_string(),
            Err(stop) => return Err(stop),
        };
        match end {
            End::Sender(sender) => case.plugin.close_send(sender)?,
            End::Receiver(receiver) => case.plugin.close_recv(receiver)?,
        }
        case.barrier()?;
    }
    Ok(kept(seen))
}

/// The second end is killed while the first sends to it and waits for its message; the first must hear of it.
pub(super) fn peer_death(case: &mut Case) -> CaseResult<RuleOutcome> {
    let (there, back) = pair(case)?;
    if !case.is_first() {
        case.barrier()?;
        case.be_killed()?;
    }
    let (receive, send) = (begin(case, back)?, begin(case, there)?);
    case.barrier()?;
    let began = Instant::now();
    let Some(error) = outcome(case, receive)? else {
        return wrong("a message from a process that died without sending it was told as received");
    };
    let after = began.elapsed();
    // Bytes that the socket accepted may count as sent, but the end must get some answer.
    outcome(case, send)?;
    Ok(kept(format!("after {:.0} ms: {error}", after.as_secs_f64() * 1e3)))
}
