//! Double binary tree: all-reduce, broadcast, reduce. Two trees carry half of the data each, and a rank that is an inner node
//! of one is a leaf of the other, so that every rank sends and receives about as much as in a ring, over logarithmic depth.
//!
//! Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
//! Parallel Computing 35 (2009).

use super::chunks::{Cut, Range, Split};
use super::flow::{Flow, Reducer};
use super::plan::{Arrival, Departure, Landing, LocalCopy, Move, Need, Output, Plan, Source};
use crate::mesh::Mesh;
use crate::{Data, Operation, Room};
use busbw_model::Collective;
use busbw_transport::Result;

/// A rank's neighbours in one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Branch {
    /// Towards the root; none at the root.
    pub parent: Option<usize>,
    /// Away from the root; none at a leaf.
    pub children: [Option<usize>; 2],
}

/// The neighbours of `rank` in both trees over `ranks` ranks. With a `root`, that rank is above both trees, which then span
/// the others.
pub(super) fn double_tree(rank: usize, ranks: usize, root: Option<usize>) -> [Branch; 2] {
    let Some(root) = root else {
        return [0, 1].map(|which| in_order(rank, ranks, which));
    };
    let others = ranks - 1;
    let name = |place: usize| (root + 1 + place) % ranks;
    [0, 1].map(|which| {
        if rank == root {
            let top = (0..others).find(|place| in_order(*place, others, which).parent.is_none());
            return Branch { parent: None, children: [top.map(name), None] };
        }
        let branch = in_order((rank + ranks - root - 1) % ranks, others, which);
        Branch {
            parent: Some(branch.parent.map_or(root, name)),
            children: branch.children.map(|child| child.map(name)),
        }
    })
}

/// The in-order tree over `count` places: numbered from 1, a number's height is that of its lowest bit, and odd numbers are
/// leaves. The second tree is the first with its places mirrored (an even number of them) or moved by one (an odd number),
/// so that leaves become inner nodes.
fn in_order(place: usize, count: usize, which: usize) -> Branch {
    let number = |place: usize| match (which, count % 2) {
        (0, _) => place + 1,
        (_, 0) => count - place,
        _ => (place + 1) % count + 1,
    };
    let name = |number: usize| match (which, count % 2) {
        (0, _) => number - 1,
        (_, 0) => count - number,
        _ => (number + count - 2) % count,
    };
    let own = number(place);
    Branch { parent: parent(own, count).map(name), children: children(own, count).map(|child| child.map(name)) }
}

/// The first ancestor of `number` in the endless in-order tree that is at most `count`.
fn parent(number: usize, count: usize) -> Option<usize> {
    let mut up = number;
    while up & up.wrapping_neg() <= count {
        let bit = up & up.wrapping_neg();
        up = (up ^ bit) | (bit << 1);
        if up <= count {
            return Some(up);
        }
    }
    None
}

fn children(number: usize, count: usize) -> [Option<usize>; 2] {
    let mut bit = (number & number.wrapping_neg()) >> 1;
    let left = (bit > 0).then(|| number - bit);
    let mut right = None;
    while bit > 0 && right.is_none() {
        right = (number + bit <= count).then_some(number + bit);
        bit >>= 1;
    }
    [left, right]
}

/// Both trees of one lane.
struct Trees {
    branches: [Branch; 2],
    halves: [Range; 2],
    element: usize,
    chunk: usize,
    chunks: usize,
    reduces: bool,
    spreads: bool,
    /// How much later a chunk is looked for on its way down than it went up.
    delay: usize,
    send: Data,
    receive: Room,
}

/// Positions of one chunk number: up and down each tree.
const KINDS: usize = 4;

impl Trees {
    /// The memory of `chunk` of tree `which`: how far from the beginning, in bytes, and how many elements.
    fn piece(&self, which: usize, chunk: usize) -> Option<(usize, usize)> {
        let half = self.halves[which];
        let start = chunk * self.chunk;
        (start < half.count).then(|| ((half.start + start) * self.element, self.chunk.min(half.count - start)))
    }

