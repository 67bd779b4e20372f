//! One rank's share of a large operation: straight from the ranks' send buffers to their receive buffers.

use super::mailbox::Announcement;
use crate::reduction::{Store, combine, copy};
use crate::shape::{Piece, Shape};
use crate::{Data, Operation, Room};
use busbw_model::Collective;
use busbw_transport::Result;
use busbw_transport::shm::{Group, Named, Reached};

/// Bytes that are fetched from another process at once: those of all ranks stay in the core's cache.
const CHUNK: usize = 64 << 10;

/// A place in a rank's memory.
#[derive(Debug, Clone, Copy)]
enum Address<P> {
    Here(P),
    /// Plain memory of another process.
    There(u64),
}

impl<P> Address<P> {
    fn plus(self, bytes: usize, skip: fn(P, usize) -> P) -> Self {
        match self {
            Address::Here(part) => Address::Here(skip(part, bytes)),
            Address::There(address) => Address::There(address.wrapping_add(bytes as u64)),
        }
    }
}

/// What is kept from one operation to the next so that it need not be allocated.
#[derive(Default)]
pub(super) struct Workspace {
    send: Vec<Address<Data>>,
    receive: Vec<Address<Room>>,
    inputs: Vec<Data>,
    outputs: Vec<Room>,
    scratch: Vec<u8>,
    /// The peers' windows, during an operation.
    held: Vec<Reached>,
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
    /// Finds all ranks' buffers. `store`: how totals of their size are written.
    pub(super) fn new(
        group: &'a Group,
        operation: &'a Operation<'a>,
        shape: Shape<'a>,
        announced: &[Announcement],
        workspace: &'a mut Workspace,
        store: Store,
    ) -> Result<Self> {
        let rank = group.rank();
        workspace.send.clear();
        workspace.receive.clear();
        for (peer, one) in announced.iter().enumerate() {
            if peer == rank {
                workspace.send.push(Address::Here(operation.send));
                workspace.receive.push(Address::Here(operation.receive));
                continue;
            }
            workspace.send.push(match find(group, peer, one.send, shape.send_bytes(peer), &mut workspace.held)? {
                Address::Here(room) => Address::Here(room.data()),
                Address::There(address) => Address::There(address),
            });
            workspace.receive.push(find(group, peer, one.receive, shape.receive_bytes(peer), &mut workspace.held)?);
        }
        // What a reduction in place writes it has just read: it is in the caches already.
        let in_place =
            shape.reduces() && (0..shape.size).all(|rank| writes_where_it_reads(&shape, rank, &announced[rank]));
        let store = if in_place { Store::Cached } else { store };
        let fetch = shape.only_giver().is_some_and(|giver| announced[giver].send.window == Named::PLAIN);
        Ok(Direct { group, operation, shape, rank, workspace, store, fetch })
    }

    pub(super) fn run(&mut self) -> Result<()> {
        let (shape, rank, size) = (self.shape, self.rank, self.shape.size);
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

    /// The ranks to whom this rank's share of a reduction goes, each with its piece.
    fn takers(&self) -> impl Iterator<Item = (usize, Piece)> + use<'a> {
        let (shape, rank) = (self.shape, self.rank);
        let takers = if shape.personal() { rank..rank + 1 } else { 0..shape.size };
        takers.filter_map(move |taker| shape.piece(rank, taker).map(|piece| (taker, piece)))
    }

    /// Combines `len` bytes from `start` on of all ranks' pieces, for all who take them.
    fn reduce(&mut self, start: usize, len: usize) -> Result<()> {
        let Some((first_taker, _)) = self.takers().next() else { return Ok(()) };
        let Workspace { send, receive, .. } = &self.workspace;
        let far = send.iter().any(|address| matches!(address, Address::There(_)))
            || self.takers().any(|(taker, _)| matches!(receive[taker], Address::There(_)));
        let step = if far { CHUNK } else { len.max(1) };
        if far {
            self.workspace.scratch.resize((self.shape.size + 1) * CHUNK, 0);
        }
        for from in (start..start + len).step_by(step) {
            let bytes = step.min(start + len - from);
            self.reduce_step(first_taker, from, bytes)?;
            self.group.cancellation().advance();
        }
        Ok(())
    }

