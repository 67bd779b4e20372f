//! Ranks as threads, for tests: a mesh in memory that is as strict as the contract allows. A send ends only when its receive
//! is posted; messages move late and in odd orders across connections; bytes that change while they are being sent, rooms
//! that are read before they are filled and lengths that differ are found; and every wait is bounded.

use crate::mesh::{Mesh, Request};
use crate::{Data, Room};
use busbw_transport::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What lies in a room between posting and arrival.
const POISON: u8 = 0xA5;
/// How long a rank waits before a test counts as hung.
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 600 } else { 30 });

struct Sent {
    data: AtomicPtr<u8>,
    /// The bytes as they were when they were posted.
    bytes: Vec<u8>,
}

struct Posted {
    place: AtomicPtr<u8>,
    len: usize,
}

/// One direction between two ranks on one lane.
#[derive(Default)]
struct Channel {
    sent: Vec<Sent>,
    rooms: Vec<Posted>,
    delivered: usize,
}

impl Channel {
    fn deliver(&mut self) {
        let (Some(sent), Some(room)) = (self.sent.get(self.delivered), self.rooms.get(self.delivered)) else { return };
        assert_eq!(sent.bytes.len(), room.len, "a send and its receive have the same size");
        // SAFETY: the sender keeps its bytes and the receiver its room until the message is delivered.
        let (now, place) = unsafe {
            let now = std::slice::from_raw_parts(sent.data.load(Ordering::Relaxed), room.len);
            (now, std::slice::from_raw_parts_mut(room.place.load(Ordering::Relaxed), room.len))
        };
        assert!(now == sent.bytes, "bytes have changed while they were being sent");
        assert!(place.iter().all(|byte| *byte == POISON), "a room was written while a message was expected there");
        place.copy_from_slice(&sent.bytes);
        self.delivered += 1;
    }
}

/// How messages move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As soon as both sides have posted.
    Prompt,
    /// Any of those that both sides have posted, now and then, from this seed.
    Late(u64),
}

#[derive(Default)]
struct Net {
    channels: Vec<Channel>,
    index: HashMap<(usize, usize, usize), usize>,
    random: u64,
    /// A rank has failed: nobody waits for it.
    failed: bool,
}

impl Net {
    fn channel(&mut self, from: usize, to: usize, lane: usize) -> usize {
        *self.index.entry((from, to, lane)).or_insert_with(|| {
            self.channels.push(Channel::default());
            self.channels.len() - 1
        })
    }

    fn next_random(&mut self) -> usize {
        // xorshift64 (G. Marsaglia, Journal of Statistical Software 8(14), 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize
    }
}

/// One rank's end.
pub(crate) struct MemoryMesh {
    rank: usize,
    size: usize,
    lanes: usize,
    delivery: Delivery,
    net: Arc<Mutex<Net>>,
    deadline: Instant,
    scratch: Vec<u64>,
}

impl MemoryMesh {
    /// The ends of `size` ranks.
    pub(crate) fn all(size: usize, lanes: usize, delivery: Delivery) -> Vec<MemoryMesh> {
        let random = if let Delivery::Late(seed) = delivery { seed | 1 } else { 1 };
        let net = Arc::new(Mutex::new(Net { random, ..Net::default() }));
        let deadline = Instant::now() + PATIENCE;
        let end =
            |rank| MemoryMesh { rank, size, lanes, delivery, net: Arc::clone(&net), deadline, scratch: Vec::new() };
        (0..size).map(end).collect()
    }

    fn post(&self, from: usize, to: usize, lane: usize, add: impl FnOnce(&mut Channel) -> usize) -> Request {
        assert!(from < self.size && to < self.size && from != to && lane < self.lanes, "{from} to {to} on {lane}");
        let mut net = self.net.lock().unwrap();
        let index = net.channel(from, to, lane);
        let number = add(&mut net.channels[index]) as u64;
        Request { connection: index as u32, number }
    }
}

impl Drop for MemoryMesh {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut net) = self.net.lock()
        {
            net.failed = true;
        }
    }
}

impl Mesh for MemoryMesh {
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
        // SAFETY: the operation's data is readable.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), data.len()) }.to_vec();
        Ok(self.post(self.rank, peer, lane, |channel| {
            channel.sent.push(Sent { data: AtomicPtr::new(data.as_ptr().cast_mut()), bytes });
            channel.sent.len() - 1
        }))
    }

    fn receive(&mut self, peer: usize, lane: usize, room: Room) -> Result<Request> {
        // SAFETY: the operation's room is writable.
        unsafe { room.as_ptr().write_bytes(POISON, room.len()) };
        Ok(self.post(peer, self.rank, lane, |channel| {
            channel.rooms.push(Posted { place: AtomicPtr::new(room.as_ptr()), len: room.len() });
            channel.rooms.len() - 1
        }))
    }

    fn test(&mut self, request: Request) -> Result<bool> {
        let mut net = self.net.lock().map_err(|_| Error::Cancelled("another rank has failed".into()))?;
        if net.failed {
            return Err(Error::Cancelled("another rank has failed".into()));
        }
        let index = match self.delivery {
            Delivery::Prompt => request.connection as usize,
            Delivery::Late(_) => net.next_random() % net.channels.len(),
        };
        net.channels[index].deliver();
        Ok((request.number as usize) < net.channels[request.connection as usize].delivered)
    }

    fn wait(&mut self, request: Request) -> Result<()> {
        while !self.test(request)? {
            self.pause()?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        std::thread::yield_now();
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(Error::Cancelled(format!("rank {} of {} hangs", self.rank, self.size))),
        }
    }

    fn scratch(&mut self, len: usize) -> Room {
        // Room to begin at a multiple of 64 bytes.
        let words = len.div_ceil(8) + 8;
        if self.scratch.len() < words {
            self.scratch.resize(words, 0);
        }
        let start = self.scratch.as_mut_ptr().cast::<u8>();
        // SAFETY: there are as many bytes from there on, and more; rooms that were outgrown are not used again.
        unsafe { Room::new(start.wrapping_add(start.align_offset(64)), len) }
    }
}

/// Runs `body` as every rank, each in a thread of its own with what `ends` has for it; the results by rank.
pub(crate) fn as_ranks<E: Send, T: Send>(ends: Vec<E>, body: impl Fn(usize, E) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> =
            ends.into_iter().enumerate().map(|(rank, end)| scope.spawn(move || body(rank, end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
