//! Recursive doubling and halving: few steps, each between two ranks. All-reduce of small vectors by exchanging whole
//! vectors, of larger ones by halving and doubling (R. Rabenseifner, "Optimization of collective reduction operations",
//! ICCS 2004); all-gather after J. Bruck et al. (IEEE TPDS 8(11), 1997), for any number of ranks; and the hypercube.

use super::chunks::{Cut, Range, SHRINK, Split};
use super::flow::{Flow, Reducer};
use super::plan::{Arrival, Departure, Landing, Move, Need, Output, Plan, Source};
use crate::mesh::{Mesh, Request};
use crate::reduction::{Store, copy};
use crate::{Data, Operation, Room};
use busbw_transport::{Error, Result};

/// Bytes up to which whole vectors are exchanged: for two ranks that moves no more bytes than halving does.
const WHOLE_BYTES_PAIR: usize = (64 << 10) >> SHRINK;
/// Bytes up to which whole vectors are exchanged between more than two ranks.
const WHOLE_BYTES: usize = (16 << 10) >> SHRINK;

/// Where the ranks that take part in every step stand: a power of two of them. Each of the others hands its vector to a
/// neighbour, and gets the result from it.
#[derive(Clone, Copy)]
struct Core {
    /// This rank's number among those that take part; none if its neighbour acts for it.
    place: Option<usize>,
    size: usize,
    extra: usize,
}

impl Core {
    fn new(rank: usize, ranks: usize) -> Self {
        let size = 1 << ranks.ilog2();
        let extra = ranks - size;
        let place = match rank {
            rank if rank >= 2 * extra => Some(rank - extra),
            rank if rank % 2 == 1 => Some(rank / 2),
            _ => None,
        };
        Core { place, size, extra }
    }

    fn rank(&self, place: usize) -> usize {
        if place < self.extra { 2 * place + 1 } else { place + self.extra }
    }

    /// The rank that `rank` acts for.
    fn ward(&self, rank: usize) -> Option<usize> {
        (rank < 2 * self.extra && rank % 2 == 1).then(|| rank - 1)
    }
}

pub(super) fn all_reduce<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation, ranks: usize) -> Result<()> {
    let whole = if mesh.size() == 2 { WHOLE_BYTES_PAIR } else { WHOLE_BYTES };
    match op.bytes() <= whole {
        true => exchange_whole(mesh, op, ranks),
        false => halve_and_double(mesh, op, ranks),
    }
}

fn exchange_whole<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation, ranks: usize) -> Result<()> {
    let (rank, bytes) = (mesh.rank(), op.bytes());
    let core = Core::new(rank, mesh.size());
    let reducer = Reducer::new(op, ranks);
    let room = mesh.scratch(bytes);
    let mut own = op.send;
    let Some(place) = core.place else {
        let request = mesh.send(rank + 1, 0, op.send.take(bytes))?;
        mesh.wait(request)?;
        let request = mesh.receive(rank + 1, 0, op.receive.take(bytes))?;
        return mesh.wait(request);
    };
    if let Some(ward) = core.ward(rank) {
        let request = mesh.receive(ward, 0, room.take(bytes))?;
        mesh.wait(request)?;
        reducer.reduce(op.receive, &[room.data(), own], op.count, false);
        own = op.receive.data();
    }
    let mut mask = 1;
    while mask < core.size {
        let peer = core.rank(place ^ mask);
        let sent = mesh.send(peer, 0, own.take(bytes))?;
        let received = mesh.receive(peer, 0, room.take(bytes))?;
        mesh.wait(received)?;
        mesh.wait(sent)?;
        // The same order on both sides, so that both get the same bits whatever the operation does with NaN.
        let ins = if place & mask == 0 { [own, room.data()] } else { [room.data(), own] };
        mask *= 2;
        reducer.reduce(op.receive, &ins, op.count, mask == core.size);
        own = op.receive.data();
    }
    if let Some(ward) = core.ward(rank) {
        let request = mesh.send(ward, 0, op.receive.data().take(bytes))?;
        mesh.wait(request)?;
    }
    Ok(())
}

