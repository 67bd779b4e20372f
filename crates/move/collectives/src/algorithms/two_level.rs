//! Two levels: within each host, between the hosts by rail (among ranks of equal local number), within each host again.
//! Every rank of a host sends its own part, so that all NICs work at once, and only 1 / k of the data per rank leaves it.

use super::chunks::{Cut, SHRINK, Split};
use super::flow::Flow;
use super::plan::Plan;
use super::ring::{RingScope, ring_flow};
use super::{Layout, binomial, doubling, ring};
use crate::Operation;
use crate::mesh::{Mesh, Request};
use crate::{Data, Room};
use busbw_model::{Collective, RedOp};
use busbw_transport::{Error, Result};

/// Collectives among the ranks of one host.
pub(crate) trait HostCollectives {
    /// Carries out `op` among the ranks of this host, numbered by their local number.
    fn run(&mut self, op: &Operation<'_>) -> Result<()>;
}

/// Bytes up to which every rank sends all of the data on its own rail: fewer steps within the host.
const SMALL_BYTES: usize = (32 << 10) >> SHRINK;

/// Bytes of a rank's part of a segment: while one is between the hosts, the next is reduced within them.
const PART_BYTES: usize = (1 << 20) >> SHRINK;

/// Both levels as one rank sees them.
struct Levels<'a, M: ?Sized> {
    host: &'a mut dyn HostCollectives,
    rails: &'a mut M,
    /// This rank's number on its host, and how many ranks each host has.
    local: usize,
    locals: usize,
    ranks: usize,
    /// The root's number among the hosts and on its host.
    root_host: usize,
    root_local: usize,
}

/// Carries out `op` as rank `rank` of `layout`. `rails` are the ranks with this one's local number, by host: its rank numbers
/// are the hosts'. For all-reduce, broadcast and reduce on any layout with two levels ([`Layout::has_two_levels`]), for
/// all-gather and reduce-scatter where ranks are numbered host by host; anything else is an error, see [`super::choose`].
pub(crate) fn two_level<M: Mesh + ?Sized>(
    layout: &Layout,
    rank: usize,
    host: &mut dyn HostCollectives,
    rails: &mut M,
    op: &Operation<'_>,
) -> Result<()> {
    let locals = layout.ranks_per_host().filter(|_| layout.has_two_levels());
    let in_blocks = matches!(op.collective, Collective::AllGather | Collective::ReduceScatter);
    let Some(locals) = locals.filter(|_| !in_blocks || layout.is_by_host()) else {
        return Err(impossible(op.collective, layout));
    };
    op.check(layout.ranks())?;
    op.check_buffers(rank, layout.ranks())?;
    let root = layout.host_rank(if op.collective.has_root() { op.root } else { 0 });
    let mut levels = Levels {
        host,
        rails,
        local: layout.host_rank(rank).local,
        locals,
        ranks: layout.ranks(),
        root_host: root.host,
        root_local: root.local,
    };
    match op.collective {
        Collective::AllReduce => levels.all_reduce(op),
        Collective::AllGather => levels.all_gather(op),
        Collective::ReduceScatter => levels.reduce_scatter(op),
        Collective::Broadcast => levels.broadcast(op),
        Collective::Reduce => levels.reduce(op),
        other => Err(impossible(other, layout)),
    }
}

fn impossible(collective: Collective, layout: &Layout) -> Error {
    Error::Config(format!(
        "{} cannot go by two levels on {} ranks of {} hosts; it takes several hosts with several ranks each, equally many",
        collective.name(),
        layout.ranks(),
        layout.hosts()
    ))
}

/// `op` on `count` elements from element `start` on.
fn part<'a>(op: &Operation<'a>, start: usize, count: usize) -> Operation<'a> {
    let offset = start * op.element();
    Operation { count, send: op.send.skip(offset), receive: op.receive.skip(offset), ..*op }
}

/// `op` within the host: an average is divided only at the end of the last level.
fn within<'a>(op: &Operation<'a>, collective: Collective) -> Operation<'a> {
    let redop = if op.redop == RedOp::Avg { RedOp::Sum } else { op.redop };
    Operation { collective, redop, ..*op }
}

