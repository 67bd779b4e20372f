//! Rooms for messages: which are posted, which message belongs where, and how much of it is there.

use super::failure::{Failure, FirstFailure};
use super::{MOST_GROUPED, MOST_REQUESTS};
use crate::{Error, Result};
use crc32c::crc32c;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No byte of the message has come, so its size is unknown.
const UNKNOWN: usize = usize::MAX;
/// No message was found for a room.
const NOBODY: u64 = u64::MAX;

/// A posted room.
struct Slot {
    room: AtomicPtr<u8>,
    len: AtomicUsize,
    tag: AtomicU32,
    /// The rooms that were posted in one call: how many, and how many of them come before this one.
    group: AtomicUsize,
    place: AtomicUsize,
    /// Which room it is, counted in the order of posting; [`NOBODY`] while it is posted anew.
    number: AtomicU64,
    /// Which message it was found for.
    message: AtomicU64,
    /// Bytes of the message, once known.
    total: AtomicUsize,
    arrived: AtomicUsize,
    /// Which bytes of the message have come or are coming.
    claimed: Mutex<Claimed>,
}

/// Bytes of a message, as ranges from the first on that do not touch each other.
#[derive(Default)]
struct Claimed(Vec<std::ops::Range<usize>>);

impl Claimed {
    /// Adds a range; `false` where some of it is there already.
    fn add(&mut self, mut new: std::ops::Range<usize>) -> bool {
        let at = self.0.partition_point(|before| before.end < new.start);
        if self.0[at..].iter().take_while(|other| other.start < new.end).any(|other| other.end > new.start) {
            return false;
        }
        if self.0.get(at).is_some_and(|before| before.end == new.start) {
            new.start = self.0.remove(at).start;
        }
        if self.0.get(at).is_some_and(|behind| behind.start == new.end) {
            new.end = self.0.remove(at).end;
        }
        self.0.insert(at, new);
        true
    }
}

impl Slot {
    fn empty() -> Self {
        Slot {
            room: AtomicPtr::default(),
            len: AtomicUsize::new(0),
            tag: AtomicU32::new(0),
            group: AtomicUsize::new(1),
            place: AtomicUsize::new(0),
            number: AtomicU64::new(NOBODY),
            message: AtomicU64::new(NOBODY),
            total: AtomicUsize::new(UNKNOWN),
            arrived: AtomicUsize::new(0),
            claimed: Mutex::default(),
        }
    }

