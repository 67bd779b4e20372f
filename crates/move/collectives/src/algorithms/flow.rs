//! Carries out a [`Plan`]: a numbered list of messages per lane, with receives posted ahead, reductions while the next
//! message is arriving, and sends as soon as their data is there.
//!
//! Why it cannot hang, even where a send ends only when its receive is posted: every rank numbers messages alike (message
//! `p` of a lane is sent at position `p` of one rank and received at position `p` of the other), each rank posts in that
//! order, and what a message waits for lies at lower positions, or at the same position of a rank nearer to the leaves. So
//! the lowest unfinished message of all ranks can always go on. Slots are handed out in order too, and a plan holds at most
//! [`super::chunks::GROUP`] partial results, fewer than there are slots.

use super::chunks::SLOTS;
use super::plan::{Arrival, Landing, LocalCopy, Move, Need, Output, Plan, Source};
use crate::Operation;
use crate::mesh::{Mesh, Request};
use crate::reduction::{Store, cache_bytes, combine, copy};
use crate::{Data, Room};
use busbw_model::{Datatype, RedOp};
use busbw_transport::Result;
use std::collections::VecDeque;

/// How chunks are reduced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reducer {
    pub datatype: Datatype,
    pub redop: RedOp,
    /// By how many ranks a complete average is divided; 0: by none.
    pub ranks: usize,
    /// Bytes of an element.
    pub element: usize,
    /// How a rank copies what is its own.
    pub own: Store,
}

impl Reducer {
    /// The reduction of `op` over `ranks` ranks.
    pub(super) fn new(op: &Operation, ranks: usize) -> Self {
        let ranks = if op.redop == RedOp::Avg { ranks } else { 0 };
        let own = Store::of(op.send.len() + op.receive.len(), cache_bytes());
        Reducer { datatype: op.datatype, redop: op.redop, ranks, element: op.element(), own }
    }

    /// Reduces `ins` into `out`; divides an average when `complete`.
    pub(super) fn reduce(&self, out: Room, ins: &[Data], count: usize, complete: bool) {
        let ranks = if complete { self.ranks } else { 0 };
        combine(&[out], ins, count, self.datatype, self.redop, ranks, Store::Cached);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Posted,
    Done,
}

/// A position under way.
struct Entry {
    step: Move,
    arrival: Stage,
    arriving: [Option<Request>; 2],
    slots: [Option<usize>; 2],
    departure: Stage,
    leaving: [Option<Request>; 2],
}

impl Entry {
    fn new(step: Move) -> Self {
        let stage = |none| if none { Stage::Done } else { Stage::Waiting };
        Entry {
            arrival: stage(step.arrival.is_none()),
            arriving: [None; 2],
            slots: [None; 2],
            departure: stage(step.departure.is_none() && step.copy.is_none()),
            leaving: [None; 2],
            step,
        }
    }

    fn is_done(&self) -> bool {
        self.arrival == Stage::Done && self.departure == Stage::Done
    }
}

/// One lane's plan and how far it has come.
struct Lane<P> {
    number: usize,
    plan: P,
    positions: usize,
    /// The position of the first entry of `window`; all before it are done.
    base: usize,
    window: VecDeque<Entry>,
    free: Vec<usize>,
    /// Slots that hold a reduced chunk until it has left: the position where it arrived, and the slot.
    held: Vec<(usize, usize)>,
    slots: Room,
    slot_bytes: usize,
}

/// Plans under way, one per lane.
pub(super) struct Flow<P> {
    lanes: Vec<Lane<P>>,
    reducer: Reducer,
    /// Peers whose next message in order is not there yet, in the pass at hand.
    behind: Vec<usize>,
}

impl<P: Plan> Flow<P> {
    /// Begins `plans`: plan `i` runs on lane `i`, with chunks of at most `chunk` elements.
    pub(super) fn new<M: Mesh + ?Sized>(mesh: &mut M, plans: Vec<P>, chunk: usize, reducer: Reducer) -> Self {
        let slot_bytes = (chunk * reducer.element).next_multiple_of(64);
        let scratch = mesh.scratch(plans.len() * SLOTS * slot_bytes);
        let lane = |(number, plan): (usize, P)| Lane {
            number,
            positions: plan.positions(),
            window: VecDeque::with_capacity(plan.window()),
            plan,
            base: 0,
            free: (0..SLOTS).rev().collect(),
            held: Vec::with_capacity(SLOTS),
            slots: scratch.skip(number * SLOTS * slot_bytes),
            slot_bytes,
        };
        Flow { lanes: plans.into_iter().enumerate().map(lane).collect(), reducer, behind: Vec::new() }
    }

