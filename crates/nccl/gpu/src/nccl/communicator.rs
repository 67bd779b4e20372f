//! A communicator: one rank's part in a clique, from its beginning to its end.

use super::Nccl;
use super::held::{CommunicatorUse, Life};
use crate::cuda::Stream;
use crate::{Error, Result};
use busbw_nccl_abi::NcclResult;
use busbw_nccl_abi::library::{Config, DataType, RedOp, SCALAR_HOST_IMMEDIATE, UniqueId};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One rank of a communicator. Dropped without [`Communicator::destroy`], it is aborted.
///
/// NCCL lets another thread abort a communicator while one is inside an operation, which then returns an error. No two
/// operations of one communicator may run at once: that is the caller's promise, and a part of their `Safety`. Every call
/// holds the communicator, so that none uses what another has freed; see [`CommunicatorUse`].
pub struct Communicator {
    nccl: Arc<Nccl>,
    life: Arc<Life>,
    nranks: usize,
}

/// What an operation works on: pointers into GPU memory, and how much.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    /// What this rank gives.
    pub send: *const u8,
    /// Where its result goes.
    pub receive: *mut u8,
    /// Elements, as NCCL's function of the collective counts them.
    pub count: usize,
    pub datatype: DataType,
}

/// The operations that every version has as functions of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// `ncclAllReduce`.
    AllReduce(RedOp),
    /// `ncclReduceScatter`.
    ReduceScatter(RedOp),
    /// `ncclReduce` to this rank.
    Reduce(RedOp, usize),
    /// `ncclBroadcast` from this rank.
    Broadcast(usize),
    /// `ncclAllGather`.
    AllGather,
}

impl Communicator {
    /// Begins this rank's part on the calling thread's GPU, and returns when all ranks have; within a group of several
    /// ranks, when the group ends.
    pub fn join(nccl: &Arc<Nccl>, id: UniqueId, rank: usize, nranks: usize, config: &mut Config) -> Result<Pending> {
        // In a group, NCCL writes the communicator when the group ends, be it long after this rank has given up waiting: the
        // place for it is never freed.
        let raw: &'static AtomicPtr<c_void> = Box::leak(Box::default());
        // SAFETY: NCCL copies the configuration in the call, and what it writes to lives for ever.
        let result = unsafe {
            (nccl.api.init_rank)(raw.as_ptr(), nranks as c_int, id, rank as c_int, std::ptr::from_mut(config))
        };
        nccl.checked("ncclCommInitRankConfig", result)?;
        Ok(Pending { nccl: Arc::clone(nccl), raw, nranks })
    }

    pub fn nranks(&self) -> usize {
        self.nranks
    }

    pub fn nccl(&self) -> &Arc<Nccl> {
        &self.nccl
    }

    /// Keeps it from being freed while calls are made that NCCL carries out later, as in a group.
    pub fn hold(&self) -> Result<CommunicatorUse> {
        let last = ": the communicator was aborted".into();
        self.life.hold().ok_or(Error::Nccl { call: "a call of NCCL", result: NcclResult::INVALID_USAGE, last })
    }

    /// Goes on unless NCCL has noticed an error since: a peer that is gone, a network that fails.
    pub fn check(&self) -> Result<()> {
        let mut error = NcclResult::SUCCESS;
        let held = self.hold()?;
        // SAFETY: the communicator is held; the pointer is to a value that lives through the call.
        let asked = unsafe { (self.nccl.api.async_error)(held.raw(), &mut error) };
        self.nccl.checked("ncclCommGetAsyncError", asked)?;
        if error == NcclResult::IN_PROGRESS {
            return Ok(());
        }
        self.nccl.checked("an operation of NCCL", error)
    }

    /// Ends the communicator at once, with the operations that run on it. Does nothing when it has ended.
    pub fn abort(&self) {
        // SAFETY: aborted once. What it returns says nothing that could still be acted on.
        let _ = self.life.take().map(|raw| unsafe { (self.nccl.api.abort)(raw) });
    }

    /// Ends the communicator when its operations are done. Every rank of the process calls it, each in its thread.
    pub fn destroy(&self) -> Result<()> {
        // SAFETY: destroyed once.
        let result = self.life.take().map(|raw| unsafe { (self.nccl.api.destroy)(raw) });
        result.map_or(Ok(()), |result| self.nccl.checked("ncclCommDestroy", result))
    }