    fn claimed(&self) -> MutexGuard<'_, Claimed> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, number: u64, room: &GroupedRoom, group: usize, place: usize) {
        // Whoever reads the old room's fields between here and the end finds another number when he has read them.
        self.number.store(NOBODY, Ordering::Relaxed);
        fence(Ordering::Release);
        self.claimed().0.clear();
        self.room.store(room.data, Ordering::Relaxed);
        self.len.store(room.len, Ordering::Relaxed);
        self.tag.store(room.tag, Ordering::Relaxed);
        self.group.store(group, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.message.store(NOBODY, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.total.store(UNKNOWN, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }
}

/// What the threads that move one connection's bytes share.
pub(super) struct ReceiveShared {
    slots: [Slot; MOST_REQUESTS],
    /// How many rooms were posted.
    posted: AtomicU64,
    /// Bytes that have come.
    received: AtomicU64,
    /// Data sockets that the peer has closed.
    pub ended_sockets: AtomicUsize,
    pub failure: FirstFailure,
    /// Whether messages carry checksums.
    pub checked: bool,
}

impl ReceiveShared {
    fn slot(&self, message: u64) -> &Slot {
        &self.slots[message as usize % MOST_REQUESTS]
    }

    /// What a connection's receivers share before anything is posted.
    pub fn new(checked: bool) -> Self {
        ReceiveShared {
            slots: std::array::from_fn(|_| Slot::empty()),
            posted: AtomicU64::new(0),
            received: AtomicU64::new(0),
            ended_sockets: AtomicUsize::new(0),
            failure: FirstFailure::default(),
            checked,
        }
    }

    /// Posts rooms from `first` on, together.
    pub fn post(&self, first: u64, rooms: &[GroupedRoom]) {
        for (place, room) in rooms.iter().enumerate() {
            let number = first + place as u64;
            self.slot(number).post(number, room, rooms.len(), place);
        }
        // All at once: a message of the group must find every room of it.
        self.posted.store(first + rooms.len() as u64, Ordering::SeqCst);
    }

    /// Bytes that have come so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The size of the message in a room and the room's, once all of it is there.
    pub fn complete(&self, room: u64) -> Option<(usize, usize)> {
        let slot = self.slot(room);
        let total = slot.total.load(Ordering::Acquire);
        let complete = total != UNKNOWN && slot.arrived.load(Ordering::Acquire) >= total;
        complete.then(|| (total, slot.len.load(Ordering::Relaxed)))
    }

    /// Checks what the sender says of a message against the posted receive, and gives its room; `None` while none is posted.
    pub fn begin(&self, message: u64, total: usize, tag: u32) -> std::result::Result<Option<Room>, Failure> {
        let posted = self.posted.load(Ordering::Acquire);
        if message >= posted {
            return Ok(None);
        }
        if posted - message > MOST_REQUESTS as u64 {
            return Err(Failure::Protocol(format!("message {message} again")));
        }
        let again = || Failure::Protocol(format!("message {message} again"));
        let number = self.number_of_room(message, tag)?;
        let slot = self.slot(number);
        if slot.number.load(Ordering::Acquire) != number {
            return Err(again());
        }
        match slot.message.compare_exchange(NOBODY, message, Ordering::Relaxed, Ordering::Relaxed) {
            Err(other) if other != message => {
                return Err(Failure::Mismatch(format!(
                    "message {message} with tag {tag}, which message {other} has had"
                )));
            }
            _ => {}
        }
        // The caller owns the room again, so it must not be written to.
        if self.complete(number).is_some() {
            return Err(again());
        }
        let len = slot.len.load(Ordering::Relaxed);
        if total > len {
            return Err(Failure::Mismatch(format!(
                "message {message} of {total} bytes where {len} bytes were expected"
            )));
        }
        // Otherwise the message would count as complete while other chunks are still being written.
        match slot.total.compare_exchange(UNKNOWN, total, Ordering::Release, Ordering::Relaxed) {
            Err(before) if before != total => {
                return Err(Failure::Protocol(format!("message {message} of {total} bytes, and before of {before}")));
            }
            _ => {}
        }
        let data = slot.room.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // All that was read above is of this room, and not of one that was posted there meanwhile.
        if slot.number.load(Ordering::Relaxed) != number {
            return Err(again());
        }
        Ok(Some(Room { number, data }))
    }

    /// The room of a message: that of its number, or among those posted together with it the one with its tag.
    fn number_of_room(&self, message: u64, tag: u32) -> std::result::Result<u64, Failure> {
        let slot = self.slot(message);
        // The slot may be posted anew meanwhile, and have another room's place.
        let first = message.saturating_sub(slot.place.load(Ordering::Relaxed) as u64);
        let group = first..first + slot.group.load(Ordering::Relaxed) as u64;
        let tag_of = |number: u64| self.slot(number).tag.load(Ordering::Relaxed);
        group.clone().find(|&number| tag_of(number) == tag).ok_or_else(|| {
            let tags: Vec<String> = group.map(|number| tag_of(number).to_string()).collect();
            let expected = tags.join(" or ");
            Failure::Mismatch(format!("message {message} with tag {tag} where tag {expected} was expected"))
        })
    }

    /// Bytes `from..from + len` of `message` come to its `room`, for the first time: or the message would count as whole, and
    /// its room be its owner's again, while a chunk still lands there.
    pub fn claim(&self, message: u64, room: &Room, from: usize, len: usize) -> std::result::Result<(), Failure> {
        if len == 0 || self.slot(room.number).claimed().add(from..from + len) {
            return Ok(());
        }
        Err(Failure::Protocol(format!("bytes {from} to {} of message {message} twice", from + len)))
    }

    /// Bytes are in a room, and are what was sent.
    fn arrived(&self, room: u64, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.slot(room).arrived.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// A posted room, found for a message.
pub(super) struct Room {
    /// Counted from 0 in the order of posting.
    pub number: u64,
    pub data: *mut u8,
}

/// A room for one of the messages of [`super::RecvComm::irecv_group`].
#[derive(Debug, Clone, Copy)]
pub struct GroupedRoom {
    /// Start of the memory that the message is written to.
    pub data: *mut u8,
    /// Its greatest size in bytes.
    pub len: usize,
    /// The tag of the send that it meets.
    pub tag: u32,
}

/// Whether receives can be posted together.
pub(super) fn check_group(rooms: &[GroupedRoom]) -> Result<()> {
    let wrong = |why: String| Err(Error::Config(format!("receives posted together: {why}")));
    if rooms.is_empty() || rooms.len() > MOST_GROUPED {
        return wrong(format!("{} of them; 1 to {MOST_GROUPED} are possible", rooms.len()));
    }
    let repeated = rooms.iter().enumerate().find(|(at, room)| rooms[..*at].iter().any(|other| other.tag == room.tag));
    repeated.map_or(Ok(()), |(_, room)| wrong(format!("two have the tag {}", room.tag)))
}

/// Where the bytes of a message, or of a chunk of one, go.
pub(super) struct Landing {
    message: u64,
    room: u64,
    start: *const u8,
    next: *mut u8,
    missing: usize,
    sum: u32,
}

// SAFETY: the room stays writable, and unread, until the request is done (the promise of `irecv`), from whichever thread.
unsafe impl Send for Landing {}

impl Landing {
    /// `len` bytes of `message` go to `offset` of its room, and have the checksum `sum` if they have one.
    pub fn new(message: u64, room: &Room, offset: usize, len: usize, sum: u32) -> Self {
        let next = room.data.wrapping_add(offset);
        Landing { message, room: room.number, start: next, next, missing: len, sum }
    }

    /// The memory for what is missing.
    pub fn rest(&self) -> (*mut u8, usize) {
        (self.next, self.missing)
    }

    /// `bytes` more have come. Whether those were the last.
    ///
    /// # Errors
    /// [`Failure::Corrupt`] where what came is not what was sent; its request is then never done.
    pub fn land(&mut self, bytes: usize, shared: &ReceiveShared) -> std::result::Result<bool, Failure> {
        self.next = self.next.wrapping_add(bytes);
        self.missing -= bytes;
        let complete = self.missing == 0;
        if complete && shared.checked {
            let len = self.next as usize - self.start as usize;
            // SAFETY: all of these bytes were written, and nobody writes there until the request is done.
            let landed = unsafe { std::slice::from_raw_parts(self.start, len) };
            if len > 0 && crc32c(landed) != self.sum {
                return Err(Failure::Corrupt(format!("message {}", self.message)));
            }
        }
        // Count after the check: once the last byte is counted, the message is complete and its room may be freed.
        shared.arrived(self.room, bytes);
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_size_whatever_its_chunks_say() {
        let shared = ReceiveShared::new(false);
        let mut memory = vec![0_u8; 100];
        shared.post(0, &[GroupedRoom { data: memory.as_mut_ptr(), len: 100, tag: 7 }]);
        assert!(shared.begin(0, 100, 7).is_ok_and(|room| room.is_some()));
        assert!(shared.begin(0, 100, 7).is_ok_and(|room| room.is_some()));
        match shared.begin(0, 60, 7) {
            Err(Failure::Protocol(what)) => assert_eq!(what, "message 0 of 60 bytes, and before of 100"),
            _ => panic!("a chunk of another message was let in"),
        }
    }

    /// Ranges in their order, and whether each may come after those before.
    #[test]
    fn no_byte_comes_twice() {
        let cases: [&[(usize, usize, bool)]; 7] = [
            &[(0, 10, true), (10, 20, true), (20, 30, true)],
            &[(20, 30, true), (0, 10, true), (10, 20, true), (15, 16, false)],
            &[(0, 10, true), (0, 10, false)],
            &[(0, 10, true), (9, 12, false), (10, 12, true), (11, 13, false)],
            &[(5, 10, true), (0, 20, false), (0, 5, true), (0, 1, false), (10, 11, true)],
            &[(0, 1, true), (2, 3, true), (4, 5, true), (1, 4, false), (3, 4, true), (1, 2, true), (0, 5, false)],
            &[(8, 9, true), (0, 8, true), (7, 10, false), (9, 10, true)],
        ];
        for case in cases {
            let mut claimed = Claimed::default();
            for &(from, to, expected) in case {
                assert_eq!(claimed.add(from..to), expected, "{from}..{to} of {case:?}");
            }
            let apart = claimed.0.windows(2).all(|pair| pair[0].end < pair[1].start);
            assert!(apart, "{:?} of {case:?}", claimed.0);
        }
    }

    #[test]
    fn a_message_whose_room_is_posted_anew_is_refused() {
        let shared = ReceiveShared::new(false);
        let mut memory = vec![0_u8; 100];
        for number in 0..=MOST_REQUESTS as u64 {
            shared.post(number, &[GroupedRoom { data: memory.as_mut_ptr(), len: 100, tag: 7 }]);
        }
        for (message, expected) in [(0, "message 0 again"), (1, "")] {
            match shared.begin(message, 100, 7) {
                Err(Failure::Protocol(what)) => assert_eq!(what, expected),
                found => assert!(found.is_ok_and(|room| room.is_some()) && expected.is_empty(), "message {message}"),
            }
        }
    }
}
