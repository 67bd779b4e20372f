//! The memory that a rank has allocated for all ranks of its host to use, and what its peers know of it.

use super::memory::Mapping;
use crate::Result;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// Memory of this rank that its peers can map. Freed when dropped; no operation may be using it then.
pub struct Buffer {
    mapping: Arc<Mapping>,
    bytes: usize,
    id: u64,
    registry: Arc<Registry>,
}

impl Buffer {
    /// The first byte, aligned to a page at least.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.address()
    }

    /// Bytes, as asked for.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The file that holds the bytes, from its beginning, for `sendfile`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.registry.free(self.id);
    }
}

/// How a rank names a place in its memory to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The window (a [`Buffer`]'s number, never used again), [`Named::PLAIN`], or [`Named::NOTHING`].
    pub window: u64,
    /// Bytes from the window's beginning; an address in plain memory.
    pub offset: u64,
}

impl Named {
    /// `window` of memory that is in none: `offset` is an address of the process.
    pub const PLAIN: u64 = 0;
    /// A name for no memory: buffers without bytes.
    pub const NOTHING: Named = Named { window: u64::MAX, offset: 0 };
}

/// Bytes of a peer's window. They stay mapped as long as this is kept, also where the peer frees the window meanwhile.
pub struct Reached {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl Reached {
    /// `bytes` from `offset` on, which the peer has named; `None` where the window has fewer.
    pub(super) fn within(mapping: &Arc<Mapping>, offset: u64, bytes: usize) -> Option<Self> {
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.checked_add(bytes)? <= mapping.bytes();
        fits.then(|| Reached { mapping: Arc::clone(mapping), offset })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.address().wrapping_add(self.offset)
    }
}

/// A window as its owner keeps it.
pub(super) struct Window {
    pub(super) id: u64,
    pub(super) mapping: Arc<Mapping>,
    /// Which peers know it.
    pub(super) told: Vec<bool>,
}

/// A rank's own windows, oldest first, and the freed ones that peers may still hold.
#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    last_id: u64,
    pub(super) windows: Vec<Window>,
    pub(super) freed: Vec<Window>,
}

impl State {
    /// The window that holds all of the bytes.
    pub(super) fn holding(&mut self, pointer: *const u8, bytes: usize) -> Option<&mut Window> {
        self.windows.iter_mut().find(|window| {
            let start = window.mapping.address() as usize;
            let within = (pointer as usize).checked_sub(start);
            let fits = |within: usize| within.checked_add(bytes).is_some_and(|end| end <= window.mapping.bytes());
            within.is_some_and(|within| within < window.mapping.bytes() && fits(within))
        })
    }
}

impl Registry {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Allocates a buffer of which `size` ranks may be told.
    pub(super) fn alloc(self: &Arc<Self>, bytes: usize, size: usize) -> Result<Buffer> {
        let mapping = Arc::new(Mapping::create(bytes)?);
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        state.windows.push(Window { id, mapping: Arc::clone(&mapping), told: vec![false; size] });
        Ok(Buffer { mapping, bytes, id, registry: Arc::clone(self) })
    }

    fn free(&self, id: u64) {
        let mut state = self.lock();
        if let Some(at) = state.windows.iter().position(|window| window.id == id) {
            let window = state.windows.remove(at);
            if window.told.contains(&true) {
                state.freed.push(window);
            }
        }
    }
}