    /// Moves what can be moved, without waiting; whether everything is done.
    pub(super) fn poll<M: Mesh + ?Sized>(&mut self, mesh: &mut M) -> Result<Progress> {
        let mut progress = Progress { done: true, moved: false };
        for lane in &mut self.lanes {
            progress.moved |= lane.pass(mesh, &self.reducer, &mut self.behind)?;
            progress.done &= lane.base == lane.positions;
        }
        Ok(progress)
    }

    /// Waits until everything is done.
    pub(super) fn finish<M: Mesh + ?Sized>(&mut self, mesh: &mut M) -> Result<()> {
        loop {
            let progress = self.poll(mesh)?;
            if progress.done {
                return Ok(());
            }
            if !progress.moved {
                mesh.pause()?;
            }
        }
    }
}

/// What a pass over the lanes found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub done: bool,
    /// Something was posted, reduced or finished.
    pub moved: bool,
}

impl<P: Plan> Lane<P> {
    /// Looks at every position of the window once, in order.
    fn pass<M: Mesh + ?Sized>(&mut self, mesh: &mut M, reducer: &Reducer, behind: &mut Vec<usize>) -> Result<bool> {
        while self.window.len() < self.plan.window() && self.base + self.window.len() < self.positions {
            let step = self.plan.at(self.base + self.window.len());
            self.window.push_back(Entry::new(step));
        }
        let mut moved = self.post_sends(mesh, reducer, behind)?;
        moved |= self.post_receives(mesh, reducer, behind)?;
        moved |= self.take_arrivals(mesh, reducer, behind)?;
        if moved {
            self.post_sends(mesh, reducer, behind)?;
        }
        moved |= self.take_departures(mesh, behind)?;
        while self.window.front().is_some_and(Entry::is_done) {
            self.window.pop_front();
            self.base += 1;
        }
        Ok(moved)
    }

    fn is_met(&self, need: Need) -> bool {
        let stage = |position: usize, of: fn(&Entry) -> Stage| {
            position < self.base || self.window.get(position - self.base).is_some_and(|entry| of(entry) == Stage::Done)
        };
        match need {
            Need::Nothing => true,
            Need::Arrived(position) => stage(position, |entry| entry.arrival),
            Need::Departed(position) => stage(position, |entry| entry.departure),
        }
    }

    fn slot(&self, number: usize) -> Room {
        self.slots.skip(number * self.slot_bytes).take(self.slot_bytes)
    }

    fn post_receives<M: Mesh + ?Sized>(
        &mut self,
        mesh: &mut M,
        reducer: &Reducer,
        behind: &mut Vec<usize>,
    ) -> Result<bool> {
        behind.clear();
        let mut short_of_slots = false;
        let mut moved = false;
        for index in 0..self.window.len() {
            let Some(arrival) = self.window[index].step.arrival else { continue };
            if self.window[index].arrival != Stage::Waiting {
                continue;
            }
            let peers = arrival.peers.iter().flatten();
            let direct = matches!(arrival.landing, Landing::At(_));
            short_of_slots |= !direct && self.free.len() < peers.clone().count();
            let blocked = peers.clone().any(|peer| behind.contains(peer)) || !self.is_met(arrival.need);
            if blocked || (!direct && short_of_slots) {
                // A slot that is free now belongs to this position, not to a later one.
                short_of_slots |= !direct;
                behind.extend(peers);
                continue;
            }
            let bytes = arrival.count * reducer.element;
            for which in 0..2 {
                let Some(peer) = arrival.peers[which] else { continue };
                let room = match arrival.landing {
                    Landing::At(place) => place,
                    _ => {
                        let slot = self.free.pop().expect("there are as many free slots as peers");
                        self.window[index].slots[which] = Some(slot);
                        self.slot(slot)
                    }
                };
                let request = mesh.receive(peer, self.number, room.take(bytes))?;
                self.window[index].arriving[which] = Some(request);
            }
            self.window[index].arrival = Stage::Posted;
            moved = true;
        }
        Ok(moved)
    }

