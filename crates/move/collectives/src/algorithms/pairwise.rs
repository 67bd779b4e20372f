//! Pairs of ranks, a bounded number of chunks at a time: all-to-all, all-to-all-v, gather, scatter, send-receive, and a
//! reduce-scatter in which each rank sends every block to its owner.

use super::chunks::{Cut, Range, Split, WINDOW};
use super::flow::{Flow, Reducer};
use super::plan::{Arrival, Departure, Landing, LocalCopy, Move, Need, Output, Plan, Source};
use super::two_level::Reserved;
use crate::mesh::Mesh;
use crate::reduction::{Store, cache_bytes, copy};
use crate::{Data, Operation, Room};
use busbw_model::Collective;
use busbw_transport::Result;

/// `count` elements at `data`, to or from `peer`.
#[derive(Clone, Copy)]
struct Block<P> {
    peer: usize,
    data: P,
    count: usize,
}

/// What a rank gives and takes in one round.
#[derive(Clone, Copy, Default)]
struct Round {
    give: Option<Block<Data>>,
    take: Option<Block<Room>>,
    /// This rank's block for itself: from where, to where, how many elements.
    own: Option<(Data, Room, usize)>,
}

impl Round {
    fn longest(&self) -> usize {
        let own = self.own.map_or(0, |(_, _, count)| count);
        own.max(self.give.map_or(0, |block| block.count)).max(self.take.map_or(0, |block| block.count))
    }

    /// The part of it that one of `lanes` lanes carries.
    fn part(&self, lane: usize, lanes: usize, element: usize) -> Round {
        let range = |count| Split::aligned(count, lanes, element).range(lane);
        Round {
            give: self.give.map(|block| {
                let Range { start, count } = range(block.count);
                Block { data: block.data.skip(start * element), count, ..block }
            }),
            take: self.take.map(|block| {
                let Range { start, count } = range(block.count);
                Block { data: block.data.skip(start * element), count, ..block }
            }),
            own: self.own.map(|(from, to, count)| {
                let Range { start, count } = range(count);
                (from.skip(start * element), to.skip(start * element), count)
            }),
        }
    }
}

/// How what is taken is put in place.
#[derive(Clone, Copy)]
enum Taking {
    Direct,
    /// When what lies there has left.
    AfterSending,
    /// Added to what the rounds before have left there; in the first round, to this rank's own block.
    Reduced {
        own: Data,
    },
}

/// Rounds that are under way at once, a chunk of each in turn. One after the other, two ranks that fall out of step send to a third while a fourth gets
/// nothing, and no rank has another peer to turn to: four hosts on slow links reached half of their rate.
const TOGETHER: usize = 4;

/// The rounds of one lane, each in chunks.
struct Rounds {
    rounds: Vec<Round>,
    /// Which chunk of which round a position is. Ranks leave out what they have not, and have the same order.
    order: Vec<(usize, usize)>,
    together: usize,
    element: usize,
    chunk: usize,
    taking: Taking,
}

impl Rounds {
    /// The order of `chunks` of each round: `together` rounds at once.
    fn order(chunks: &[usize], together: usize) -> Vec<(usize, usize)> {
        let of_group = |first: usize| {
            let rounds = first..chunks.len().min(first + together);
            let most = chunks[rounds.clone()].iter().copied().max().unwrap_or(0);
            let of_chunk = move |chunk| {
                rounds.clone().filter(move |round| chunk < chunks[*round]).map(move |round| (round, chunk))
            };
            (0..most).flat_map(of_chunk)
        };
        (0..chunks.len()).step_by(together).flat_map(of_group).collect()
    }

    fn landing(&self, position: usize, data: Room) -> Landing {
        let (round, chunk) = self.order[position];
        match self.taking {
            Taking::Direct => Landing::At(data),
            Taking::AfterSending => Landing::Through { place: data, need: Need::Departed(position) },
            Taking::Reduced { own } => {
                let offset = chunk * self.chunk * self.element;
                let (local, need) = match round.checked_sub(1) {
                    None => (own.skip(offset), Need::Nothing),
                    Some(before) => {
                        // All rounds of a reduction are of one length.
                        let chunks = self.order.partition_point(|(round, _)| *round <= before) / round;
                        (data.data(), Need::Arrived(position - chunks))
                    }
                };
                let complete = round + 1 == self.rounds.len();
                Landing::Reduce { local, output: Output::At(data), need, complete }
            }
        }
    }
}

