//! Which bytes of whose send buffer an operation brings to which place of whose receive buffer.

use crate::Operation;
use busbw_model::Collective;

/// A run of bytes that one rank gives to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the giver's send buffer.
    pub(crate) from: usize,
    /// Where it goes in the taker's receive buffer.
    pub(crate) to: usize,
    pub(crate) bytes: usize,
}

/// The geometry of an operation among `size` ranks. Rank `taker` takes at most one piece from each rank: copied, or
/// combined with those of the others.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub(crate) collective: Collective,
    pub(crate) size: usize,
    element: usize,
    bytes: usize,
    root: usize,
    counts: &'a [usize],
}

impl<'a> Shape<'a> {
    pub(crate) fn of(operation: &Operation<'a>, size: usize) -> Self {
        Shape {
            collective: operation.collective,
            size,
            element: operation.element(),
            bytes: operation.bytes(),
            root: operation.root,
            counts: operation.counts,
        }
    }

    /// Whether the pieces that a rank takes are combined into one.
    pub(crate) fn reduces(&self) -> bool {
        self.collective.reduces()
    }

    /// Whether a rank gives each taker a piece of its own; else all takers take the same.
    pub(crate) fn personal(&self) -> bool {
        use Collective::{AllToAll, AllToAllV, ReduceScatter, Scatter};
        matches!(self.collective, ReduceScatter | Scatter | AllToAll | AllToAllV)
    }

    /// Whether it can happen that a rank overwrites what another has yet to read when it operates in place.
    pub(crate) fn collides_in_place(&self) -> bool {
        use Collective::{AllToAll, AllToAllV, SendRecv};
        matches!(self.collective, AllToAll | AllToAllV | SendRecv)
    }

    /// The only rank that gives, where there is one.
    pub(crate) fn only_giver(&self) -> Option<usize> {
        matches!(self.collective, Collective::Broadcast | Collective::Scatter).then_some(self.root)
    }

    pub(crate) fn piece(&self, giver: usize, taker: usize) -> Option<Piece> {
        let (bytes, root) = (self.bytes, self.root);
        let piece = |from, to| Some(Piece { from, to, bytes });
        match self.collective {
            Collective::AllReduce => piece(0, 0),
            Collective::Reduce if taker == root => piece(0, 0),
            Collective::Broadcast if giver == root => piece(0, 0),
            Collective::SendRecv if taker == (giver + 1) % self.size => piece(0, 0),
            Collective::ReduceScatter => piece(taker * bytes, 0),
            Collective::Scatter if giver == root => piece(taker * bytes, 0),
            Collective::AllGather | Collective::HyperCube => piece(0, giver * bytes),
            Collective::Gather if taker == root => piece(0, giver * bytes),
            Collective::AllToAll => piece(taker * bytes, giver * bytes),
            Collective::AllToAllV => Some(self.counted_piece(giver, taker)),
            _ => None,
        }
    }

    fn counted_piece(&self, giver: usize, taker: usize) -> Piece {
        let count = |giver: usize, taker: usize| self.counts[giver * self.size + taker] * self.element;
        Piece {
            from: (0..taker).map(|before| count(giver, before)).sum(),
            to: (0..giver).map(|before| count(before, taker)).sum(),
            bytes: count(giver, taker),
        }
    }

    /// Bytes of the longest piece.
    pub(crate) fn longest(&self) -> usize {
        match self.collective {
            Collective::AllToAllV => self.counts.iter().max().map_or(0, |most| most * self.element),
            _ => self.bytes,
        }
    }

    /// Bytes of `rank`'s send buffer that the operation reads.
    pub(crate) fn send_bytes(&self, rank: usize) -> usize {
        // The last taker's piece lies last, where takers have pieces of their own.
        let piece = (0..self.size).rev().find_map(|taker| self.piece(rank, taker));
        piece.map_or(0, |piece| piece.from + piece.bytes)
    }

    /// Bytes of `rank`'s receive buffer that the operation writes.
    pub(crate) fn receive_bytes(&self, rank: usize) -> usize {
        let piece = (0..self.size).rev().find_map(|giver| self.piece(giver, rank));
        piece.map_or(0, |piece| piece.to + piece.bytes)
    }

    /// Share number `rank` of `bytes`, as offset and length: whole cache lines of whole elements.
    pub(crate) fn share(&self, bytes: usize, rank: usize) -> (usize, usize) {
        let share = bytes.div_ceil(self.size).next_multiple_of(Self::LINE);
        let start = (rank * share).min(bytes);
        (start, share.min(bytes - start))
    }

    const LINE: usize = 64;
}
