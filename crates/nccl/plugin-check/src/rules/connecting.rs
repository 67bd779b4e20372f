//! How connections begin, and what listeners and contexts are.

use super::{arrived, close, kept, wrong};
use crate::api::{Memory, Plugin, Room};
use crate::case::{Case, CaseResult, End, Stop};
use crate::wire::Side;
use busbw_model::RuleOutcome;
use std::time::{Duration, Instant};

/// How often an end that is not ready is asked in vain.
const TRIES: usize = 200;
/// Between tries, so that a plugin's own threads get to run.
const BETWEEN: Duration = Duration::from_millis(1);

/// The first end accepts while nobody connects, the second connects while nobody accepts; the watchdog sees to it that neither
/// waits. Then both go on.
pub(super) fn without_waiting(case: &mut Case) -> CaseResult<RuleOutcome> {
    if case.is_first() {
        let (handle, listener) = case.plugin.listen(case.device())?;
        for _ in 0..TRIES {
            if case.plugin.accept(listener)?.is_some() {
                return wrong("accept gave a connection before anybody connected");
            }
        }
        case.exchange(&handle)?;
        // The other end has tried to connect while this one slept.
        case.barrier()?;
        let receiver = case.until("a connection", || Ok(case.plugin.accept(listener)?))?;
        case.barrier()?;
        case.plugin.close_recv(receiver)?;
        case.plugin.close_listen(listener)?;
        return Ok(kept(""));
    }
    let mut handle = case.exchange(&[])?.try_into().map_err(|_| Stop::PeerGone)?;
    let (mut sender, mut longest) = (None, Duration::ZERO);
    for _ in 0..TRIES {
        let began = Instant::now();
        sender = case.plugin.connect(case.device(), &mut handle)?;
        longest = longest.max(began.elapsed());
        if sender.is_some() {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    case.barrier()?;
    let sender = match sender {
        Some(sender) => sender,
        None => case.until("a connection", || Ok(case.plugin.connect(case.device(), &mut handle)?))?,
    };
    case.barrier()?;
    case.plugin.close_send(sender)?;
    Ok(kept(format!("the longest call took {:.1} ms", longest.as_secs_f64() * 1e3)))
}

/// A listener is closed unused, then one while its connection goes on.
pub(super) fn listeners(case: &mut Case) -> CaseResult<RuleOutcome> {
    let (_, unused) = case.plugin.listen(case.device())?;
    case.plugin.close_listen(unused)?;
    // `one_way` closes its listener as soon as the connection is there.
    let end = case.one_way()?;
    carry(case, end, 100_000, 1)?;
    close(case, end)?;
    Ok(kept(""))
}

/// Two contexts; the one that a connection does not belong to is ended.
pub(super) fn contexts(case: &mut Case) -> CaseResult<RuleOutcome> {
    let Some(other) = case.plugin.another(0xB0B_0002)? else {
        return Ok(RuleOutcome::NotOffered("contexts came with version 11 of the interface".into()));
    };
    let end = case.one_way()?;
    carry(case, end, 4096, 1)?;
    Plugin::finalize(&other)?;
    carry(case, end, 100_000, 2)?;
    close(case, end)?;
    case.plugin.finalize()?;
    // The subprocess lives on: what follows in this process needs the context again.
    case.plugin.init(0xB0B_0003)?;
    Ok(kept(""))
}

/// Sends a message and looks whether it came whole. The memory that it is received into stays registered.
pub(super) fn carry(case: &mut Case, end: End, len: usize, seed: u64) -> CaseResult<()> {
    match end {
        End::Sender(sender) => {
            let memory = Memory::filled(len, seed);
            let registration = case.plugin.register_to_send(sender, memory)?;
            let request = case.send(sender, memory, 0, registration)?;
            case.finish(request, 1, "a send")?;
            case.plugin.deregister(sender, registration)?;
        }
        End::Receiver(receiver) => {
            let memory = Memory::new(len);
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            let request = case.receive(receiver, &[Room { memory, tag: 0, registration }])?;
            case.finish(request, 1, "a receive")?;
            arrived(seed, len, memory)?;
        }
    }
    case.barrier()
}

/// A connection each way: what this end sends on, and what it receives on.
pub(super) fn pair(case: &mut Case) -> CaseResult<(End, End)> {
    let there = case.connection(Side::First)?;
    let back = case.connection(Side::Second)?;
    Ok(if case.is_first() { (there, back) } else { (back, there) })
}