impl<M: Mesh + ?Sized> Levels<'_, M> {
    /// Elements of a segment, a multiple of the ranks of a host, and the whole segments that `op` has.
    fn segments(&self, op: &Operation) -> (Split, usize) {
        let parts = op.count / self.locals;
        let whole = if op.bytes() <= SMALL_BYTES { 0 } else { parts * self.locals };
        let segments = (parts * op.element()).div_ceil(PART_BYTES).max(1);
        (Split::new(whole, segments, self.locals), segments)
    }

    fn all_reduce(&mut self, op: &Operation) -> Result<()> {
        let (split, segments) = self.segments(op);
        let over = RingScope { ranks: self.ranks, stride: 0 };
        let mut under_way: Option<(Operation, Flow<_>)> = None;
        for number in 0..segments {
            let range = split.range(number);
            let segment = part(op, range.start, range.count);
            let own = self.scattered(&segment)?;
            if let Some((before, mut flow)) = under_way.take() {
                Flow::finish(&mut flow, self.rails)?;
                under_way = Some(self.begin(segment, own, over)?);
                self.gathered(&before)?;
            } else {
                under_way = Some(self.begin(segment, own, over)?);
            }
        }
        if let Some((last, mut flow)) = under_way {
            flow.finish(self.rails)?;
            self.gathered(&last)?;
        }
        let done = split.ranges(0, segments).count;
        self.all_reduce_small(&part(op, done, op.count - done))
    }

    /// Begins the all-reduce between hosts of this rank's part `own` of `segment`.
    fn begin<'a>(
        &mut self,
        segment: Operation<'a>,
        own: Operation<'a>,
        over: RingScope,
    ) -> Result<(Operation<'a>, Flow<impl Plan + use<M>>)> {
        let mut flow = ring_flow(self.rails, &own, over);
        flow.poll(self.rails)?;
        Ok((segment, flow))
    }

    /// Reduces `segment` within the host, each rank its part: the part, in place.
    fn scattered<'a>(&mut self, segment: &Operation<'a>) -> Result<Operation<'a>> {
        let count = segment.count / self.locals;
        let receive = segment.receive.skip(self.local * count * segment.element());
        if count > 0 {
            let op = Operation { count, receive, ..within(segment, Collective::ReduceScatter) };
            self.host.run(&op)?;
        }
        Ok(Operation { count, send: receive.data(), receive, ..*segment })
    }

    /// Puts together the parts of `segment` within the host.
    fn gathered(&mut self, segment: &Operation) -> Result<()> {
        let count = segment.count / self.locals;
        if count == 0 {
            return Ok(());
        }
        let send = segment.receive.skip(self.local * count * segment.element()).data();
        self.host.run(&Operation { count, send, ..within(segment, Collective::AllGather) })
    }

    fn all_reduce_small(&mut self, op: &Operation) -> Result<()> {
        if op.count == 0 {
            return Ok(());
        }
        self.host.run(&within(op, Collective::AllReduce))?;
        doubling::all_reduce(self.rails, &Operation { send: op.receive.data(), ..*op }, self.ranks)
    }

    fn all_gather(&mut self, op: &Operation) -> Result<()> {
        let bytes = op.bytes();
        let row = self.locals * bytes;
        let own_host = self.rails.rank();
        let between = Operation { receive: op.receive.skip(self.local * bytes), ..*op };
        let over = RingScope { ranks: self.ranks, stride: self.locals * op.count };
        let mut flow = ring_flow(self.rails, &between, over);
        flow.poll(self.rails)?;
        // This host's own blocks are gathered while those of other hosts are arriving.
        self.host.run(&Operation { receive: op.receive.skip(own_host * row), ..*op })?;
        flow.finish(self.rails)?;
        for host in (0..self.rails.size()).filter(|host| *host != own_host) {
            let receive = op.receive.skip(host * row);
            let send = receive.skip(self.local * bytes).data();
            self.host.run(&Operation { send, receive, ..*op })?;
        }
        Ok(())
    }

    fn reduce_scatter(&mut self, op: &Operation) -> Result<()> {
        let bytes = op.bytes();
        let hosts = self.rails.size();
        let mut rails = Reserved::new(self.rails, hosts * bytes);
        for host in 0..hosts {
            let send = op.send.skip(host * self.locals * bytes);
            let receive = rails.own.skip(host * bytes);
            self.host.run(&Operation { send, receive, ..within(op, Collective::ReduceScatter) })?;
        }
        let between = Operation { send: rails.own.data(), ..*op };
        let mut flow = ring_flow(&mut rails, &between, RingScope { ranks: self.ranks, stride: op.count });
        flow.finish(&mut rails)
    }

    fn broadcast(&mut self, op: &Operation) -> Result<()> {
        let (split, segments) = self.segments(op);
        let whole = part(op, 0, split.ranges(0, segments).count);
        let rest = part(op, whole.count, op.count - whole.count);
        let is_root_host = self.rails.rank() == self.root_host;
        if whole.count > 0 {
            let count = whole.count / self.locals;
            let receive = whole.receive.skip(self.local * count * op.element());
            if is_root_host {
                let collective = Collective::Scatter;
                self.host.run(&Operation { collective, root: self.root_local, count, receive, ..whole })?;
            }
            let own = Operation { count, root: self.root_host, send: receive.data(), receive, ..whole };
            ring::chain(self.rails, &own, 0)?;
            self.gathered(&whole)?;
        }
        if rest.count > 0 {
            let mut send = rest.receive.data();
            if self.local == self.root_local {
                binomial::broadcast(self.rails, &Operation { root: self.root_host, ..rest })?;
                send = if is_root_host { rest.send } else { send };
            }
            self.host.run(&Operation { root: self.root_local, send, ..rest })?;
        }
        Ok(())
    }

    fn reduce(&mut self, op: &Operation) -> Result<()> {
        let (split, segments) = self.segments(op);
        let done = split.ranges(0, segments).count;
        let rest = part(op, done, op.count - done);
        let is_root_host = self.rails.rank() == self.root_host;
        let room = (split.largest() / self.locals).max(rest.count) * op.element();
        let mut rails = Reserved::new(self.rails, room);
        let own = rails.own;
        for number in 0..segments {
            let range = split.range(number);
            let segment = part(op, range.start, range.count);
            let count = segment.count / self.locals;
            if count == 0 {
                continue;
            }
            self.host.run(&Operation { count, receive: own, ..within(&segment, Collective::ReduceScatter) })?;
            let between = Operation { count, root: self.root_host, send: own.data(), receive: own, ..segment };
            ring::chain(&mut rails, &between, self.ranks)?;
            if is_root_host {
                let collective = Collective::Gather;
                self.host.run(&Operation { collective, count, root: self.root_local, send: own.data(), ..segment })?;
            }
        }
        if rest.count > 0 {
            let is_root_rail = self.local == self.root_local;
            let receive = if is_root_rail { own } else { rest.receive };
            let root = self.root_local;
            self.host.run(&Operation { root, receive, ..within(&rest, Collective::Reduce) })?;
            if is_root_rail {
                let between = Operation { root: self.root_host, send: own.data(), ..rest };
                ring::chain(&mut rails, &between, self.ranks)?;
            }
        }
        Ok(())
    }
}