impl Plan for Rounds {
    fn positions(&self) -> usize {
        self.order.len()
    }

    fn window(&self) -> usize {
        WINDOW * self.rounds.len().clamp(1, self.together)
    }

    fn at(&self, position: usize) -> Move {
        let (round, chunk) = self.order[position];
        let start = chunk * self.chunk;
        let Round { give, take, own } = self.rounds[round];
        let departure = give.filter(|block| start < block.count).map(|block| Departure {
            peers: [Some(block.peer), None],
            count: self.chunk.min(block.count - start),
            source: Source::At(block.data.skip(start * self.element)),
            need: Need::Nothing,
        });
        let arrival = take.filter(|block| start < block.count).map(|block| Arrival {
            peers: [Some(block.peer), None],
            count: self.chunk.min(block.count - start),
            landing: self.landing(position, block.data.skip(start * self.element)),
            need: Need::Nothing,
        });
        let offset = start * self.element;
        let copy = own.filter(|(_, _, count)| start < *count).map(|(from, to, count)| LocalCopy {
            from: from.skip(offset),
            to: to.skip(offset),
            bytes: self.chunk.min(count - start) * self.element,
        });
        Move { arrival, departure, copy }
    }
}

/// Carries out rounds whose largest block has `largest` elements; all ranks must say the same.
fn exchange<M: Mesh + ?Sized>(
    mesh: &mut M,
    rounds: &[Round],
    largest: usize,
    taking: Taking,
    reducer: Reducer,
) -> Result<()> {
    let element = reducer.element;
    // The same chunks whether in place or not: one rank may be in place and another not.
    let cut = Cut::new(mesh, largest, element, matches!(taking, Taking::Reduced { .. }));
    let plan = |lane| {
        let rounds: Vec<Round> = rounds.iter().map(|round| round.part(lane, cut.lanes, element)).collect();
        let chunks: Vec<usize> = rounds.iter().map(|round| cut.chunks(round.longest())).collect();
        let together = if matches!(taking, Taking::Reduced { .. }) { 1 } else { TOGETHER };
        let order = Rounds::order(&chunks, together);
        let taking = match taking {
            Taking::Reduced { own } => {
                let start = Split::aligned(largest, cut.lanes, element).range(lane).start;
                Taking::Reduced { own: own.skip(start * element) }
            }
            other => other,
        };
        Rounds { rounds, order, together, element, chunk: cut.chunk, taking }
    };
    let plans = (0..cut.lanes).map(plan).collect();
    let mut flow: Flow<Rounds> = Flow::new(mesh, plans, cut.chunk, reducer);
    flow.finish(mesh)
}

/// All-to-all: in round t, ranks whose numbers add up to t (modulo n) exchange their blocks.
pub(super) fn all_to_all<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank, bytes) = (mesh.size(), mesh.rank(), op.bytes());
    let in_place = op.is_in_place();
    let round = |turn: usize| {
        let peer = (turn + n - rank) % n;
        let (from, to) = (op.send.skip(peer * bytes), op.receive.skip(peer * bytes));
        if peer == rank {
            return Round { own: (!in_place).then_some((from, to, op.count)), ..Round::default() };
        }
        let give = Some(Block { peer, data: from, count: op.count });
        Round { give, take: Some(Block { peer, data: to, count: op.count }), own: None }
    };
    let rounds: Vec<Round> = (0..n).map(round).collect();
    let taking = if in_place { Taking::AfterSending } else { Taking::Direct };
    exchange(mesh, &rounds, op.count, taking, Reducer::new(op, 0))
}

/// All-to-all-v: as all-to-all, with a count for each pair.
pub(super) fn all_to_all_v<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank, element) = (mesh.size(), mesh.rank(), op.element());
    let sent = &op.counts[rank * n..(rank + 1) * n];
    let received: Vec<usize> = (0..n).map(|peer| op.counts[peer * n + rank]).collect();
    let total: usize = sent.iter().sum::<usize>() * element;
    // In place, what is received lies elsewhere than what is sent to the same rank: nothing may overwrite it.
    let mut mesh = Reserved::new(mesh, if op.is_in_place() { total } else { 0 });
    let mut given = op.send;
    if op.is_in_place() {
        copy(&[mesh.own], op.send.take(total), Store::Cached);
        given = mesh.own.data();
    }
    let before = |counts: &[usize], peer: usize| counts[..peer].iter().sum::<usize>() * element;
    let round = |turn: usize| {
        let peer = (turn + n - rank) % n;
        let from = given.skip(before(sent, peer));
        let to = op.receive.skip(before(&received, peer));
        if peer == rank {
            return Round { own: Some((from, to, sent[peer])), ..Round::default() };
        }
        let give = Some(Block { peer, data: from, count: sent[peer] });
        Round { give, take: Some(Block { peer, data: to, count: received[peer] }), own: None }
    };
    let rounds: Vec<Round> = (0..n).map(round).collect();
    let largest = op.counts.iter().copied().max().unwrap_or(0);
    exchange(&mut mesh, &rounds, largest, Taking::Direct, Reducer::new(op, 0))
}

