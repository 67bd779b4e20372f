//! Ring: all-reduce, all-gather, reduce-scatter; and the ring opened at the root, a chain: broadcast, reduce.
//!
//! A ring of n ranks takes n - 1 steps to reduce a block at its owner and n - 1 to hand the result on. Chunks go through
//! these steps in groups: while one chunk is reduced, the others of its group keep the wire busy, in both directions.

use super::chunks::{Cut, GROUP, Range, Split};
use super::flow::{Flow, Reducer};
use super::plan::{Arrival, Departure, Landing, LocalCopy, Move, Need, Output, Plan, Source};
use crate::mesh::Mesh;
use crate::{Data, Operation, Room};
use busbw_model::Collective;
use busbw_transport::Result;

/// The ring of one lane.
#[derive(Clone, Copy)]
struct Ring {
    rank: usize,
    ranks: usize,
    element: usize,
    send: Data,
    receive: Room,
    /// Elements of each rank's block, and the part of it that this lane carries; for all-reduce, one lane's part of the
    /// vector is divided over the ranks instead.
    blocks: Blocks,
    reduces: bool,
    gathers: bool,
    in_place: bool,
    /// Chunks that the largest block takes.
    chunks: usize,
}

#[derive(Clone, Copy)]
enum Blocks {
    /// The lane's part of the vector, divided over the ranks.
    Shared { start: usize, split: Split },
    /// A block for each rank, every `stride` elements; the lane carries `part` of each.
    Own { stride: usize, part: Range },
}

impl Ring {
    fn steps(&self) -> usize {
        (self.ranks - 1) * (usize::from(self.reduces) + usize::from(self.gathers))
    }

    /// The elements of `chunk` of the block of `rank`, counted from the beginning of all blocks.
    fn range(&self, rank: usize, chunk: usize) -> Range {
        let block = match self.blocks {
            Blocks::Shared { start, split } => {
                let block = split.range(rank);
                Range { start: start + block.start, ..block }
            }
            Blocks::Own { stride, part } => Range { start: rank * stride + part.start, ..part },
        };
        let piece = Split::aligned(block.count, self.chunks, self.element).range(chunk);
        Range { start: block.start + piece.start, ..piece }
    }

    /// Where `range` lies in what this rank gives: the whole vector, or its own block only.
    fn given(&self, range: Range) -> Data {
        let first = match self.blocks {
            Blocks::Own { stride, .. } if !self.reduces => self.rank * stride,
            _ => 0,
        };
        self.send.skip((range.start - first) * self.element)
    }

    /// Where `range` lies in this rank's result.
    fn result(&self, range: Range) -> Room {
        let first = match self.blocks {
            Blocks::Own { stride, .. } if !self.gathers => self.rank * stride,
            _ => 0,
        };
        self.receive.skip((range.start - first) * self.element)
    }

    /// The rank whose block is sent at `step`.
    fn sent_block(&self, step: usize) -> usize {
        let n = self.ranks;
        match self.reduces && step < n - 1 {
            true => (self.rank + 2 * n - 1 - step) % n,
            false => (self.rank + n - self.gather_step(step)) % n,
        }
    }

    fn gather_step(&self, step: usize) -> usize {
        if self.reduces { step - (self.ranks - 1) } else { step }
    }

    /// The position of `chunk` at `step`, and the other way round.
    fn position(&self, step: usize, chunk: usize) -> usize {
        let group = chunk / GROUP;
        let size = (self.chunks - group * GROUP).min(GROUP);
        group * GROUP * self.steps() + step * size + chunk % GROUP
    }

    fn step_and_chunk(&self, position: usize) -> (usize, usize) {
        let group = position / (GROUP * self.steps());
        let size = (self.chunks - group * GROUP).min(GROUP);
        let within = position - group * GROUP * self.steps();
        (within / size, group * GROUP + within % size)
    }

    fn departure(&self, step: usize, chunk: usize) -> Option<Departure> {
        let range = self.range(self.sent_block(step), chunk);
        let before = step.checked_sub(1).map(|step| self.position(step, chunk));
        let partial = self.reduces && step < self.ranks - 1;
        let source = match before {
            None => Source::At(self.given(range)),
            Some(position) if partial => Source::Slot(position),
            Some(_) => Source::At(self.result(range).data()),
        };
        let peers = [Some((self.rank + 1) % self.ranks), None];
        let need = before.map_or(Need::Nothing, Need::Arrived);
        (range.count > 0).then_some(Departure { peers, count: range.count, source, need })
    }

    fn arrival(&self, step: usize, chunk: usize) -> Option<Arrival> {
        let n = self.ranks;
        // What the rank before sends at this step is the block that this rank sends at the next.
        let block = match self.reduces && step < n - 1 {
            true => (self.rank + 2 * n - 2 - step) % n,
            false => (self.rank + 2 * n - 1 - self.gather_step(step)) % n,
        };
        let range = self.range(block, chunk);
        let (landing, need) = if self.reduces && step < n - 1 {
            let complete = step == n - 2;
            let output = if complete { Output::At(self.result(range)) } else { Output::Slot };
            (Landing::Reduce { local: self.given(range), output, need: Need::Nothing, complete }, Need::Nothing)
        } else {
            (Landing::At(self.result(range)), self.last_use(step, chunk))
        };
        let peers = [Some((self.rank + n - 1) % n), None];
        (range.count > 0).then_some(Arrival { peers, count: range.count, landing, need })
    }

    /// In place, what is received while gathering overwrites what this rank gave: when that was last used.
    fn last_use(&self, step: usize, chunk: usize) -> Need {
        if !(self.reduces && self.in_place) {
            return Need::Nothing;
        }
        match self.gather_step(step) {
            0 => Need::Departed(self.position(0, chunk)),
            step => Need::Arrived(self.position(step - 1, chunk)),
        }
    }

