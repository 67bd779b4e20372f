//! Binomial trees for small data: broadcast, reduce, gather and scatter in a logarithmic number of steps.

use super::chunks::Range;
use super::flow::Reducer;
use crate::Operation;
use crate::mesh::{Mesh, Request};
use crate::reduction::{Store, copy};
use busbw_transport::Result;

/// The binomial tree above and below one place. Places are counted from the root, which has place 0.
struct Subtree {
    place: usize,
    ranks: usize,
    root: usize,
}

impl Subtree {
    fn new<M: Mesh + ?Sized>(mesh: &M, root: usize) -> Self {
        let ranks = mesh.size();
        Subtree { place: (mesh.rank() + ranks - root) % ranks, ranks, root }
    }

    fn rank(&self, place: usize) -> usize {
        (place + self.root) % self.ranks
    }

    /// The lowest bit of this place: how many places, itself included, lie below it at most.
    fn bit(&self) -> usize {
        match self.place {
            0 => self.ranks.next_power_of_two(),
            place => place & place.wrapping_neg(),
        }
    }

    fn parent(&self) -> Option<usize> {
        (self.place > 0).then(|| self.place - self.bit())
    }

    /// The places below this one, that with the most below it first.
    fn children(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let (place, ranks, levels) = (self.place, self.ranks, self.bit().ilog2());
        (0..levels).rev().map(move |level| place + (1 << level)).filter(move |child| *child < ranks)
    }

    /// How many places lie below `place`, itself included.
    fn span(&self, place: usize) -> usize {
        match place {
            0 => self.ranks,
            place => (place & place.wrapping_neg()).min(self.ranks - place),
        }
    }

    /// The blocks of the places below `child`, by rank, in one or two pieces.
    fn ranks_below(&self, child: usize) -> [Range; 2] {
        let first = self.rank(child);
        let span = self.span(child);
        let before_wrap = span.min(self.ranks - first);
        [Range { start: first, count: before_wrap }, Range { start: 0, count: span - before_wrap }]
    }
}

fn wait_all<M: Mesh + ?Sized>(mesh: &mut M, requests: &[Request]) -> Result<()> {
    requests.iter().try_for_each(|request| mesh.wait(*request))
}

pub(super) fn broadcast<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let limb = Subtree::new(mesh, op.root);
    let bytes = op.bytes();
    let mut data = op.send;
    if let Some(parent) = limb.parent() {
        let request = mesh.receive(limb.rank(parent), 0, op.receive.take(bytes))?;
        mesh.wait(request)?;
        data = op.receive.data();
    }
    let mut requests = Vec::new();
    for child in limb.children() {
        requests.push(mesh.send(limb.rank(child), 0, data.take(bytes))?);
    }
    if !data.is_at(op.receive) && bytes > 0 {
        copy(&[op.receive], data.take(bytes), Store::Cached);
    }
    wait_all(mesh, &requests)
}

/// Reduce: what comes from below is received side by side, and reduced in one go.
pub(super) fn reduce<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let limb = Subtree::new(mesh, op.root);
    let bytes = op.bytes();
    let room = bytes.next_multiple_of(64);
    let children: Vec<usize> = limb.children().collect();
    let scratch = mesh.scratch(room * children.len().max(1));
    let mut ins = vec![op.send];
    let mut requests = Vec::with_capacity(children.len());
    for (number, child) in children.iter().enumerate().rev() {
        let place = scratch.skip(number * room);
        requests.push(mesh.receive(limb.rank(*child), 0, place.take(bytes))?);
        ins.push(place.data());
    }
    wait_all(mesh, &requests)?;
    let Some(parent) = limb.parent() else {
        Reducer::new(op, mesh.size()).reduce(op.receive, &ins, op.count, true);
        return Ok(());
    };
    let mut data = op.send;
    if !children.is_empty() {
        Reducer::new(op, mesh.size()).reduce(scratch, &ins, op.count, false);
        data = scratch.data();
    }
    let request = mesh.send(limb.rank(parent), 0, data.take(bytes))?;
    mesh.wait(request)
}

