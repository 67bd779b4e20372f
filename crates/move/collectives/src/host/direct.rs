//! One rank's share of a large operation: straight from the ranks' send buffers to their receive buffers.

use super::mailbox::Announcement;
use super::shape::{Piece, Shape};
use crate::Operation;
use crate::reduction::{Store, combine, copy};
use busbw_model::Collective;
use busbw_transport::Result;
use busbw_transport::shm::{Group, Named};

/// Bytes that are fetched from another process at once: those of all ranks stay in the core's cache.
const CHUNK: usize = 64 << 10;

/// An address in a rank's memory.
#[derive(Debug, Clone, Copy)]
enum Address {
    /// Mapped here.
    Here(*mut u8),
    /// Plain memory of another process.
    There(u64),
}

impl Address {
    fn plus(self, bytes: usize) -> Self {
        match self {
            Address::Here(pointer) => Address::Here(pointer.wrapping_add(bytes)),
            Address::There(address) => Address::There(address + bytes as u64),
        }
    }
}

/// What is kept from one operation to the next so that it need not be allocated.
#[derive(Default)]
pub(super) struct Workspace {
    send: Vec<Address>,
    receive: Vec<Address>,
    inputs: Vec<*const u8>,
    outputs: Vec<*mut u8>,
    scratch: Vec<u8>,
}

/// A large operation under way.
pub(super) struct Direct<'a> {
    group: &'a Group,
    operation: &'a Operation<'a>,
    shape: Shape<'a>,
    rank: usize,
    workspace: &'a mut Workspace,
    store: Store,
    /// The only giver's memory is plain: its peers fetch from it.
    fetch: bool,
}

impl<'a> Direct<'a> {
    /// Finds all ranks' buffers. `streaming` says that they exceed the caches.
    pub(super) fn new(
        group: &'a Group,
        operation: &'a Operation<'a>,
        shape: Shape<'a>,
        announced: &[Announcement],
        workspace: &'a mut Workspace,
        streaming: bool,
    ) -> Result<Self> {
        let rank = group.rank();
        workspace.send.clear();
        workspace.receive.clear();
        for (peer, one) in announced.iter().enumerate() {
            let find = |named: Named, bytes| match group.reach(peer, named, bytes)? {
                Some(pointer) => Ok(Address::Here(pointer)),
                None => Ok(Address::There(named.offset)),
            };
            let find = |named, bytes| if bytes == 0 { Ok(Address::There(0)) } else { find(named, bytes) };
            let own = peer == rank;
            workspace.send.push(match own {
                true => Address::Here(operation.send.cast_mut()),
                false => find(one.send, shape.send_bytes(peer))?,
            });
            workspace.receive.push(match own {
                true => Address::Here(operation.receive),
                false => find(one.receive, shape.receive_bytes(peer))?,
            });
        }
        // What a reduction in place writes it has just read: it is in the caches already.
        let in_place =
            shape.reduces() && (0..shape.size).all(|rank| writes_where_it_reads(&shape, rank, &announced[rank]));
        let store = if streaming && !in_place { Store::Streaming } else { Store::Cached };
        let fetch = shape.only_giver().is_some_and(|giver| announced[giver].send.window == Named::PLAIN);
        Ok(Direct { group, operation, shape, rank, workspace, store, fetch })
    }

    /// Does this rank's share.
    ///
    /// # Safety
    /// All ranks' buffers hold what the operation says, and stay so until all ranks are done.
    pub(super) unsafe fn run(&mut self) -> Result<()> {
        let (shape, rank, size) = (self.shape, self.rank, self.shape.size);
        // SAFETY: handed on; no two ranks write the same bytes, for each has its own share, piece or receive buffer.
        unsafe {
            match shape.collective {
                Collective::AllReduce | Collective::Reduce => {
                    let (start, len) = shape.share(shape.longest(), rank);
                    self.reduce(start, len)
                }
                Collective::ReduceScatter => self.reduce(0, shape.longest()),
                Collective::Broadcast if !self.fetch => {
                    let (start, len) = shape.share(shape.longest(), rank);
                    self.give(self.operation.root, start, len)
                }
                Collective::Broadcast => self.take(self.operation.root),
                _ if shape.personal() => (0..size).try_for_each(|step| self.take((rank + step) % size)),
                _ => self.give(rank, 0, shape.longest()),
            }
        }
    }