    /// What this rank gives to a gathering ring is part of its own result.
    fn copy(&self, step: usize, chunk: usize) -> Option<LocalCopy> {
        if self.reduces || step > 0 {
            return None;
        }
        let range = self.range(self.rank, chunk);
        let copy = LocalCopy { from: self.given(range), to: self.result(range), bytes: range.count * self.element };
        (!copy.from.is_at(copy.to) && copy.bytes > 0).then_some(copy)
    }
}

impl Plan for Ring {
    fn positions(&self) -> usize {
        self.chunks * self.steps()
    }

    fn at(&self, position: usize) -> Move {
        let (step, chunk) = self.step_and_chunk(position);
        Move {
            arrival: self.arrival(step, chunk),
            departure: self.departure(step, chunk),
            copy: self.copy(step, chunk),
        }
    }
}

/// All-reduce, all-gather or reduce-scatter around the ring of all ranks.
pub(super) fn ring<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let over = RingScope { ranks: mesh.size(), stride: op.count };
    let mut flow = ring_flow(mesh, op, over);
    flow.finish(mesh)
}

/// What a ring that is a part of a larger operation has to know of it.
#[derive(Clone, Copy)]
pub(super) struct RingScope {
    /// By how many ranks an average is divided.
    pub ranks: usize,
    /// Every how many elements a block lies.
    pub stride: usize,
}

/// The ring, begun but not waited for.
pub(super) fn ring_flow<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation, over: RingScope) -> Flow<impl Plan + use<M>> {
    let element = op.element();
    let n = mesh.size();
    let reduces = op.collective != Collective::AllGather;
    let gathers = op.collective != Collective::ReduceScatter;
    let stream = if reduces && gathers { op.count.div_ceil(n) } else { op.count };
    let cut = Cut::new(mesh, stream, element, reduces);
    let over_lanes = Split::aligned(op.count, cut.lanes, element);
    let plan = |lane| {
        let part = over_lanes.range(lane);
        let (blocks, largest) = if reduces && gathers {
            let split = Split::aligned(part.count, n, element);
            (Blocks::Shared { start: part.start, split }, split.largest())
        } else {
            (Blocks::Own { stride: over.stride, part }, part.count)
        };
        Ring {
            rank: mesh.rank(),
            ranks: n,
            element,
            send: op.send,
            receive: op.receive,
            blocks,
            reduces,
            gathers,
            in_place: op.send.is_at(op.receive),
            chunks: cut.chunks(largest),
        }
    };
    let plans = (0..cut.lanes).map(plan).collect();
    // A chunk begins at a multiple of 64 bytes: it may be that much larger than the cut says.
    Flow::new(mesh, plans, cut.chunk + 64 / element, Reducer::new(op, over.ranks))
}

/// The chain of one lane: away from the root for a broadcast, towards it for a reduce.
#[derive(Clone, Copy)]
struct Chain {
    before: Option<usize>,
    after: Option<usize>,
    element: usize,
    reduces: bool,
    send: Data,
    receive: Room,
    part: Range,
    chunk: usize,
}

impl Plan for Chain {
    fn positions(&self) -> usize {
        self.part.count.div_ceil(self.chunk)
    }

    fn at(&self, position: usize) -> Move {
        let start = position * self.chunk;
        let count = self.chunk.min(self.part.count - start);
        let offset = (self.part.start + start) * self.element;
        let given = self.send.skip(offset);
        let result = self.receive.skip(offset);
        let landing = match self.reduces {
            false => Landing::At(result),
            true => {
                let complete = self.after.is_none();
                let output = if complete { Output::At(result) } else { Output::Slot };
                Landing::Reduce { local: given, output, need: Need::Nothing, complete }
            }
        };
        let (source, need) = match self.before {
            None => (Source::At(given), Need::Nothing),
            Some(_) if self.reduces => (Source::Slot(position), Need::Arrived(position)),
            Some(_) => (Source::At(result.data()), Need::Arrived(position)),
        };
        let is_root = !self.reduces && self.before.is_none();
        let copies = is_root && !given.is_at(result);
        Move {
            arrival: self.before.map(|peer| Arrival { peers: [Some(peer), None], count, landing, need: Need::Nothing }),
            departure: self.after.map(|peer| Departure { peers: [Some(peer), None], count, source, need }),
            copy: copies.then_some(LocalCopy { from: given, to: result, bytes: count * self.element }),
        }
    }
}

/// Broadcast or reduce along a chain that begins or ends at the root. An average is divided by `ranks`.
pub(super) fn chain<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation, ranks: usize) -> Result<()> {
    let n = mesh.size();
    let rank = mesh.rank();
    let element = op.element();
    let reduces = op.collective == Collective::Reduce;
    let place = if reduces { (rank + 2 * n - op.root - 1) % n } else { (rank + n - op.root) % n };
    let cut = Cut::new(mesh, op.count, element, reduces);
    let over_lanes = Split::aligned(op.count, cut.lanes, element);
    let plan = |lane| Chain {
        before: (place > 0).then_some((rank + n - 1) % n),
        after: (place < n - 1).then_some((rank + 1) % n),
        element,
        reduces,
        send: op.send,
        receive: op.receive,
        part: over_lanes.range(lane),
        chunk: cut.chunk,
    };
    let plans: Vec<Chain> = (0..cut.lanes).map(plan).collect();
    let mut flow = Flow::new(mesh, plans, cut.chunk, Reducer::new(op, ranks));
    flow.finish(mesh)
}
