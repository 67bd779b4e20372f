//! Collectives as calls of NCCL (the `*RunColl` functions of nccl-tests' `src/*.cu`).

use busbw_collectives::Operation;
use busbw_gpu::Result;
use busbw_gpu::cuda::Stream;
use busbw_gpu::nccl::{Buffers, Communicator, Plain, Whole};
use busbw_model::{Collective, Datatype, RedOp};
use busbw_nccl_abi::library as abi;
use std::sync::Arc;

pub fn datatype(datatype: Datatype) -> abi::DataType {
    match datatype {
        Datatype::Int8 => abi::DataType::INT8,
        Datatype::Uint8 => abi::DataType::UINT8,
        Datatype::Int32 => abi::DataType::INT32,
        Datatype::Uint32 => abi::DataType::UINT32,
        Datatype::Int64 => abi::DataType::INT64,
        Datatype::Uint64 => abi::DataType::UINT64,
        Datatype::Half => abi::DataType::FLOAT16,
        Datatype::Float => abi::DataType::FLOAT32,
        Datatype::Double => abi::DataType::FLOAT64,
        Datatype::Bfloat16 => abi::DataType::BFLOAT16,
        Datatype::F8e4m3 => abi::DataType::FLOAT8_E4M3,
        Datatype::F8e5m2 => abi::DataType::FLOAT8_E5M2,
    }
}

/// NCCL's name of a reduction that every communicator has; `None` for `mulsum`, which is made for each rank.
pub fn redop(redop: RedOp) -> Option<abi::RedOp> {
    Some(match redop {
        RedOp::Sum => abi::RedOp::SUM,
        RedOp::Prod => abi::RedOp::PROD,
        RedOp::Max => abi::RedOp::MAX,
        RedOp::Min => abi::RedOp::MIN,
        RedOp::Avg => abi::RedOp::AVG,
        RedOp::MulSum => return None,
    })
}

/// How many calls follow one another in an operation: only hypercube has several, each of which sends on what the one
/// before brought.
pub fn steps(collective: Collective, nranks: usize) -> usize {
    match collective {
        Collective::HyperCube => nranks.ilog2().max(1) as usize,
        _ => 1,
    }
}

/// One rank's part in one operation.
#[derive(Clone)]
pub struct Part {
    pub communicator: Arc<Communicator>,
    pub stream: Arc<Stream>,
    pub rank: usize,
    pub collective: Collective,
    pub buffers: Buffers,
    /// Bytes of an element.
    pub element: usize,
    pub redop: abi::RedOp,
    pub root: usize,
    /// All-to-all-v: elements from rank i to rank j at `[i * nranks + j]`.
    pub counts: Vec<usize>,
}

// SAFETY: the pointers are into GPU memory, which belongs to no thread; the rank waits until its part is queued.
unsafe impl Send for Part {}

impl Part {
    /// The part of `rank` in `operation`.
    pub fn new(
        (communicator, stream): (&Arc<Communicator>, &Arc<Stream>),
        rank: usize,
        operation: &Operation<'_>,
        redop: abi::RedOp,
    ) -> Self {
        Part {
            communicator: Arc::clone(communicator),
            stream: Arc::clone(stream),
            rank,
            collective: operation.collective,
            buffers: Buffers {
                send: operation.send.as_ptr(),
                receive: operation.receive.as_ptr(),
                count: operation.count,
                datatype: datatype(operation.datatype),
            },
            element: operation.element(),
            redop,
            root: operation.root,
            counts: operation.counts.to_vec(),
        }
    }

    /// Queues step `step`.
    ///
    /// # Safety
    /// As of [`Communicator::plain`], for the operation's buffers.
    pub unsafe fn queue(&self, step: usize) -> Result<()> {
        let (op, root) = (self.redop, self.root);
        let plain = |which| {
            // SAFETY: the caller of `queue` keeps the buffers valid until the stream is done, here and below.
            unsafe { self.communicator.plain(which, &self.buffers, &self.stream) }
        };
        // SAFETY: the caller keeps the buffers valid until the stream is done.
        unsafe {
            match self.collective {
                Collective::AllReduce => plain(Plain::AllReduce(op)),
                Collective::ReduceScatter => plain(Plain::ReduceScatter(op)),
                Collective::Reduce => plain(Plain::Reduce(op, root)),
                Collective::Broadcast => plain(Plain::Broadcast(root)),
                Collective::AllGather => plain(Plain::AllGather),
                Collective::AllToAll => self.whole(Whole::AllToAll),
                Collective::Gather => self.whole(Whole::Gather(root)),
                Collective::Scatter => self.whole(Whole::Scatter(root)),
                Collective::SendRecv => self.ring(),
                Collective::AllToAllV => self.uneven(),
                Collective::HyperCube => self.hypercube(step),
            }
        }
    }

