//! A piece of memory and whatever must live as long as it.

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

    /// The first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