/// What is exchanged with one peer, in chunks.
#[derive(Clone, Copy)]
struct PeerExchange {
    peer: usize,
    give: Option<(Data, usize)>,
    take: Option<(Room, usize)>,
    /// What is taken is added to the elements here, in this lane.
    local: Option<Data>,
    complete: bool,
    /// Whether what is traded is reduced, on this side or the other.
    reduced: bool,
    element: usize,
    chunk: usize,
}

impl PeerExchange {
    fn counts(&self) -> (usize, usize) {
        (self.give.map_or(0, |(_, count)| count), self.take.map_or(0, |(_, count)| count))
    }
}

impl Plan for PeerExchange {
    fn positions(&self) -> usize {
        let (give, take) = self.counts();
        give.max(take).div_ceil(self.chunk)
    }

    fn at(&self, position: usize) -> Move {
        let start = position * self.chunk;
        let offset = start * self.element;
        let peers = [Some(self.peer), None];
        let departure = self.give.filter(|(_, count)| start < *count).map(|(data, count)| Departure {
            peers,
            count: self.chunk.min(count - start),
            source: Source::At(data.skip(offset)),
            need: Need::Nothing,
        });
        let arrival = self.take.filter(|(_, count)| start < *count).map(|(data, count)| {
            let place = data.skip(offset);
            let landing = match self.local {
                None => Landing::At(place),
                Some(local) => Landing::Reduce {
                    local: local.skip(offset),
                    output: Output::At(place),
                    need: Need::Nothing,
                    complete: self.complete,
                },
            };
            Arrival { peers, count: self.chunk.min(count - start), landing, need: Need::Nothing }
        });
        Move { arrival, departure, copy: None }
    }
}

/// Carries out one exchange over all lanes and waits for it.
fn trade<M: Mesh + ?Sized>(mesh: &mut M, whole: PeerExchange, reducer: Reducer) -> Result<()> {
    let element = reducer.element;
    let (give, take) = whole.counts();
    let cut = Cut::new(mesh, give.max(take), element, whole.reduced);
    let plan = |lane| {
        let part = |count| Split::aligned(count, cut.lanes, element).range(lane);
        let start = part(take).start * element;
        PeerExchange {
            give: whole.give.map(|(data, count)| {
                let Range { start, count } = part(count);
                (data.skip(start * element), count)
            }),
            take: whole.take.map(|(data, count)| (data.skip(start), part(count).count)),
            local: whole.local.map(|local| local.skip(start)),
            element,
            chunk: cut.chunk,
            ..whole
        }
    };
    let plans: Vec<PeerExchange> = (0..cut.lanes).map(plan).collect();
    let mut flow = Flow::new(mesh, plans, cut.chunk, reducer);
    flow.finish(mesh)
}

fn halve_and_double<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation, ranks: usize) -> Result<()> {
    let (rank, element) = (mesh.rank(), op.element());
    let core = Core::new(rank, mesh.size());
    let reducer = Reducer::new(op, ranks);
    let base = PeerExchange {
        peer: rank,
        give: None,
        take: None,
        local: None,
        complete: false,
        reduced: false,
        element,
        chunk: 1,
    };
    let all = Some((op.receive, op.count));
    let Some(place) = core.place else {
        trade(mesh, PeerExchange { peer: rank + 1, give: Some((op.send, op.count)), reduced: true, ..base }, reducer)?;
        return trade(mesh, PeerExchange { peer: rank + 1, take: all, ..base }, reducer);
    };
    let mut own = op.send;
    if let Some(ward) = core.ward(rank) {
        trade(mesh, PeerExchange { peer: ward, take: all, local: Some(own), reduced: true, ..base }, reducer)?;
        own = op.receive.data();
    }
    let blocks = Split::aligned(op.count, core.size, element);
    let at = |range: Range| op.receive.skip(range.start * element);
    let mut mask = core.size / 2;
    while mask > 0 {
        let kept = blocks.ranges(place & !(mask - 1), mask);
        let given = blocks.ranges((place & !(mask - 1)) ^ mask, mask);
        let round = PeerExchange {
            peer: core.rank(place ^ mask),
            give: Some((own.skip(given.start * element), given.count)),
            take: Some((at(kept), kept.count)),
            local: Some(own.skip(kept.start * element)),
            complete: mask == 1,
            reduced: true,
            ..base
        };
        trade(mesh, round, reducer)?;
        own = op.receive.data();
        mask /= 2;
    }
    mask = 1;
    while mask < core.size {
        let had = blocks.ranges(place & !(mask - 1), mask);
        let missing = blocks.ranges((place & !(mask - 1)) ^ mask, mask);
        let round = PeerExchange {
            peer: core.rank(place ^ mask),
            give: Some((at(had).data(), had.count)),
            take: Some((at(missing), missing.count)),
            ..base
        };
        trade(mesh, round, reducer)?;
        mask *= 2;
    }
    if let Some(ward) = core.ward(rank) {
        trade(mesh, PeerExchange { peer: ward, give: Some((op.receive.data(), op.count)), ..base }, reducer)?;
    }
    Ok(())
}

