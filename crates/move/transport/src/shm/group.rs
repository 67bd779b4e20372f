//! The ranks of one host and the memory they show each other.

use super::control::Control;
use super::cross::{self, Attachable, Way};
use super::join;
use super::link::{FREED_AT_ONCE, Link, Message, Peer};
use super::memory::Mapping;
use super::preferred_core::{PreferredCore, current_core};
use super::receiver::RecvComm;
use super::sender::SendComm;
use super::socket;
use super::watch::{Watch, Watched};
use super::windows::{Buffer, Named, Reached, Registry, Window};
use crate::wait::Cores;
use crate::{Cancellation, Error, Exchange, Result, Token, Waiter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// After this many pauses, a wait looks for why it takes so long.
const LONG_WAIT: u32 = 256;
/// After this many pauses, it may be that the peer cannot send before this rank has read.
const VERY_LONG_WAIT: u32 = 16384;

/// The ranks of one host. Rank numbers here are those of the exchange by which they joined.
pub struct Group {
    shared: Arc<Shared>,
}

/// What a rank's group and its connections share.
pub(super) struct Shared {
    rank: usize,
    size: usize,
    cancel: Arc<Cancellation>,
    cores: Cores,
    preferred_core: Option<PreferredCore>,
    own: Control,
    registry: Arc<Registry>,
    peers: Vec<Option<Peer>>,
    cross_memory: AtomicBool,
    /// Only held, as long as there is cross memory.
    attachable: Mutex<Option<Attachable>>,
    /// Only held: ends with the group.
    watch: Option<Watch>,
}

/// Memory of every rank of a group, mapped by all: part `r` is rank `r`'s own. See [`Group::board`].
pub struct Board {
    parts: Vec<Mapping>,
}

impl Board {
    /// The first byte of rank `rank`'s part, aligned to a page.
    pub fn part(&self, rank: usize) -> *mut u8 {
        self.parts[rank].address()
    }

    /// How many ranks have a part.
    pub fn size(&self) -> usize {
        self.parts.len()
    }
}

impl Group {
    /// Joins the ranks of this host, which `exchange` connects, and nobody else: a connection that does not come from this
    /// user's processes or does not hold `token` is dropped. Every rank calls it.
    ///
    /// A peer whose process ends without dropping its group triggers `cancel`. `cores` says how this
    /// group's waits wait: [`Cores::Shared`] if any rank says so.
    pub fn join(exchange: &mut dyn Exchange, token: Token, cancel: Arc<Cancellation>, cores: Cores) -> Result<Group> {
        let (rank, size) = (exchange.rank(), exchange.size());
        let own = Control::create(size)?;
        let peers = join::meet(exchange, token, &cancel, &own)?;
        let (works, attachable) = join::cross_memory(exchange, &own, &peers)?;
        let (cross_memory, attachable) = (AtomicBool::new(works), Mutex::new(attachable));
        let shared = exchange.all_gather(&[u8::from(cores == Cores::Shared)])?.iter().any(|shared| shared != &[0]);
        let cores = if shared { Cores::Shared } else { Cores::Own };
        let watched = |peer: &Peer| Watched {
            name: peer.name.clone(),
            socket: Arc::clone(&peer.socket),
            control: Arc::clone(&peer.control),
            gone: Arc::clone(&peer.gone),
        };
        let watch = Some(Watch::start(peers.iter().flatten().map(watched).collect(), Arc::clone(&cancel))?);
        let (preferred_core, registry) = (PreferredCore::of(rank), Arc::default());
        if let Some(preferred) = &preferred_core {
            preferred.move_there();
        }
        let shared =
            Shared { rank, size, cancel, cores, preferred_core, own, registry, peers, cross_memory, attachable, watch };
        Ok(Group { shared: Arc::new(shared) })
    }

    /// This rank's number among the ranks of the host.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks this host has.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// How this group's waits wait; the same on all ranks.
    pub fn cores(&self) -> Cores {
        self.shared.cores
    }

    /// The cancellation that ends this group's waits.
    pub fn cancellation(&self) -> &Cancellation {
        &self.shared.cancel
    }

    /// `bytes` of zeroed memory that peers will map when an operation first names it. The other ranks need not call it.
    /// Lack of memory is an error.
    pub fn alloc(&mut self, bytes: usize) -> Result<Buffer> {
        self.shared.registry.alloc(bytes, self.shared.size)
    }

    /// `bytes` of zeroed memory of each rank, mapped by all. Every rank calls it, in the same order, with the same size.
    pub fn board(&mut self, bytes: usize) -> Result<Board> {
        let shared = &self.shared;
        let own = Mapping::create(bytes)?;
        for peer in shared.others() {
            shared.tell(peer, &Message::Board(&own))?;
        }
        let mut own = Some(own);
        let mut parts = Vec::with_capacity(shared.size);
        for rank in 0..shared.size {
            let part = match own.take_if(|_| rank == shared.rank) {
                Some(own) => own,
                None => shared.expect(rank, |link| link.boards.pop_front())?,
            };
            if part.bytes() < bytes {
                let what = format!("a board of {} bytes instead of {bytes}", part.bytes());
                return Err(Error::Protocol { peer: shared.name(rank), what });
            }
            parts.push(part);
        }
        Ok(Board { parts })
    }

    /// A connection in each direction between this rank and `peer`, who calls it as well, in the same order of its calls
    /// for this pair.
    pub fn connect(&mut self, peer: usize) -> Result<(SendComm, RecvComm)> {
        if peer >= self.size() || peer == self.rank() {
            let (rank, size) = (self.rank(), self.size());
            return Err(Error::Config(format!("local rank {rank} of {size} cannot be connected to local rank {peer}")));
        }
        let sender = SendComm::open(&self.shared, peer)?;
        let theirs = self.shared.expect(peer, |link| link.channels.pop_front())?;
        Ok((sender, RecvComm::open(&self.shared, peer, theirs)?))
    }

    /// Whether the ranks can copy from each other's plain memory by system call; the same on all ranks.
    pub fn cross_memory(&self) -> bool {
        self.shared.cross_memory()
    }

    /// Does without system calls on each other's memory from now on. Every rank calls it, before it connects to peers or
    /// runs an operation.
    pub fn refuse_cross_memory(&mut self) {
        self.shared.cross_memory.store(false, Ordering::Relaxed);
        *self.shared.attachable.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The name of `bytes` at `pointer` for all peers, which first learn of its window if they do not know it yet.
    pub fn name(&self, pointer: *const u8, bytes: usize) -> Result<Named> {
        self.shared.name_for(pointer, bytes, None)
    }

    /// Where the `bytes` that `peer` named lie in this process; `None` for plain memory.
    pub fn reach(&self, peer: usize, named: Named, bytes: usize) -> Result<Option<Reached>> {
        self.shared.reach(peer, named, bytes)
    }

    /// Copies `len` bytes at `address` in `peer`'s plain memory to `to`.
    ///
    /// # Safety
    /// `to` has room for `len` bytes, and nobody writes to either meanwhile.
    pub unsafe fn read(&self, peer: usize, address: u64, to: *mut u8, len: usize) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.shared.cross(Way::FromPeer, peer, address, to, len) }
    }

    /// Copies `len` bytes from `from` to `address` in `peer`'s plain memory.
    ///
    /// # Safety
    /// `len` bytes at `from` can be read, and nobody uses those of the peer meanwhile.
    pub unsafe fn write(&self, peer: usize, address: u64, from: *const u8, len: usize) -> Result<()> {
        // SAFETY: handed on; this way the local bytes are only read.
        unsafe { self.shared.cross(Way::ToPeer, peer, address, from.cast_mut(), len) }
    }

    /// Waits until `ready`, which `peer` will bring about. Fails when the job is cancelled or the peer has ended.
    #[inline]
    pub fn wait_for(&self, peer: usize, mut ready: impl FnMut() -> bool) -> Result<()> {
        if ready() { Ok(()) } else { self.shared.wait_for(peer, ready) }
    }
}