/// A mesh whose scratch memory begins after a part that is kept for the operation itself.
pub(super) struct Reserved<'a, M: ?Sized> {
    mesh: &'a mut M,
    pub(super) own: Room,
    rest: Room,
}

impl<'a, M: Mesh + ?Sized> Reserved<'a, M> {
    pub(super) fn new(mesh: &'a mut M, bytes: usize) -> Self {
        let kept = bytes.next_multiple_of(64);
        let whole = mesh.scratch(kept + Cut::scratch_bytes(mesh.lanes()));
        Reserved { mesh, own: whole.take(kept), rest: whole.skip(kept) }
    }
}

impl<M: Mesh + ?Sized> Mesh for Reserved<'_, M> {
    fn rank(&self) -> usize {
        self.mesh.rank()
    }

    fn size(&self) -> usize {
        self.mesh.size()
    }

    fn lanes(&self) -> usize {
        self.mesh.lanes()
    }

    fn send(&mut self, peer: usize, lane: usize, data: Data) -> Result<Request> {
        self.mesh.send(peer, lane, data)
    }

    fn receive(&mut self, peer: usize, lane: usize, room: Room) -> Result<Request> {
        self.mesh.receive(peer, lane, room)
    }

    fn test(&mut self, request: Request) -> Result<bool> {
        self.mesh.test(request)
    }

    fn wait(&mut self, request: Request) -> Result<()> {
        self.mesh.wait(request)
    }

    fn pause(&mut self) -> Result<()> {
        self.mesh.pause()
    }

    fn scratch(&mut self, len: usize) -> Room {
        self.rest.take(len)
    }
}
