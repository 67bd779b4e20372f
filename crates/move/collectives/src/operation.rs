//! One collective operation, as NCCL's functions describe it.

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
    pub send: *const u8,
    /// Where this rank's result goes.
    pub receive: *mut u8,
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
