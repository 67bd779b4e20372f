//! Connections between the ranks of a communicator, made when an algorithm first uses them.

use crate::mesh::{Mesh, Request};
use crate::{Data, Room};
use busbw_transport::wait::Cores;
use busbw_transport::{Cancellation, Receiver, Request as Number, Result, Sender, Waiter};
use std::collections::VecDeque;
use std::sync::Arc;

/// Makes connections; never waits.
pub trait Connector {
    /// Takes a step towards a connection to `peer` on `lane`; `Some` when it stands.
    fn connect(&mut self, peer: usize, lane: usize) -> Result<Option<Box<dyn Sender>>>;

    /// Takes in what others have connected; `Some` when the connection from `peer` on `lane` is among it.
    fn accept(&mut self, peer: usize, lane: usize) -> Result<Option<Box<dyn Receiver>>>;
}

/// The ranks of a communicator as a [`Mesh`].
pub struct Links<C> {
    rank: usize,
    size: usize,
    lanes: usize,
    connector: C,
    links: Vec<Link>,
    senders: Vec<Option<u32>>,
    receivers: Vec<Option<u32>>,
    /// Links with requests under way: whoever waits moves them all.
    busy: Vec<u32>,
    scratch: Scratch,
    cancel: Arc<Cancellation>,
    cores: Cores,
}

struct Link {
    end: End,
    /// Posted, but not yet handed to the connection: it does not stand yet, or has too many requests under way.
    kept: VecDeque<Post>,
    posted: u64,
    done: u64,
    busy: bool,
}

enum End {
    Send(Box<dyn Sender>),
    Receive(Box<dyn Receiver>),
    /// A connection to a peer that the peer has not let in yet, on a lane. Nobody waits for it: the peer may itself be waiting
    /// for what this rank has still to send to a third.
    Connecting {
        peer: usize,
        lane: usize,
    },
    /// A peer that has not yet connected on a lane; for the same reason, nobody waits for it.
    Awaited {
        peer: usize,
        lane: usize,
    },
}

/// A posted send or receive.
#[derive(Clone, Copy)]
enum Post {
    Send(Data),
    Receive(Room),
}

/// The tag of every message: order within a connection is all that algorithms need.
const TAG: u32 = 0;

impl Link {
    fn new(end: End) -> Self {
        Link { end, kept: VecDeque::new(), posted: 0, done: 0, busy: false }
    }

    /// Hands to the connection what it takes of the posts kept, in order.
    fn hand_over(&mut self) -> Result<()> {
        while let Some(post) = self.kept.front() {
            let taken = match (&mut self.end, *post) {
                // SAFETY: the bytes are there until the operation is done, or this link dropped; the algorithm that posted
                // them leaves them alone until the request is done.
                (End::Send(sender), Post::Send(data)) => unsafe { sender.isend(data.as_ptr(), data.len(), TAG)? },
                (End::Receive(receiver), Post::Receive(room)) => {
                    // SAFETY: as above.
                    unsafe { receiver.irecv(room.as_ptr(), room.len(), TAG)? }
                }
                _ => None,
            };
            if taken.is_none() {
                return Ok(());
            }
            self.kept.pop_front();
        }
        Ok(())
    }

    fn test(&mut self, number: u64) -> Result<bool> {
        if number < self.done {
            return Ok(true);
        }
        self.hand_over()?;
        let handed = self.posted - self.kept.len() as u64;
        // A request that waits here for room in the transport gets it once the last one handed over is done.
        let Some(last) = handed.checked_sub(1).map(|last| last.min(number)) else { return Ok(false) };
        let size = match &mut self.end {
            End::Send(sender) => sender.test(Number(last))?,
            End::Receive(receiver) => receiver.test(Number(last))?,
            End::Connecting { .. } | End::Awaited { .. } => None,
        };
        if size.is_some() {
            self.done = last + 1;
        }
        Ok(number < self.done)
    }
}

impl<C: Connector> Links<C> {
    /// Links of rank `rank` of `size`, with `lanes` connections between two ranks; none is made yet.
    pub fn new(rank: usize, size: usize, lanes: usize, connector: C, cancel: Arc<Cancellation>, cores: Cores) -> Self {
        Links {
            rank,
            size,
            lanes,
            connector,
            links: Vec::new(),
            senders: vec![None; size * lanes],
            receivers: vec![None; size * lanes],
            busy: Vec::new(),
            scratch: Scratch::default(),
            cancel,
            cores,
        }
    }

    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// What makes the connections, to change it.
    pub fn connector_mut(&mut self) -> &mut C {
        &mut self.connector
    }