/// Posts sends or receives of `blocks` blocks from that of rank `first` on, in one or two pieces where they wrap around.
fn pieces(first: usize, blocks: usize, ranks: usize) -> [Range; 2] {
    let before_wrap = blocks.min(ranks - first);
    [Range { start: first, count: before_wrap }, Range { start: 0, count: blocks - before_wrap }]
}

/// All-gather in which the blocks that a rank has double with every step.
pub(super) fn all_gather<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank, bytes) = (mesh.size(), mesh.rank(), op.bytes());
    place_own(op, rank);
    let mut had = 1;
    while had < n {
        let blocks = had.min(n - had);
        let (to, from) = ((rank + n - had) % n, (rank + had) % n);
        let mut requests: [Option<Request>; 4] = [None; 4];
        for (which, piece) in pieces(rank, blocks, n).into_iter().enumerate().filter(|(_, piece)| piece.count > 0) {
            let data = op.receive.skip(piece.start * bytes).data();
            requests[which] = Some(mesh.send(to, 0, data.take(piece.count * bytes))?);
        }
        for (which, piece) in pieces(from, blocks, n).into_iter().enumerate().filter(|(_, piece)| piece.count > 0) {
            let room = op.receive.skip(piece.start * bytes);
            requests[2 + which] = Some(mesh.receive(from, 0, room.take(piece.count * bytes))?);
        }
        for request in requests.into_iter().rev().flatten() {
            mesh.wait(request)?;
        }
        had += blocks;
    }
    Ok(())
}

/// The hypercube of nccl-tests: an all-gather between ranks whose numbers differ in one bit.
pub(super) fn hypercube<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let (n, rank) = (mesh.size(), mesh.rank());
    if !n.is_power_of_two() {
        let text =
            format!("hypercube needs a power of two of ranks, there are {n}; start {} ranks", n.next_power_of_two());
        return Err(Error::Config(text));
    }
    place_own(op, rank);
    let blocks = Split::new(n * op.count, n, op.count);
    let reducer = Reducer::new(op, 0);
    let mut mask = 1;
    while mask < n {
        let had = blocks.ranges(rank & !(mask - 1), mask);
        let missing = blocks.ranges((rank & !(mask - 1)) ^ mask, mask);
        let at = |range: Range| op.receive.skip(range.start * reducer.element);
        let round = PeerExchange {
            peer: rank ^ mask,
            give: Some((at(had).data(), had.count)),
            take: Some((at(missing), missing.count)),
            local: None,
            complete: false,
            reduced: false,
            element: reducer.element,
            chunk: 1,
        };
        trade(mesh, round, reducer)?;
        mask *= 2;
    }
    Ok(())
}

/// Copies what this rank gives to its place in the result.
fn place_own(op: &Operation, rank: usize) {
    let place = op.receive.skip(rank * op.bytes());
    if !op.send.is_at(place) && op.count > 0 {
        copy(&[place], op.send.take(op.bytes()), Store::Cached);
    }
}
