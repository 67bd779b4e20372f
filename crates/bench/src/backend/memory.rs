//! A piece of memory and whatever must live as long as it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;

/// Memory that operations work on. It is freed with this value.
pub struct Memory {
    pointer: *mut u8,
    len: usize,
    _owner: Box<dyn Any>,
}

impl Memory {
    /// The alignment of [`Memory::on_host`]: a page, so that neighbours do not share one.
    const ALIGNMENT: usize = 4096;

    /// `len` bytes at `pointer`, which stay valid until `owner` is dropped.
    pub fn new(pointer: *mut u8, len: usize, owner: Box<dyn Any>) -> Self {
        Memory { pointer, len, _owner: owner }
    }

    /// `len` bytes of this process; `None` when there are not as many.
    pub fn on_host(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), Self::ALIGNMENT).ok()?;
        // SAFETY: the layout has a size above 0.
        let pointer = unsafe { alloc_zeroed(layout) };
        (!pointer.is_null()).then(|| Memory::new(pointer, len, Box::new(Owned { pointer, layout })))
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

/// Frees what the allocator gave.
struct Owned {
    pointer: *mut u8,
    layout: Layout,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `pointer` came from `alloc_zeroed` with this layout, and is freed once.
        unsafe { dealloc(self.pointer, self.layout) };
    }
}