/// Send-receive around the ring: to the next rank, from the one before.
pub(super) fn send_receive<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank) = (mesh.size(), mesh.rank());
    let round = Round {
        give: Some(Block { peer: (rank + 1) % n, data: op.send, count: op.count }),
        take: Some(Block { peer: (rank + n - 1) % n, data: op.receive, count: op.count }),
        own: None,
    };
    let in_place = op.is_in_place();
    let taking = if in_place { Taking::AfterSending } else { Taking::Direct };
    exchange(mesh, &[round], op.count, taking, Reducer::new(op, 0))
}

/// Gather to the root, or scatter from it: the root's neighbour comes first.
pub(super) fn to_or_from_root<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank, bytes) = (mesh.size(), mesh.rank(), op.bytes());
    let gathers = op.collective == Collective::Gather;
    let at_root = |distance: usize| {
        let peer = (op.root + distance) % n;
        let (from, to) = (op.send.skip(peer * bytes), op.receive.skip(peer * bytes));
        match (gathers, distance) {
            (true, 0) => Round { own: Some((op.send, to, op.count)), ..Round::default() },
            (false, 0) => Round { own: Some((from, op.receive, op.count)), ..Round::default() },
            (true, _) => Round { take: Some(Block { peer, data: to, count: op.count }), ..Round::default() },
            (false, _) => Round { give: Some(Block { peer, data: from, count: op.count }), ..Round::default() },
        }
    };
    let elsewhere = || match gathers {
        true => Round { give: Some(Block { peer: op.root, data: op.send, count: op.count }), ..Round::default() },
        false => Round { take: Some(Block { peer: op.root, data: op.receive, count: op.count }), ..Round::default() },
    };
    let mut rounds: Vec<Round> = match rank == op.root {
        // Its own block last: the copy is made while others are on the wire.
        true => (1..=n).map(|distance| at_root(distance % n)).collect(),
        false => vec![elsewhere()],
    };
    rounds.retain(|round| round.own.is_none_or(|(from, to, _)| !from.is_at(to)));
    exchange(mesh, &rounds, op.count, Taking::Direct, Reducer::new(op, 0))
}

/// Reduce-scatter in which every rank sends each block to its owner: one step, for few ranks or small blocks.
pub(super) fn reduce_scatter<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank, bytes) = (mesh.size(), mesh.rank(), op.bytes());
    let round = |distance: usize| {
        let to = (rank + distance) % n;
        let give = Some(Block { peer: to, data: op.send.skip(to * bytes), count: op.count });
        Round {
            give,
            take: Some(Block { peer: (rank + n - distance) % n, data: op.receive, count: op.count }),
            own: None,
        }
    };
    let rounds: Vec<Round> = (1..n).map(round).collect();
    let taking = Taking::Reduced { own: op.send.skip(rank * bytes) };
    exchange(mesh, &rounds, op.count, taking, Reducer::new(op, n))
}

/// What a single rank does: its own part is the result.
pub(super) fn alone(op: &Operation) {
    let count = if op.collective == Collective::AllToAllV { op.counts[0] } else { op.count };
    if !op.is_in_place() && count > 0 {
        let bytes = count * op.element();
        copy(&[op.receive], op.send.take(bytes), Store::of(2 * bytes, cache_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_a_group_take_turns() {
        let expected = [(0, 0), (1, 0), (0, 1), (2, 0), (3, 0), (2, 1), (2, 2), (4, 0)];
        assert_eq!(Rounds::order(&[2, 1, 3, 1, 1], 2), expected);
        assert_eq!(Rounds::order(&[2, 0, 2], 1), [(0, 0), (0, 1), (2, 0), (2, 1)]);
        assert!(Rounds::order(&[0], 4).is_empty());
    }
}