    /// The ranks to whom this rank's share of a reduction goes, each with its piece.
    fn takers(&self) -> impl Iterator<Item = (usize, Piece)> + use<'a> {
        let (shape, rank) = (self.shape, self.rank);
        let takers = if shape.personal() { rank..rank + 1 } else { 0..shape.size };
        takers.filter_map(move |taker| shape.piece(rank, taker).map(|piece| (taker, piece)))
    }

    /// Combines `len` bytes from `start` on of all ranks' pieces, for all who take them.
    ///
    /// # Safety
    /// That of [`Direct::run`].
    unsafe fn reduce(&mut self, start: usize, len: usize) -> Result<()> {
        let Some((first_taker, _)) = self.takers().next() else { return Ok(()) };
        let remote = |address: &Address| matches!(address, Address::There(_));
        let far = self.workspace.send.iter().any(remote)
            || self.takers().any(|(taker, _)| remote(&self.workspace.receive[taker]));
        let step = if far { CHUNK } else { len.max(1) };
        if far {
            self.workspace.scratch.resize((self.shape.size + 1) * CHUNK, 0);
        }
        for from in (start..start + len).step_by(step) {
            let bytes = step.min(start + len - from);
            // SAFETY: handed on.
            unsafe { self.reduce_step(first_taker, from, bytes)? };
            self.group.cancellation().advance();
        }
        Ok(())
    }

    /// # Safety
    /// That of [`Direct::run`]; with remote addresses, the scratch holds a chunk for each rank and one more.
    unsafe fn reduce_step(&mut self, taker: usize, from: usize, bytes: usize) -> Result<()> {
        let (shape, operation, takers) = (self.shape, self.operation, self.takers());
        let Workspace { send, receive, inputs, outputs, scratch } = &mut *self.workspace;
        inputs.clear();
        outputs.clear();
        for giver in 0..shape.size {
            let Some(piece) = shape.piece(giver, taker) else { continue };
            inputs.push(match send[giver].plus(piece.from + from) {
                Address::Here(pointer) => pointer,
                Address::There(address) => {
                    let chunk = scratch[giver * CHUNK..].as_mut_ptr();
                    // SAFETY: a chunk holds the bytes; the peer keeps its own as they are.
                    unsafe { self.group.read(giver, address, chunk, bytes)? };
                    chunk
                }
            });
        }
        let mut far = Vec::new();
        for (taker, piece) in takers {
            match receive[taker].plus(piece.to + from) {
                Address::Here(pointer) => outputs.push(pointer),
                Address::There(address) => far.push((taker, address)),
            }
        }
        if outputs.is_empty() {
            outputs.push(scratch[shape.size * CHUNK..].as_mut_ptr());
        }
        let count = bytes / operation.element();
        let store = if far.is_empty() { self.store } else { Store::Cached };
        // SAFETY: all places hold the bytes; an output is at most the very same memory as an input.
        unsafe { combine(outputs, inputs, count, operation.datatype, operation.redop, shape.size, store) };
        for (taker, address) in far {
            // SAFETY: nobody else uses these bytes of the taker until all are done.
            unsafe { self.group.write(taker, address, outputs[0], bytes)? };
        }
        Ok(())
    }

    /// Copies `len` bytes from `start` on of `giver`'s piece to all who take it. The giver's memory is mapped here.
    ///
    /// # Safety
    /// That of [`Direct::run`].
    unsafe fn give(&mut self, giver: usize, start: usize, len: usize) -> Result<()> {
        let Workspace { send, receive, outputs, .. } = &mut *self.workspace;
        outputs.clear();
        let mut source = None;
        for step in 0..self.shape.size {
            let taker = (self.rank + step) % self.shape.size;
            let Some(piece) = self.shape.piece(giver, taker) else { continue };
            let Address::Here(from) = send[giver].plus(piece.from + start) else { continue };
            source = Some(from);
            match receive[taker].plus(piece.to + start) {
                Address::Here(to) if to == from => {}
                Address::Here(to) => outputs.push(to),
                // SAFETY: both places hold the bytes, and nobody else uses the taker's until all are done.
                Address::There(address) => unsafe { self.group.write(taker, address, from, len)? },
            }
        }
        if let Some(from) = source.filter(|_| !outputs.is_empty()) {
            // SAFETY: as above.
            unsafe { copy(outputs, from, len, self.store) };
        }
        Ok(())
    }

    /// Copies this rank's piece from `giver`.
    ///
    /// # Safety
    /// That of [`Direct::run`].
    unsafe fn take(&mut self, giver: usize) -> Result<()> {
        let Some(Piece { from, to, bytes }) = self.shape.piece(giver, self.rank) else { return Ok(()) };
        let to = self.operation.receive.wrapping_add(to);
        match self.workspace.send[giver].plus(from) {
            Address::Here(pointer) if pointer == to => {}
            // SAFETY: both places hold the bytes, and only this rank writes its receive buffer.
            Address::Here(pointer) => unsafe { copy(&[to], pointer, bytes, self.store) },
            // SAFETY: as above.
            Address::There(address) => unsafe { self.group.read(giver, address, to, bytes)? },
        }
        self.group.cancellation().advance();
        Ok(())
    }
}

/// Whether the piece that `rank` takes from itself goes where it lies.
fn writes_where_it_reads(shape: &Shape<'_>, rank: usize, announced: &Announcement) -> bool {
    shape.piece(rank, rank).is_none_or(|piece| {
        let (send, receive) = (announced.send, announced.receive);
        send.window == receive.window && send.offset + piece.from as u64 == receive.offset + piece.to as u64
    })
}