    fn up(&self, which: usize, chunk: usize, position: usize) -> Move {
        let Some((offset, count)) = self.piece(which, chunk) else { return Move::default() };
        let Branch { parent, children } = self.branches[which];
        let given = self.send.skip(offset);
        let complete = parent.is_none();
        let output = if complete { Output::At(self.receive.skip(offset)) } else { Output::Slot };
        let landing = Landing::Reduce { local: given, output, need: Need::Nothing, complete };
        let is_leaf = children == [None; 2];
        let (source, need) = match is_leaf {
            true => (Source::At(given), Need::Nothing),
            false => (Source::Slot(position), Need::Arrived(position)),
        };
        Move {
            arrival: (!is_leaf).then_some(Arrival { peers: children, count, landing, need: Need::Nothing }),
            departure: parent.map(|parent| Departure { peers: [Some(parent), None], count, source, need }),
            copy: None,
        }
    }

    fn down(&self, which: usize, chunk: usize, position: usize) -> Move {
        let Some((offset, count)) = self.piece(which, chunk) else { return Move::default() };
        let Branch { parent, children } = self.branches[which];
        let (given, result) = (self.send.skip(offset), self.receive.skip(offset));
        let up = self.reduces.then(|| chunk * KINDS + which);
        // In place, the result comes where this rank's part was read or sent from.
        let used = match (up, children == [None; 2]) {
            (Some(up), true) => Need::Departed(up),
            (Some(up), false) => Need::Arrived(up),
            (None, _) => Need::Nothing,
        };
        let (source, need) = match (parent, up) {
            (Some(_), _) => (Source::At(result.data()), Need::Arrived(position)),
            (None, Some(up)) => (Source::At(result.data()), Need::Arrived(up)),
            (None, None) => (Source::At(given), Need::Nothing),
        };
        let copies = parent.is_none() && !self.reduces && !given.is_at(result);
        Move {
            arrival: parent.map(|parent| Arrival {
                peers: [Some(parent), None],
                count,
                landing: Landing::At(result),
                need: used,
            }),
            departure: (children != [None; 2]).then_some(Departure { peers: children, count, source, need }),
            copy: copies.then_some(LocalCopy { from: given, to: result, bytes: count * self.element }),
        }
    }
}

impl Plan for Trees {
    fn positions(&self) -> usize {
        KINDS * (self.chunks + if self.spreads { self.delay } else { 0 })
    }

    fn window(&self) -> usize {
        4 * KINDS
    }

    fn at(&self, position: usize) -> Move {
        let (turn, which) = (position / KINDS, position % 2);
        let upwards = position % KINDS < 2;
        match upwards {
            true if self.reduces => self.up(which, turn, position),
            false if self.spreads && turn >= self.delay => self.down(which, turn - self.delay, position),
            _ => Move::default(),
        }
    }
}

/// All-reduce, broadcast or reduce over both trees.
pub(super) fn tree<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let n = mesh.size();
    let element = op.element();
    let root = (op.collective != Collective::AllReduce).then_some(op.root);
    let branches = double_tree(mesh.rank(), n, root);
    let reduces = op.collective != Collective::Broadcast;
    let spreads = op.collective != Collective::Reduce;
    let cut = Cut::new(mesh, op.count.div_ceil(2), element, reduces);
    let over_lanes = Split::aligned(op.count, cut.lanes, element);
    let plan = |lane| {
        let part = over_lanes.range(lane);
        let split = Split::aligned(part.count, 2, element);
        let halves = [0, 1].map(|which| {
            let half = split.range(which);
            Range { start: part.start + half.start, ..half }
        });
        Trees {
            branches,
            halves,
            element,
            chunk: cut.chunk,
            chunks: cut.chunks(halves[0].count.max(halves[1].count)),
            reduces,
            spreads,
            delay: if reduces { n.ilog2() as usize } else { 0 },
            send: op.send,
            receive: op.receive,
        }
    };
    let plans: Vec<Trees> = (0..cut.lanes).map(plan).collect();
    let mut flow = Flow::new(mesh, plans, cut.chunk, Reducer::new(op, n));
    flow.finish(mesh)
}