    fn nranks(&self) -> usize {
        self.communicator.nranks()
    }

    fn bytes(&self) -> usize {
        self.buffers.count * self.element
    }

    /// Sends `count` elements that lie `at` elements behind the beginning of what this rank gives.
    unsafe fn send(&self, at: usize, count: usize, peer: usize) -> Result<()> {
        let from = self.buffers.send.wrapping_add(at * self.element);
        // SAFETY: the caller keeps the buffers valid until the stream is done.
        unsafe { self.communicator.send(from, count, self.buffers.datatype, peer, &self.stream) }
    }

    /// Receives `count` elements to `at` elements behind where this rank's result begins.
    unsafe fn receive(&self, at: usize, count: usize, peer: usize) -> Result<()> {
        let to = self.buffers.receive.wrapping_add(at * self.element);
        // SAFETY: the caller keeps the buffers valid until the stream is done.
        unsafe { self.communicator.receive(to, count, self.buffers.datatype, peer, &self.stream) }
    }

    /// By NCCL's own function where it has one, else by sends and receives.
    unsafe fn whole(&self, which: Whole) -> Result<()> {
        // SAFETY: the caller keeps the buffers valid until the stream is done.
        if unsafe { self.communicator.whole(which, &self.buffers, &self.stream)? } {
            return Ok(());
        }
        let (count, nranks) = (self.buffers.count, self.nranks());
        self.communicator.nccl().group(|| {
            // SAFETY: the caller keeps the buffers valid until the stream is done.
            unsafe {
                match which {
                    Whole::AllToAll => (0..nranks).try_for_each(|peer| {
                        self.send(peer * count, count, peer)?;
                        self.receive(peer * count, count, peer)
                    }),
                    Whole::Gather(root) => {
                        self.send(0, count, root)?;
                        let sources = if self.rank == root { nranks } else { 0 };
                        (0..sources).try_for_each(|peer| self.receive(peer * count, count, peer))
                    }
                    Whole::Scatter(root) => {
                        let targets = if self.rank == root { nranks } else { 0 };
                        (0..targets).try_for_each(|peer| self.send(peer * count, count, peer))?;
                        self.receive(0, count, root)
                    }
                }
            }
        })
    }

    /// To the next rank, from the one before.
    unsafe fn ring(&self) -> Result<()> {
        let (n, count) = (self.nranks(), self.buffers.count);
        self.communicator.nccl().group(|| {
            // SAFETY: the caller keeps the buffers valid until the stream is done.
            unsafe {
                self.send(0, count, (self.rank + 1) % n)?;
                self.receive(0, count, (self.rank + n - 1) % n)
            }
        })
    }

    /// All-to-all-v: segments lie packed, in the order of ranks.
    unsafe fn uneven(&self) -> Result<()> {
        let n = self.nranks();
        self.communicator.nccl().group(|| {
            let (mut sent, mut received) = (0, 0);
            (0..n).try_for_each(|peer| {
                let (to, from) = (self.counts[self.rank * n + peer], self.counts[peer * n + self.rank]);
                // SAFETY: the caller keeps the buffers valid until the stream is done.
                unsafe {
                    if to > 0 {
                        self.send(sent, to, peer)?;
                    }
                    if from > 0 {
                        self.receive(received, from, peer)?;
                    }
                }
                (sent, received) = (sent + to, received + from);
                Ok(())
            })
        })
    }

    /// An all-gather in which step k exchanges 2^k parts with the rank whose number differs in bit k.
    unsafe fn hypercube(&self, step: usize) -> Result<()> {
        let (count, mask, datatype) = (self.buffers.count, 1 << step, self.buffers.datatype);
        let receive = self.buffers.receive;
        let own = receive.wrapping_add(self.rank * self.bytes());
        if step == 0 && own.cast_const() != self.buffers.send && self.bytes() > 0 {
            // SAFETY: the caller keeps both buffers valid; the receive buffer has room for the parts of all ranks.
            unsafe { self.stream.copy_within(self.buffers.send as u64, own as u64, self.bytes())? };
        }
        if self.nranks() == 1 {
            return Ok(());
        }
        let mine = self.rank & !(mask - 1);
        let (peer, theirs) = (self.rank ^ mask, mine ^ mask);
        self.communicator.nccl().group(|| {
            let (from, to) = (receive.wrapping_add(mine * self.bytes()), receive.wrapping_add(theirs * self.bytes()));
            // SAFETY: the caller keeps the buffers valid until the stream is done.
            unsafe {
                self.communicator.send(from, count * mask, datatype, peer, &self.stream)?;
                self.communicator.receive(to, count * mask, datatype, peer, &self.stream)
            }
        })
    }
}
