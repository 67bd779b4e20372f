//! The memory of an operation, with its length: what it reads and where it writes. Made once, at the public edge; within,
//! every part of it is checked to lie inside.
//!
//! What a type cannot show is time: that nobody touches a part between its post and the end of that request is the order in
//! which the algorithms work, and `algorithms::testing` fails where they do not keep to it. There is no lifetime either: after an
//! operation has failed, threads of the transport may hold a part until the communicator is dropped.

use std::ptr;

/// Bytes to be read.
#[derive(Debug, Clone, Copy)]
pub struct Data {
    start: *const u8,
    len: usize,
}

/// Bytes to be written, and perhaps read.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    start: *mut u8,
    len: usize,
}

impl Data {
    /// No bytes.
    pub const NONE: Data = Data { start: ptr::null(), len: 0 };

    /// `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are readable, in the memory that the operation's communicator works on, and nobody writes to them, until
    /// the operations on them are done; where one fails, until its communicator is dropped. An in-place operation's result
    /// may lie there, as NCCL has it.
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Data { start, len }
    }

    #[inline]
    pub fn as_ptr(self) -> *const u8 {
        self.start
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// What lies behind the first `bytes`; nothing where there are no more.
    #[inline]
    pub fn skip(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.len);
        Data { start: self.start.wrapping_add(bytes), len: self.len - bytes }
    }

    /// The first `bytes`.
    ///
    /// # Panics
    /// There are fewer: an algorithm has computed a wrong place.
    #[inline]
    pub fn take(self, bytes: usize) -> Self {
        assert!(bytes <= self.len, "{bytes} bytes of a buffer that has {} more", self.len);
        Data { len: bytes, ..self }
    }

    /// Whether it begins where `room` does.
    #[inline]
    pub fn is_at(self, room: Room) -> bool {
        ptr::eq(self.start, room.start)
    }
}

impl Room {
    /// No bytes.
    pub const NONE: Room = Room { start: ptr::null_mut(), len: 0 };

    /// `len` bytes at `start`.
    ///
    /// # Safety
    /// As of [`Data::new`]; the bytes are writable too, and nobody reads them.
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Room { start, len }
    }

    #[inline]
    pub fn as_ptr(self) -> *mut u8 {
        self.start
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// As [`Data::skip`].
    #[inline]
    pub fn skip(self, bytes: usize) -> Self {
        let bytes = bytes.min(self.len);
        Room { start: self.start.wrapping_add(bytes), len: self.len - bytes }
    }

    /// As [`Data::take`].
    #[inline]
    pub fn take(self, bytes: usize) -> Self {
        assert!(bytes <= self.len, "{bytes} bytes of a buffer that has {} more", self.len);
        Room { len: bytes, ..self }
    }

    /// Copies `data` to the beginning.
    #[inline]
    pub(crate) fn write(self, data: Data) {
        assert!(data.len <= self.len, "{} bytes to a buffer that has {}", data.len, self.len);
        if data.len > 0 && !data.is_at(self) {
            // SAFETY: both hold the bytes, for as long as they are used.
            unsafe { self.start.copy_from(data.start, data.len) };
        }
    }

    #[inline]
    pub fn data(self) -> Data {
        Data { start: self.start, len: self.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_lies_outside() {
        let mut memory = [0_u8; 10];
        // SAFETY: the array outlives what is made of it here.
        let room = unsafe { Room::new(memory.as_mut_ptr(), memory.len()) };
        let parts = [(0, 10), (3, 7), (10, 0), (11, 0), (usize::MAX, 0)];
        for (skipped, left) in parts {
            assert_eq!((room.skip(skipped).len(), room.data().skip(skipped).len()), (left, left), "{skipped}");
            assert!(std::panic::catch_unwind(|| Room::NONE.take(1)).is_err());
            let start = room.as_ptr() as usize;
            assert!((start..=start + 10).contains(&(room.skip(skipped).as_ptr() as usize)), "{skipped}");
        }
        assert_eq!(room.skip(4).take(6).len(), 6);
        assert!(std::panic::catch_unwind(|| Data::NONE.take(1)).is_err());
        assert!(Data::NONE.is_at(Room::NONE) && !Data::NONE.is_at(room));
    }
}
