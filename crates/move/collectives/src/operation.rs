//! One collective operation, as NCCL's functions describe it.

use crate::shape::Shape;
use crate::{Data, Room};
use busbw_model::{Collective, Datatype, RedOp};
use busbw_transport::{Error, Result};

/// What to do, on which memory. Every rank of the communicator calls with the same values but for the pointers.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    pub collective: Collective,
    pub datatype: Datatype,
    /// The reduction, for those collectives that reduce.
    pub redop: RedOp,
    /// Elements, counted as NCCL's function of this collective does: all of them for all-reduce, broadcast, reduce and
    /// send-receive; per rank for all-gather (`sendcount`), reduce-scatter (`recvcount`), gather, scatter, hypercube; per
    /// pair of ranks for all-to-all. Unused by all-to-all-v.
    pub count: usize,
    /// The root, for those collectives that have one.
    pub root: usize,
    /// What this rank gives. Equal to `receive` (at NCCL's in-place offset for all-gather, gather, reduce-scatter and
    /// scatter) for an operation in place.
    pub send: Data,
    /// Where this rank's result goes.
    pub receive: Room,
    /// For all-to-all-v: elements from rank i to rank j at `[i * nranks + j]`. Segments lie packed, in the order of ranks.
    pub counts: &'a [usize],
}

impl Operation<'_> {
    /// Bytes of `count` elements.
    pub fn bytes(&self) -> usize {
        self.count * self.element()
    }

    /// Bytes of one element.
    pub fn element(&self) -> usize {
        self.datatype.size() as usize
    }

    /// Whether the result goes where the data lies.
    pub(crate) fn is_in_place(&self) -> bool {
        self.send.is_at(self.receive)
    }

    /// Fails unless both buffers hold what rank `rank` of `ranks` gives and takes.
    pub fn check_buffers(&self, rank: usize, ranks: usize) -> Result<()> {
        self.check_shape(&Shape::of(self, ranks), rank)
    }

    /// As [`Operation::check_buffers`], for the operation's own `shape`. An operation of 8 bytes takes 160 ns in all.
    #[inline]
    pub(crate) fn check_shape(&self, shape: &Shape<'_>, rank: usize) -> Result<()> {
        let possible = self.count.checked_mul(shape.size * self.element()).is_some();
        if possible && shape.send_bytes(rank) <= self.send.len() && shape.receive_bytes(rank) <= self.receive.len() {
            return Ok(());
        }
        Err(self.misfit(shape, rank, possible))
    }

    #[cold]
    fn misfit(&self, shape: &Shape<'_>, rank: usize, possible: bool) -> Error {
        let has =
            |does: &str, bytes: usize, len: usize| format!("rank {rank} {does} {bytes} bytes, its buffer has {len}");
        let why = match possible {
            false => "too many".into(),
            true if shape.send_bytes(rank) > self.send.len() => has("gives", shape.send_bytes(rank), self.send.len()),
            true => has("takes", shape.receive_bytes(rank), self.receive.len()),
        };
        Error::Config(format!("{} of {} elements: {why}", self.collective.name(), self.count))
    }

    /// Fails unless the root is one of `ranks` ranks and there is a count for each pair of them, where these matter.
    pub(crate) fn check(&self, ranks: usize) -> Result<()> {
        let Operation { collective, root, counts, .. } = *self;
        if collective.has_root() && root >= ranks {
            let text = format!("{} with root {root}: the root is one of 0 to {}", collective.name(), ranks - 1);
            return Err(Error::Config(text));
        }
        if collective == Collective::AllToAllV && counts.len() != ranks * ranks {
            let (wanted, given) = (ranks * ranks, counts.len());
            return Err(Error::Config(format!("alltoallv among {ranks} ranks needs {wanted} counts, not {given}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_too_short_are_refused() {
        let mut memory = [0_u8; 64];
        // SAFETY: the array outlives the operations, of which none is run.
        let room = unsafe { Room::new(memory.as_mut_ptr(), memory.len()) };
        let (all, each) = (Collective::AllReduce, Collective::AllGather);
        let cases = [
            (all, 4, 16, 16, ""),
            (all, 4, 15, 16, "all_reduce of 4 elements: rank 1 gives 16 bytes, its buffer has 15"),
            (all, 4, 16, 15, "all_reduce of 4 elements: rank 1 takes 16 bytes, its buffer has 15"),
            (each, 4, 16, 31, "all_gather of 4 elements: rank 1 takes 32 bytes, its buffer has 31"),
            (
                Collective::ReduceScatter,
                4,
                31,
                16,
                "reduce_scatter of 4 elements: rank 1 gives 32 bytes, its buffer has 31",
            ),
            (Collective::Reduce, 4, 16, 0, ""),
            (Collective::Broadcast, 4, 0, 16, ""),
            (Collective::AllToAllV, 0, 12, 8, ""),
            (Collective::AllToAllV, 0, 12, 7, "alltoallv of 0 elements: rank 1 takes 8 bytes, its buffer has 7"),
            (each, usize::MAX / 4, 64, 64, "all_gather of 4611686018427387903 elements: too many"),
        ];
        for (collective, count, send, receive, expected) in cases {
            let (send, receive) = (room.data().take(send), room.take(receive));
            let (datatype, redop, counts) = (Datatype::Float, RedOp::Sum, &[0, 1, 2, 1][..]);
            let operation = Operation { collective, datatype, redop, count, root: 0, send, receive, counts };
            let found = operation.check_buffers(1, 2).map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(found, expected);
        }
    }
}