    /// Starts one of these operations.
    ///
    /// # Safety
    /// The buffers are of this rank's GPU and as large as the operation needs, and nobody touches them until the stream has
    /// done it. So for the other operations.
    pub unsafe fn plain(&self, which: Plain, buffers: &Buffers, stream: &Stream) -> Result<()> {
        let Buffers { send, receive, count, datatype } = *buffers;
        let held = self.hold()?;
        let (send, receive, comm, stream) = (send.cast(), receive.cast(), held.raw(), stream.raw());
        let api = &self.nccl.api;
        // SAFETY: the caller's promise.
        let (call, result) = unsafe {
            match which {
                Plain::AllReduce(op) => {
                    ("ncclAllReduce", (api.all_reduce)(send, receive, count, datatype, op, comm, stream))
                }
                Plain::ReduceScatter(op) => {
                    ("ncclReduceScatter", (api.reduce_scatter)(send, receive, count, datatype, op, comm, stream))
                }
                Plain::Reduce(op, root) => {
                    ("ncclReduce", (api.reduce)(send, receive, count, datatype, op, root as c_int, comm, stream))
                }
                Plain::Broadcast(root) => {
                    ("ncclBroadcast", (api.broadcast)(send, receive, count, datatype, root as c_int, comm, stream))
                }
                Plain::AllGather => ("ncclAllGather", (api.all_gather)(send, receive, count, datatype, comm, stream)),
            }
        };
        self.nccl.checked(call, result)
    }

    /// Starts `ncclAlltoAll`, `ncclGather` or `ncclScatter`, which 2.28 brought; `false` where this version has none, and
    /// sends and receives must do it.
    ///
    /// # Safety
    /// As of [`Communicator::plain`].
    pub unsafe fn whole(&self, which: Whole, buffers: &Buffers, stream: &Stream) -> Result<bool> {
        let Buffers { send, receive, count, datatype } = *buffers;
        let held = self.hold()?;
        let (send, receive, comm, stream) = (send.cast(), receive.cast(), held.raw(), stream.raw());
        let api = &self.nccl.api;
        // SAFETY: the caller's promise.
        let (call, result) = unsafe {
            match which {
                Whole::AllToAll => {
                    ("ncclAlltoAll", api.all_to_all.map(|call| call(send, receive, count, datatype, comm, stream)))
                }
                Whole::Gather(root) => {
                    let root = root as c_int;
                    ("ncclGather", api.gather.map(|call| call(send, receive, count, datatype, root, comm, stream)))
                }
                Whole::Scatter(root) => {
                    let root = root as c_int;
                    ("ncclScatter", api.scatter.map(|call| call(send, receive, count, datatype, root, comm, stream)))
                }
            }
        };
        result.map_or(Ok(false), |result| self.nccl.checked(call, result).map(|()| true))
    }

    /// Starts `ncclSend` of `count` elements from `from`.
    ///
    /// # Safety
    /// As of [`Communicator::plain`].
    pub unsafe fn send(
        &self,
        from: *const u8,
        count: usize,
        datatype: DataType,
        peer: usize,
        stream: &Stream,
    ) -> Result<()> {
        let held = self.hold()?;
        // SAFETY: the caller's promise.
        let result =
            unsafe { (self.nccl.api.send)(from.cast(), count, datatype, peer as c_int, held.raw(), stream.raw()) };
        self.nccl.checked("ncclSend", result)
    }

    /// Starts `ncclRecv` of `count` elements to `to`.
    ///
    /// # Safety
    /// As of [`Communicator::plain`].
    pub unsafe fn receive(
        &self,
        to: *mut u8,
        count: usize,
        datatype: DataType,
        peer: usize,
        stream: &Stream,
    ) -> Result<()> {
        let held = self.hold()?;
        // SAFETY: the caller's promise.
        let result =
            unsafe { (self.nccl.api.receive)(to.cast(), count, datatype, peer as c_int, held.raw(), stream.raw()) };
        self.nccl.checked("ncclRecv", result)
    }

    /// An operation that multiplies this rank's elements with `scalar`, one element's bytes, and sums.
    pub fn premul_sum(&self, mut scalar: [u8; 8], datatype: DataType) -> Result<RedOp> {
        let (mut op, scalar) = (RedOp::SUM, scalar.as_mut_ptr().cast());
        let create = self.nccl.api.create_premul_sum;
        let held = self.hold()?;
        // SAFETY: the scalar is as large as any element, and read before the call returns.
        let result = unsafe { create(&mut op, scalar, datatype, SCALAR_HOST_IMMEDIATE, held.raw()) };
        self.nccl.checked("ncclRedOpCreatePreMulSum", result)?;
        Ok(op)
    }

    /// Gives back what [`Communicator::premul_sum`] gave.
    pub fn destroy_op(&self, op: RedOp) -> Result<()> {
        let held = self.hold()?;
        // SAFETY: the communicator is held.
        let result = unsafe { (self.nccl.api.destroy_op)(op, held.raw()) };
        self.nccl.checked("ncclRedOpDestroy", result)
    }
}

/// The operations that are functions of their own since 2.28.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// `ncclAlltoAll`.
    AllToAll,
    /// `ncclGather` to this rank.
    Gather(usize),
    /// `ncclScatter` from this rank.
    Scatter(usize),
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A communicator whose group has perhaps not ended.
#[must_use]
pub struct Pending {
    nccl: Arc<Nccl>,
    raw: &'static AtomicPtr<c_void>,
    nranks: usize,
}

impl Pending {
    /// The communicator, when the group has ended; before, one that refuses every call.
    pub fn ready(self) -> Communicator {
        let life = Life::of(self.raw.load(Ordering::Acquire));
        Communicator { nccl: self.nccl, life, nranks: self.nranks }
    }
}
