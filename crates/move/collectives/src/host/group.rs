//! One rank's part in its host's collectives: agreeing, and choosing between mailboxes and buffers.

use super::direct::{Direct, Workspace};
use super::mailbox::{Announcement, Mailboxes, ROOM};
use super::signature::{Signature, disagreement};
use crate::reduction::{Store, cache_bytes, combine, copy};
use crate::shape::Shape;
use crate::{Data, Operation, Room};
use busbw_transport::shm::{Buffer, Group, Named};
use busbw_transport::wait::Cores;
use busbw_transport::{Error, Result};

/// Operations whose mailbox data is at most this long take one step. Above, waiting twice costs less than copying twice.
const ONE_STEP: usize = 1 << 10;
/// The same where ranks share cores, so that each wait costs a turn of the scheduler.
const ONE_STEP_SHARED: usize = 16 << 10;
/// Plain memory goes through the mailboxes up to this length: system calls cost more.
const PLAIN_IN_MAILBOX: usize = 16 << 10;

/// The ranks of one host, for collectives among them. Rank numbers are those of the [`Group`].
///
/// Every rank runs the same operations in the same order. After an error of disagreement the group is still in step; after
/// any other it is not, and the job is over.
pub struct HostGroup {
    group: Group,
    mailboxes: Mailboxes,
    workspace: Workspace,
    /// Holds what an operation in place would overwrite too early.
    aside: Option<Buffer>,
    inputs: Vec<Data>,
    one_step: usize,
    cache_bytes: usize,
}

/// An operation with what is derived from it.
struct Call<'a> {
    operation: Operation<'a>,
    shape: Shape<'a>,
    signature: Signature,
    hash: u32,
}

impl HostGroup {
    /// Opens the mailboxes. Every rank of the group calls it.
    pub fn new(mut group: Group) -> Result<Self> {
        let mailboxes = Mailboxes::open(&mut group)?;
        let one_step = if group.cores() == Cores::Own { ONE_STEP } else { ONE_STEP_SHARED };
        Ok(HostGroup {
            group,
            mailboxes,
            workspace: Workspace::default(),
            aside: None,
            inputs: Vec::new(),
            cache_bytes: cache_bytes(),
            one_step,
        })
    }

    /// This rank's number among the ranks of the host.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// The group below, for buffers and connections.
    pub fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    /// `bytes` of zeroed memory that operations of this group use without copying; see [`Group::alloc`].
    pub fn alloc(&mut self, bytes: usize) -> Result<Buffer> {
        self.group.alloc(bytes)
    }

    /// Runs an operation among the ranks of the host, and returns when this rank's part is done: its result is there, and
    /// nobody uses its buffers any more. Hypercube is an all-gather here; its number of ranks need not be a power of two.
    ///
    /// Ranks that call with different operations all get an error that names the rank which differs, and how.
    pub fn run(&mut self, operation: &Operation<'_>) -> Result<()> {
        let (operation, signature) = (*operation, Signature::of(operation));
        let shape = Shape::of(&operation, self.size());
        let call = Call { operation, shape, signature, hash: signature.hash() };
        self.mailboxes.next();
        if let Err(error) = operation.check(self.size()) {
            // Shown to the peers all the same, for they wait for this rank.
            self.mailboxes.raise_flag(&call.signature, call.hash);
            self.agree(&call)?;
            return Err(error);
        }
        operation.check_shape(&call.shape, self.rank())?;
        let (longest, pieces) = (call.shape.longest(), if call.shape.personal() { self.size() } else { 1 });
        if longest.saturating_mul(pieces) <= self.one_step {
            self.one_step(&call, 0, longest)?;
        } else {
            self.by_announcement(call)?;
        }
        self.group.cancellation().advance();
        Ok(())
    }

    /// Waits for all ranks, and fails on each if they disagree.
    #[inline]
    fn agree(&self, call: &Call<'_>) -> Result<()> {
        if self.mailboxes.wait_for_all(&self.group, call.hash)? {
            return Ok(());
        }
        let what = disagreement(&self.mailboxes.signatures());
        Err(Error::Config(what.unwrap_or_else(|| "the ranks run different operations".into())))
    }