    fn sender(&mut self, peer: usize, lane: usize) -> Result<u32> {
        let slot = peer * self.lanes + lane;
        if let Some(index) = self.senders[slot] {
            return Ok(index);
        }
        let index = match self.connector.connect(peer, lane)? {
            Some(sender) => self.add(End::Send(sender)),
            None => self.add(End::Connecting { peer, lane }),
        };
        self.senders[slot] = Some(index);
        Ok(index)
    }

    fn receiver(&mut self, peer: usize, lane: usize) -> Result<u32> {
        let slot = peer * self.lanes + lane;
        if let Some(index) = self.receivers[slot] {
            return Ok(index);
        }
        let index = match self.connector.accept(peer, lane)? {
            Some(receiver) => self.add(End::Receive(receiver)),
            None => self.add(End::Awaited { peer, lane }),
        };
        self.receivers[slot] = Some(index);
        Ok(index)
    }

    fn add(&mut self, end: End) -> u32 {
        self.links.push(Link::new(end));
        self.links.len() as u32 - 1
    }

    /// Repeats `step` until it gives something, moving what is under way in between.
    fn until<T>(&mut self, mut step: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<T> {
        let cancel = Arc::clone(&self.cancel);
        let mut waiter = Waiter::new(&cancel, self.cores);
        loop {
            if let Some(found) = step(self)? {
                return Ok(found);
            }
            self.move_all()?;
            waiter.pause()?;
        }
    }

    /// Gives every link with requests under way a chance to move bytes.
    fn move_all(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(&index) = self.busy.get(at) {
            let link = &mut self.links[index as usize];
            let made = match link.end {
                End::Connecting { peer, lane } => self.connector.connect(peer, lane)?.map(End::Send),
                End::Awaited { peer, lane } => self.connector.accept(peer, lane)?.map(End::Receive),
                _ => None,
            };
            if let Some(end) = made {
                link.end = end;
            }
            if link.test(link.posted - 1)? {
                link.busy = false;
                self.busy.swap_remove(at);
                self.cancel.advance();
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn post(&mut self, index: u32, post: Post) -> Result<Request> {
        let link = &mut self.links[index as usize];
        let number = link.posted;
        link.posted += 1;
        link.kept.push_back(post);
        link.hand_over()?;
        if !link.busy {
            link.busy = true;
            self.busy.push(index);
        }
        Ok(Request { connection: index, number })
    }
}

impl<C: Connector> Mesh for Links<C> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn send(&mut self, peer: usize, lane: usize, data: Data) -> Result<Request> {
        let index = self.sender(peer, lane)?;
        self.post(index, Post::Send(data))
    }

    fn receive(&mut self, peer: usize, lane: usize, room: Room) -> Result<Request> {
        let index = self.receiver(peer, lane)?;
        self.post(index, Post::Receive(room))
    }

    fn test(&mut self, request: Request) -> Result<bool> {
        if self.links[request.connection as usize].test(request.number)? {
            self.cancel.advance();
            return Ok(true);
        }
        self.move_all()?;
        self.links[request.connection as usize].test(request.number)
    }

    fn wait(&mut self, request: Request) -> Result<()> {
        let index = request.connection as usize;
        self.until(|links| Ok(links.links[index].test(request.number)?.then_some(())))
    }

    fn pause(&mut self) -> Result<()> {
        std::thread::yield_now();
        self.cancel.check()
    }

    fn scratch(&mut self, len: usize) -> Room {
        self.scratch.room(len)
    }
}

/// Memory for chunks on their way, in cache lines so that it is aligned to one.
#[derive(Default)]
struct Scratch {
    lines: Vec<Line>,
    /// What was outgrown: after an operation that failed, a transport may still write there. Together no larger than `lines`.
    outgrown: Vec<Vec<Line>>,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code)] [u8; 64]);

impl Scratch {
    fn room(&mut self, len: usize) -> Room {
        let lines = len.div_ceil(64);
        if self.lines.len() < lines {
            let more = lines.max(2 * self.lines.len());
            let outgrown = std::mem::replace(&mut self.lines, vec![Line([0; 64]); more]);
            self.outgrown.push(outgrown);
        }
        // SAFETY: the lines are there until the links are dropped, and used through this alone.
        unsafe { Room::new(self.lines.as_mut_ptr().cast(), 64 * self.lines.len()) }
    }
}