impl Shared {
    #[cfg(fuzzing)]
    pub(super) fn alone(own: Control, peers: Vec<Option<Peer>>, cancel: Arc<Cancellation>, cross_memory: bool) -> Self {
        let (size, cross_memory) = (peers.len(), AtomicBool::new(cross_memory));
        let (cores, registry, attachable) = (Cores::Shared, Arc::default(), Mutex::new(None));
        let preferred_core = None;
        Shared {
            rank: 0,
            size,
            cancel,
            cores,
            preferred_core,
            own,
            registry,
            peers,
            cross_memory,
            attachable,
            watch: None,
        }
    }

    pub(super) fn cancellation(&self) -> &Cancellation {
        &self.cancel
    }

    pub(super) fn cross_memory(&self) -> bool {
        self.cross_memory.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self, rank: usize) -> String {
        self.peers[rank].as_ref().map_or_else(|| format!("local rank {rank}"), |peer| peer.name.clone())
    }

    pub(super) fn peer(&self, rank: usize) -> Result<&Peer> {
        let peer = self.peers.get(rank).and_then(Option::as_ref);
        peer.ok_or_else(|| Error::Config(format!("local rank {rank} is not a peer of local rank {}", self.rank)))
    }

    /// Whether the process of `peer` has ended; `Err` when the job is cancelled.
    pub(super) fn has_ended(&self, peer: usize) -> Result<bool> {
        self.cancel.check()?;
        Ok(self.peer(peer)?.gone.load(Ordering::Acquire))
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank;
        (0..self.size).filter(move |peer| *peer != rank)
    }

    /// Sends a message. Where a peer has too many unread, takes what has come meanwhile, for it may be waiting likewise.
    pub(super) fn tell(&self, peer: usize, message: &Message<'_>) -> Result<()> {
        let to = self.peer(peer)?;
        let mut waiter = Waiter::new(&self.cancel, Cores::Shared);
        while !to.send(self.own.posted(peer), message)? {
            self.catch_up()?;
            waiter.pause()?;
        }
        Ok(())
    }