    fn take_arrivals<M: Mesh + ?Sized>(
        &mut self,
        mesh: &mut M,
        reducer: &Reducer,
        behind: &mut Vec<usize>,
    ) -> Result<bool> {
        behind.clear();
        let mut moved = false;
        for index in 0..self.window.len() {
            let Some(arrival) = self.window[index].step.arrival else { continue };
            if self.window[index].arrival != Stage::Posted {
                continue;
            }
            take_done(mesh, arrival.peers, &mut self.window[index].arriving, behind)?;
            let arrived = self.window[index].arriving.iter().all(Option::is_none);
            let need = match arrival.landing {
                Landing::At(_) => Need::Nothing,
                Landing::Reduce { need, .. } | Landing::Through { need, .. } => need,
            };
            if arrived && self.is_met(need) {
                self.settle(index, &arrival, reducer);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Reduces or copies a chunk that has arrived, and gives back its slots.
    fn settle(&mut self, index: usize, arrival: &Arrival, reducer: &Reducer) {
        let slots = std::mem::take(&mut self.window[index].slots);
        let rooms = slots.map(|slot| slot.map(|number| self.slot(number)));
        let mut keep = None;
        match arrival.landing {
            Landing::At(_) => {}
            Landing::Reduce { local, output, complete, .. } => {
                let mut ins = [local; 3];
                let mut used = 1;
                for room in rooms.iter().flatten() {
                    ins[used] = room.data();
                    used += 1;
                }
                let out = match output {
                    Output::At(place) => Some(place),
                    Output::Slot => {
                        keep = slots.into_iter().flatten().next();
                        rooms.into_iter().flatten().next()
                    }
                };
                if let Some(out) = out {
                    reducer.reduce(out, &ins[..used], arrival.count, complete);
                }
            }
            Landing::Through { place, .. } => {
                if let Some(room) = rooms[0] {
                    copy(&[place], room.data().take(arrival.count * reducer.element), Store::Cached);
                }
            }
        }
        for slot in slots.into_iter().flatten() {
            match keep {
                Some(kept) if kept == slot => self.held.push((self.base + index, slot)),
                _ => self.free.push(slot),
            }
        }
        self.window[index].arrival = Stage::Done;
    }

    fn post_sends<M: Mesh + ?Sized>(
        &mut self,
        mesh: &mut M,
        reducer: &Reducer,
        behind: &mut Vec<usize>,
    ) -> Result<bool> {
        behind.clear();
        let mut moved = false;
        for index in 0..self.window.len() {
            if self.window[index].departure != Stage::Waiting {
                continue;
            }
            if let Some(departure) = self.window[index].step.departure {
                let peers = departure.peers.iter().flatten();
                if peers.clone().any(|peer| behind.contains(peer)) || !self.is_met(departure.need) {
                    behind.extend(peers);
                    continue;
                }
                let data = match departure.source {
                    Source::At(data) => data,
                    Source::Slot(position) => self.slot(self.held_slot(position)).data(),
                };
                for which in 0..2 {
                    let Some(peer) = departure.peers[which] else { continue };
                    let request = mesh.send(peer, self.number, data.take(departure.count * reducer.element))?;
                    self.window[index].leaving[which] = Some(request);
                }
            }
            if let Some(LocalCopy { from, to, bytes }) = self.window[index].step.copy {
                copy(&[to], from.take(bytes), reducer.own);
            }
            let posted = self.window[index].step.departure.is_some();
            self.window[index].departure = if posted { Stage::Posted } else { Stage::Done };
            moved = true;
        }
        Ok(moved)
    }

    fn held_slot(&self, position: usize) -> usize {
        let held = self.held.iter().find(|(at, _)| *at == position);
        held.map(|(_, slot)| *slot).expect("a reduced chunk is held until it has left")
    }

    fn take_departures<M: Mesh + ?Sized>(&mut self, mesh: &mut M, behind: &mut Vec<usize>) -> Result<bool> {
        behind.clear();
        let mut moved = false;
        for index in 0..self.window.len() {
            let Some(departure) = self.window[index].step.departure else { continue };
            if self.window[index].departure != Stage::Posted {
                continue;
            }
            take_done(mesh, departure.peers, &mut self.window[index].leaving, behind)?;
            if self.window[index].leaving.iter().all(Option::is_none) {
                self.window[index].departure = Stage::Done;
                moved = true;
                if let Source::Slot(position) = departure.source
                    && let Some(at) = self.held.iter().position(|(held, _)| *held == position)
                {
                    self.free.push(self.held.swap_remove(at).1);
                }
            }
        }
        Ok(moved)
    }
}

/// Forgets the requests that are done. Those with one peer are done in order, so what waits behind another is not asked for:
/// `behind` collects the peers with a request that is still under way.
fn take_done<M: Mesh + ?Sized>(
    mesh: &mut M,
    peers: [Option<usize>; 2],
    requests: &mut [Option<Request>; 2],
    behind: &mut Vec<usize>,
) -> Result<()> {
    for (peer, waiting) in peers.into_iter().zip(requests) {
        let (Some(peer), Some(request)) = (peer, *waiting) else { continue };
        if !behind.contains(&peer) && mesh.test(request)? {
            *waiting = None;
        } else {
            behind.push(peer);
        }
    }
    Ok(())
}