    /// Moves bytes `from..to` of every piece through the mailboxes.
    fn one_step(&mut self, call: &Call<'_>, from: usize, to: usize) -> Result<()> {
        let (shape, rank, size) = (&call.shape, self.rank(), self.size());
        let stride = to - from;
        let room = stride * if shape.personal() { size } else { 1 };
        let part = |bytes: usize| bytes.min(to).saturating_sub(from);
        let own = self.mailboxes.data(rank, room);
        let post = |taker: usize, at: usize| {
            let Some(piece) = shape.piece(rank, taker) else { return false };
            own.skip(at).write(call.operation.send.skip(piece.from + from).take(part(piece.bytes)));
            true
        };
        if shape.personal() {
            for taker in 0..size {
                post(taker, taker * stride);
            }
        } else {
            (0..size).any(|taker| post(taker, 0));
        }
        self.mailboxes.raise_flag(&call.signature, call.hash);
        self.agree(call)?;
        let offset = if shape.personal() { rank * stride } else { 0 };
        let posted = |giver| self.mailboxes.data(giver, room).data().skip(offset);
        if shape.reduces() {
            if let Some(piece) = shape.piece(rank, rank) {
                let kept = call.operation.send.skip(piece.from + from);
                self.inputs.clear();
                self.inputs.extend((0..size).map(|giver| if giver == rank { kept } else { posted(giver) }));
                let out = call.operation.receive.skip(piece.to + from);
                let Operation { datatype, redop, .. } = call.operation;
                let count = part(piece.bytes) / call.operation.element();
                combine(&[out], &self.inputs, count, datatype, redop, size, Store::Cached);
            }
            return Ok(());
        }
        for giver in 0..size {
            let Some(piece) = shape.piece(giver, rank) else { continue };
            let out = call.operation.receive.skip(piece.to + from);
            let kept = giver == rank && !shape.personal();
            let source = if kept { call.operation.send.skip(piece.from + from) } else { posted(giver) };
            out.write(source.take(part(piece.bytes)));
        }
        Ok(())
    }

    /// Announces where this rank's buffers are, then works on all ranks' buffers, or on the mailboxes piece by piece.
    fn by_announcement(&mut self, mut call: Call<'_>) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let shape = call.shape;
        let (send_bytes, receive_bytes) = (shape.send_bytes(rank), shape.receive_bytes(rank));
        if shape.collides_in_place() && overlap(&call.operation, send_bytes, receive_bytes) {
            let aside = self.put_aside(send_bytes)?;
            copy(&[aside], call.operation.send.take(send_bytes), Store::Cached);
            call.operation.send = aside.data();
        }
        let name = |pointer, bytes| if bytes == 0 { Ok(Named::NOTHING) } else { self.group.name(pointer, bytes) };
        let send = name(call.operation.send.as_ptr(), send_bytes)?;
        let receive = name(call.operation.receive.as_ptr().cast_const(), receive_bytes)?;
        self.mailboxes.announce(Announcement { send, receive });
        self.mailboxes.raise_flag(&call.signature, call.hash);
        self.agree(&call)?;
        let all: Vec<Announcement> = (0..size).map(|rank| self.mailboxes.announced(rank)).collect();
        let in_windows = all.iter().all(|one| ![one.send.window, one.receive.window].contains(&Named::PLAIN));
        let (longest, pieces) = (shape.longest(), if shape.personal() { size } else { 1 });
        let by_system_call = self.group.cross_memory() && longest.saturating_mul(pieces) > PLAIN_IN_MAILBOX;
        if in_windows || by_system_call {
            let footprint: usize = (0..size).map(|rank| shape.send_bytes(rank) + shape.receive_bytes(rank)).sum();
            let store = Store::of(footprint, self.cache_bytes);
            let mut direct = Direct::new(&self.group, &call.operation, shape, &all, &mut self.workspace, store)?;
            direct.run()?;
            self.mailboxes.done();
            return self.mailboxes.wait_until_done(&self.group);
        }
        // A multiple of every element's size.
        let step = (ROOM / pieces) & !63;
        let step = if step == 0 { call.operation.element() } else { step };
        for from in (0..longest).step_by(step) {
            self.mailboxes.next();
            self.one_step(&call, from, longest.min(from + step))?;
            self.group.cancellation().advance();
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn shrink_cache(&mut self, bytes: usize) {
        self.cache_bytes = bytes;
    }

    fn put_aside(&mut self, bytes: usize) -> Result<Room> {
        if self.aside.as_ref().is_none_or(|aside| aside.len() < bytes) {
            self.aside = None;
            self.aside = Some(self.group.alloc(bytes)?);
        }
        // SAFETY: the buffer stays until a longer one is asked for, in a later operation, or the group ends.
        let room = |aside: &Buffer| unsafe { Room::new(aside.as_ptr(), aside.len()) };
        Ok(self.aside.as_ref().map_or(Room::NONE, room))
    }
}

fn overlap(operation: &Operation<'_>, send_bytes: usize, receive_bytes: usize) -> bool {
    let (send, receive) = (operation.send.as_ptr() as usize, operation.receive.as_ptr() as usize);
    send < receive + receive_bytes && receive < send + send_bytes
}
