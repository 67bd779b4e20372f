//! What becomes of messages: order, tags, and those that are too large.

use super::{arrived, close, kept, wrong};
use crate::api::{Memory, Receiver, Registration, Request, Room, Sender};
use crate::case::{Case, CaseResult, End, Stop};
use busbw_model::RuleOutcome;
use std::collections::VecDeque;

/// Sizes that lie around what transports treat differently: inline, packets, pages, chunks, stripes.
const SIZES: [usize; 16] = [8, 1, 0, 513, 4096, 65_536, 3, 100_001, 8, 0, 524_288, 70_000, 1_048_577, 16, 262_144, 5];
/// How often [`SIZES`] are gone through.
const ROUNDS: usize = 16;
const UNDER_WAY: usize = 8;
const TAG: i32 = 7;

fn sizes() -> impl Iterator<Item = (u64, usize)> {
    (1..).zip((0..ROUNDS).flat_map(|_| SIZES))
}

fn largest() -> usize {
    SIZES.into_iter().max().unwrap_or(0)
}

/// Several hundred messages of every size, several under way, each with its own pattern.
pub(super) fn in_order(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    match end {
        End::Sender(sender) => send_all(case, sender)?,
        End::Receiver(receiver) => receive_all(case, receiver)?,
    }
    close(case, end)?;
    Ok(kept(""))
}

fn send_all(case: &mut Case, sender: Sender) -> CaseResult<()> {
    let mut under_way: VecDeque<(Request, Registration)> = VecDeque::new();
    let end_one = |(request, registration): (Request, Registration)| {
        case.finish(request, 1, "a send")?;
        Ok(case.plugin.deregister(sender, registration)?)
    };
    for (seed, len) in sizes() {
        if under_way.len() == UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            end_one(first)?;
        }
        let memory = Memory::filled(len, seed);
        let registration = case.plugin.register_to_send(sender, memory)?;
        let post = || Ok(case.plugin.isend(sender, memory, TAG, registration)?);
        let request = case.post(&mut under_way, end_one, post)?;
        under_way.push_back((request, registration));
    }
    under_way.into_iter().try_for_each(end_one)
}

fn receive_all(case: &mut Case, receiver: Receiver) -> CaseResult<()> {
    let rooms: Vec<Memory> = (0..UNDER_WAY).map(|_| Memory::new(largest())).collect();
    let rooms = rooms
        .into_iter()
        .map(|memory| {
            let registration = case.plugin.register_to_receive(receiver, memory)?;
            Ok(Room { memory, tag: TAG, registration })
        })
        .collect::<CaseResult<Vec<Room>>>()?;
    let mut under_way: VecDeque<(Request, Room, u64, usize)> = VecDeque::new();
    let end_one = |(request, room, seed, len): (Request, Room, u64, usize)| {
        case.finish(request, 1, "a receive")?;
        arrived(seed, len, room.memory)
    };
    for ((seed, len), room) in sizes().zip(rooms.iter().cycle()) {
        if under_way.len() == UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            end_one(first)?;
        }
        let request = case.post(&mut under_way, end_one, || Ok(case.plugin.irecv(receiver, &[*room])?))?;
        under_way.push_back((request, *room, seed, len));
    }
    under_way.into_iter().try_for_each(end_one)
}

/// A message too large, small enough to go in one piece and large enough not to.
pub(super) fn larger_than_room(case: &mut Case) -> CaseResult<RuleOutcome> {
    let mut seen = String::new();
    for (len, room) in [(4096, 1024), (4 << 20, 1 << 20)] {
        // After an error the connection cannot be used any more, and with some plugins no other either. NCCL makes none then.
        let end = match case.one_way() {
            Err(Stop::Wrong(_) | Stop::PeerGone) if len > 4096 => break,
            end => end?,
        };
        match end {
            End::Sender(sender) => {
                let memory = Memory::filled(len, 1);
                let registration = case.plugin.register_to_send(sender, memory)?;
                let request = case.send(sender, memory, TAG, registration)?;
                // The sender's result does not matter: the receiver's decides.
                case.nudge(request);
                case.barrier()?;
            }
            End::Receiver(receiver) => {
                let memory = Memory::new(room);
                let registration = case.plugin.register_to_receive(receiver, memory)?;
                let request = case.receive(receiver, &[Room { memory, tag: TAG, registration }])?;
                seen = refused(case, request, memory, len)?;
                case.barrier()?;
            }
        }
    }
    Ok(kept(seen))
}

fn refused(case: &Case, request: Request, memory: Memory, len: usize) -> CaseResult<String> {
    let room = memory.len();
    let answer = case.until("an error", || match case.plugin.test(request, 1) {
        Ok(None) => Ok(None),
        Ok(Some(sizes)) => Ok(Some(Err(sizes))),
        Err(wrong) => Ok(Some(Ok(wrong.to_string()))),
    });
    if !memory.guards_hold() {
        return wrong(format!("a message of {len} bytes was written beyond its room of {room}"));
    }
    match answer? {
        Ok(error) => Ok(error),
        Err(sizes) => {
            let told = sizes[0].map(|size| format!(" as {size} bytes")).unwrap_or_default();
            wrong(format!("a message of {len} bytes was received{told} in a room of {room}, without an error"))
        }
    }
}

/// A group of receives; the sends come in the opposite order.
pub(super) fn by_tag(case: &mut Case) -> CaseResult<RuleOutcome> {
    let n = case.most_grouped()?;
    if n < 2 {
        return Ok(RuleOutcome::NotOffered("the device takes one receive per call (maxRecvs 1)".into()));
    }
    let end = case.one_way()?;
    for round in 0..20_u64 {
        let len = |at: usize| [100, 70_000, 0, 1_000_000, 8, 4096, 300_000, 1][at % 8];
        let seed = |at: usize| round * 100 + at as u64 + 1;
        match end {
            End::Sender(sender) => {
                let end_one = |request| case.finish(request, 1, "a send").map(drop);
                let mut requests = VecDeque::new();
                for at in (0..n).rev() {
                    let memory = Memory::filled(len(at), seed(at));
                    let registration = case.plugin.register_to_send(sender, memory)?;
                    let post = || Ok(case.plugin.isend(sender, memory, at as i32 + 1, registration)?);
                    let request = case.post(&mut requests, end_one, post)?;
                    requests.push_back(request);
                }
                requests.into_iter().try_for_each(end_one)?;
            }
            End::Receiver(receiver) => {
                let rooms = (0..n)
                    .map(|at| {
                        let memory = Memory::new(1_000_000);
                        let registration = case.plugin.register_to_receive(receiver, memory)?;
                        Ok(Room { memory, tag: at as i32 + 1, registration })
                    })
                    .collect::<CaseResult<Vec<Room>>>()?;
                let request = case.receive(receiver, &rooms)?;
                case.finish(request, n, "a group of receives")?;
                rooms.iter().enumerate().try_for_each(|(at, room)| arrived(seed(at), len(at), room.memory))?;
            }
        }
    }
    close(case, end)?;
    Ok(kept(format!("{n} in a call")))
}