    fn reduce_step(&mut self, taker: usize, from: usize, bytes: usize) -> Result<()> {
        let (shape, operation, takers) = (self.shape, self.operation, self.takers());
        let Workspace { send, receive, inputs, outputs, scratch, .. } = &mut *self.workspace;
        // SAFETY: the scratch memory is this operation's alone, and neither grows nor goes before its end.
        let scratch = unsafe { Room::new(scratch.as_mut_ptr(), scratch.len()) };
        inputs.clear();
        outputs.clear();
        for (giver, address) in send.iter().enumerate() {
            let Some(piece) = shape.piece(giver, taker) else { continue };
            inputs.push(match address.plus(piece.from + from, Data::skip) {
                Address::Here(data) => data,
                Address::There(address) => {
                    let chunk = scratch.skip(giver * CHUNK).take(bytes);
                    fetch(self.group, giver, address, chunk)?;
                    chunk.data()
                }
            });
        }
        let mut far = Vec::new();
        for (taker, piece) in takers {
            match receive[taker].plus(piece.to + from, Room::skip) {
                Address::Here(room) => outputs.push(room),
                Address::There(address) => far.push((taker, address)),
            }
        }
        if outputs.is_empty() {
            outputs.push(scratch.skip(shape.size * CHUNK));
        }
        let count = bytes / operation.element();
        let store = if far.is_empty() { self.store } else { Store::Cached };
        combine(outputs, inputs, count, operation.datatype, operation.redop, shape.size, store);
        for (taker, address) in far {
            bring(self.group, taker, address, outputs[0].data().take(bytes))?;
        }
        Ok(())
    }

    /// Copies `len` bytes from `start` on of `giver`'s piece to all who take it. The giver's memory is mapped here.
    fn give(&mut self, giver: usize, start: usize, len: usize) -> Result<()> {
        let Workspace { send, receive, outputs, .. } = &mut *self.workspace;
        outputs.clear();
        let mut source = None;
        for step in 0..self.shape.size {
            let taker = (self.rank + step) % self.shape.size;
            let Some(piece) = self.shape.piece(giver, taker) else { continue };
            let Address::Here(from) = send[giver].plus(piece.from + start, Data::skip) else { continue };
            source = Some(from);
            match receive[taker].plus(piece.to + start, Room::skip) {
                Address::Here(to) if from.is_at(to) => {}
                Address::Here(to) => outputs.push(to),
                Address::There(address) => bring(self.group, taker, address, from.take(len))?,
            }
        }
        if let Some(from) = source.filter(|_| !outputs.is_empty()) {
            copy(outputs, from.take(len), self.store);
        }
        Ok(())
    }

    /// Copies this rank's piece from `giver`.
    fn take(&mut self, giver: usize) -> Result<()> {
        let Some(Piece { from, to, bytes }) = self.shape.piece(giver, self.rank) else { return Ok(()) };
        let to = self.operation.receive.skip(to).take(bytes);
        match self.workspace.send[giver].plus(from, Data::skip) {
            Address::Here(data) if data.is_at(to) => {}
            Address::Here(data) => copy(&[to], data.take(bytes), self.store),
            Address::There(address) => fetch(self.group, giver, address, to)?,
        }
        self.group.cancellation().advance();
        Ok(())
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.workspace.held.clear();
    }
}

/// The `bytes` that `peer` has named; `held` keeps them mapped.
fn find(group: &Group, peer: usize, named: Named, bytes: usize, held: &mut Vec<Reached>) -> Result<Address<Room>> {
    if bytes == 0 {
        return Ok(Address::There(0));
    }
    Ok(match group.reach(peer, named, bytes)? {
        Some(reached) => {
            // SAFETY: the window has the bytes, and is kept; its owner has announced it to all until every rank is done.
            let room = unsafe { Room::new(reached.as_ptr(), bytes) };
            held.push(reached);
            Address::Here(room)
        }
        None => Address::There(named.offset),
    })
}

/// Fills `to` from `address` in the memory of `peer`.
fn fetch(group: &Group, peer: usize, address: u64, to: Room) -> Result<()> {
    // SAFETY: the room has the bytes; the peer keeps its own as they are until every rank is done.
    unsafe { group.read(peer, address, to.as_ptr(), to.len()) }
}

/// Copies `from` to `address` in the memory of `peer`.
fn bring(group: &Group, peer: usize, address: u64, from: Data) -> Result<()> {
    // SAFETY: the bytes are there; nobody else uses the peer's until every rank is done.
    unsafe { group.write(peer, address, from.as_ptr(), from.len()) }
}

/// Whether the piece that `rank` takes from itself goes where it lies.
fn writes_where_it_reads(shape: &Shape<'_>, rank: usize, announced: &Announcement) -> bool {
    shape.piece(rank, rank).is_none_or(|piece| {
        let (send, receive) = (announced.send, announced.receive);
        send.window == receive.window
            && send.offset.wrapping_add(piece.from as u64) == receive.offset.wrapping_add(piece.to as u64)
    })
}
