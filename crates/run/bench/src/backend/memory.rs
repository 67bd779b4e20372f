//! A piece of memory and whatever must live as long as it.

use busbw_collectives::Room;
use std::any::Any;

/// Memory that operations work on. It is freed with this value.
pub struct Memory {
    pointer: *mut u8,
    len: usize,
    _owner: Box<dyn Any>,
}

impl Memory {
    /// `len` bytes at `pointer`, which stay valid until `owner` is dropped.
    pub fn new(pointer: *mut u8, len: usize, owner: Box<dyn Any>) -> Self {
        Memory { pointer, len, _owner: owner }
    }

    /// All of it.
    ///
    /// # Safety
    /// The memory outlives all use of what is given.
    pub unsafe fn room(&self) -> Room {
        // SAFETY: `new` was given as many bytes, and the caller keeps them.
        unsafe { Room::new(self.pointer, self.len) }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