/// Gather. Between the leaves and the root, blocks lie in the order of places.
pub(super) fn gather<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let limb = Subtree::new(mesh, op.root);
    let bytes = op.bytes();
    let span = limb.span(limb.place);
    let mut requests = Vec::new();
    let Some(parent) = limb.parent() else {
        for piece in limb.children().rev().flat_map(|child| pieces(&limb, child)) {
            let place = op.receive.skip(piece.blocks.start * bytes);
            requests.push(mesh.receive(piece.peer, 0, place.take(piece.blocks.count * bytes))?);
        }
        let own = op.receive.skip(op.root * bytes);
        if !op.send.is_at(own) && bytes > 0 {
            copy(&[own], op.send.take(bytes), Store::Cached);
        }
        return wait_all(mesh, &requests);
    };
    let mut data = op.send;
    if span > 1 {
        let room = mesh.scratch(span * bytes);
        for child in limb.children().rev() {
            let place = room.skip((child - limb.place) * bytes);
            requests.push(mesh.receive(limb.rank(child), 0, place.take(limb.span(child) * bytes))?);
        }
        if bytes > 0 {
            copy(&[room], op.send.take(bytes), Store::Cached);
        }
        wait_all(mesh, &requests)?;
        data = room.data();
    }
    requests.clear();
    let mut at = 0;
    for count in cut_for_root(&limb, parent) {
        requests.push(mesh.send(limb.rank(parent), 0, data.skip(at * bytes).take(count * bytes))?);
        at += count;
    }
    wait_all(mesh, &requests)
}

/// Scatter: gather the other way round.
pub(super) fn scatter<M: Mesh + ?Sized>(mesh: &mut M, op: &Operation) -> Result<()> {
    let limb = Subtree::new(mesh, op.root);
    let bytes = op.bytes();
    let span = limb.span(limb.place);
    let mut requests = Vec::new();
    let Some(parent) = limb.parent() else {
        for piece in limb.children().flat_map(|child| pieces(&limb, child)) {
            let data = op.send.skip(piece.blocks.start * bytes);
            requests.push(mesh.send(piece.peer, 0, data.take(piece.blocks.count * bytes))?);
        }
        let own = op.send.skip(op.root * bytes);
        if !own.is_at(op.receive) && bytes > 0 {
            copy(&[op.receive], own.take(bytes), Store::Cached);
        }
        return wait_all(mesh, &requests);
    };
    let room = if span > 1 { mesh.scratch(span * bytes) } else { op.receive };
    let mut at = 0;
    for count in cut_for_root(&limb, parent) {
        requests.push(mesh.receive(limb.rank(parent), 0, room.skip(at * bytes).take(count * bytes))?);
        at += count;
    }
    wait_all(mesh, &requests)?;
    requests.clear();
    for child in limb.children() {
        let data = room.data().skip((child - limb.place) * bytes);
        requests.push(mesh.send(limb.rank(child), 0, data.take(limb.span(child) * bytes))?);
    }
    if span > 1 && bytes > 0 {
        copy(&[op.receive], room.data().take(bytes), Store::Cached);
    }
    wait_all(mesh, &requests)
}

/// Blocks that the root exchanges with a child in one message.
struct Piece {
    peer: usize,
    blocks: Range,
}

fn pieces(limb: &Subtree, child: usize) -> impl Iterator<Item = Piece> + use<> {
    let peer = limb.rank(child);
    limb.ranks_below(child).into_iter().filter(|blocks| blocks.count > 0).map(move |blocks| Piece { peer, blocks })
}

/// In how many blocks each this place's data goes to or from `parent`: at the root it may lie in two pieces.
fn cut_for_root(limb: &Subtree, parent: usize) -> impl Iterator<Item = usize> + use<> {
    let counts = match parent {
        0 => limb.ranks_below(limb.place).map(|piece| piece.count),
        _ => [limb.span(limb.place), 0],
    };
    counts.into_iter().filter(|count| *count > 0)
}