    fn catch_up(&self) -> Result<()> {
        for peer in self.peers.iter().flatten() {
            peer.catch_up(&mut peer.lock(), self.rank)?;
        }
        Ok(())
    }

    /// Waits for what `peer` sends, until `take` finds it.
    pub(super) fn expect<T>(&self, peer: usize, take: impl Fn(&mut Link) -> Option<T>) -> Result<T> {
        let from = self.peer(peer)?;
        loop {
            // Asked before reading: what a peer sent before it ended still counts.
            let ended = from.gone.load(Ordering::Acquire);
            let mut link = from.lock();
            from.catch_up(&mut link, self.rank)?;
            if let Some(found) = take(&mut link) {
                return Ok(found);
            }
            drop(link);
            self.cancel.check()?;
            if ended {
                return Err(Error::Closed { peer: from.name.clone() });
            }
            socket::wait_readable(&from.socket, 10);
        }
    }

    /// Names memory to all peers, or to `only` one.
    pub(super) fn name_for(&self, pointer: *const u8, bytes: usize, only: Option<usize>) -> Result<Named> {
        let mut state = self.registry.lock();
        let freed = std::mem::take(&mut state.freed);
        let plain = Named { window: Named::PLAIN, offset: pointer as u64 };
        let mut untold = Vec::new();
        let mut named = plain;
        if let Some(window) = state.holding(pointer, bytes) {
            let offset = pointer as usize - window.mapping.address() as usize;
            named = Named { window: window.id, offset: offset as u64 };
            for peer in only.map_or(0..self.size, |peer| peer..peer + 1).filter(|peer| *peer != self.rank) {
                if !std::mem::replace(&mut window.told[peer], true) {
                    untold.push((peer, Arc::clone(&window.mapping)));
                }
            }
        }
        drop(state);
        for (peer, mapping) in untold {
            self.tell(peer, &Message::Window(named.window, &mapping))?;
        }
        if !freed.is_empty() {
            self.tell_freed(&freed)?;
        }
        Ok(named)
    }

    fn tell_freed(&self, freed: &[Window]) -> Result<()> {
        for peer in self.others() {
            let ids: Vec<u64> = freed.iter().filter(|window| window.told[peer]).map(|window| window.id).collect();
            for ids in ids.chunks(FREED_AT_ONCE) {
                self.tell(peer, &Message::Freed(ids))?;
            }
        }
        Ok(())
    }

    /// See [`Group::reach`].
    pub(super) fn reach(&self, peer: usize, named: Named, bytes: usize) -> Result<Option<Reached>> {
        if named.window == Named::PLAIN {
            return Ok(None);
        }
        let owner = self.peer(peer)?;
        let mut link = owner.lock();
        owner.catch_up(&mut link, self.rank)?;
        let place = link.window(named.window).and_then(|mapping| Reached::within(mapping, named.offset, bytes));
        let strange = || Error::Protocol {
            peer: owner.name.clone(),
            what: format!("{bytes} bytes at {} of window {} that are not there", named.offset, named.window),
        };
        place.map(Some).ok_or_else(strange)
    }

    /// # Safety
    /// That of [`cross::move_bytes`].
    pub(super) unsafe fn cross(&self, way: Way, peer: usize, address: u64, local: *mut u8, len: usize) -> Result<()> {
        let peer = self.peer(peer)?;
        // SAFETY: handed on.
        unsafe { cross::move_bytes(way, peer.process, &peer.name, local, address, len) }
    }

    #[cold]
    fn wait_for(&self, rank: usize, mut ready: impl FnMut() -> bool) -> Result<()> {
        let peer = self.peer(rank)?;
        let mut waiter = Waiter::new(&self.cancel, self.cores);
        let mut pauses = 0_u32;
        while !ready() {
            waiter.pause()?;
            pauses = pauses.wrapping_add(1);
            if pauses.is_multiple_of(LONG_WAIT) {
                if peer.gone.load(Ordering::Acquire) && !ready() {
                    return Err(Error::Closed { peer: peer.name.clone() });
                }
                self.part_from(peer);
            }
            if pauses.is_multiple_of(VERY_LONG_WAIT) {
                self.catch_up()?;
            }
        }
        Ok(())
    }

    /// Leaves the core if `peer` waits on it as well, where ranks are to have their own.
    fn part_from(&self, peer: &Peer) {
        if let (Some(preferred), Cores::Own) = (&self.preferred_core, self.cores) {
            let core = current_core();
            self.own.core().store(core, Ordering::Relaxed);
            preferred.part_from(core, peer.control.core().load(Ordering::Relaxed));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.own.left().store(1, Ordering::Release);
        // The thread holds the sockets too, and they are to close after the mark above.
        self.watch = None;
    }
}
