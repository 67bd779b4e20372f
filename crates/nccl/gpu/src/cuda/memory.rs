//! Memory of a GPU, and of the host where a GPU copies fast.

use super::{Context, Stream};
use crate::Result;
use std::ffi::c_void;

/// Memory of a GPU.
pub struct DeviceMemory {
    gpu: Context,
    address: u64,
    len: usize,
}

impl DeviceMemory {
    /// `len` bytes, whatever they hold.
    pub fn new(gpu: &Context, len: usize) -> Result<Self> {
        gpu.make_current()?;
        let mut address = 0;
        // SAFETY: the pointer is to a value that lives through the call. No memory of 0 bytes is given.
        let code = unsafe { (gpu.cuda().api.memory_alloc)(&mut address, len.max(1)) };
        gpu.cuda().checked("cuMemAlloc", code)?;
        Ok(DeviceMemory { gpu: gpu.clone(), address, len })
    }

    /// Memory with a copy of `bytes`.
    pub fn of(stream: &Stream, bytes: &[u8]) -> Result<Self> {
        let memory = DeviceMemory::new(stream.gpu(), bytes.len())?;
        // SAFETY: the memory is as large and nobody else's; the bytes live until the wait is over.
        unsafe { stream.copy_in(memory.address, bytes)? };
        stream.wait()?;
        Ok(memory)
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Fails only when the driver has shut down; then the memory is gone too.
        if self.gpu.make_current().is_ok() {
            // SAFETY: allocated once, freed once, in the same context.
            unsafe { (self.gpu.cuda().api.memory_free)(self.address) };
        }
    }
}

/// Memory of the host that does not move: a GPU copies to and from it without another copy in between.
pub struct PinnedMemory {
    gpu: Context,
    pointer: *mut u8,
    len: usize,
}

impl PinnedMemory {
    /// `len` bytes, zeroed.
    pub fn new(gpu: &Context, len: usize) -> Result<Self> {
        gpu.make_current()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives through the call.
        let code = unsafe { (gpu.cuda().api.host_alloc)(&mut pointer, len.max(1), 0) };
        gpu.cuda().checked("cuMemHostAlloc", code)?;
        let pointer = pointer.cast::<u8>();
        // SAFETY: as many bytes were allocated.
        unsafe { pointer.write_bytes(0, len) };
        Ok(PinnedMemory { gpu: gpu.clone(), pointer, len })
    }

    /// Its bytes. The caller waits for copies that are under way.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and zeroed in `new`.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }

    /// Its bytes, to change them. The caller waits for copies that are under way.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: allocated once, freed once.
            unsafe { (self.gpu.cuda().api.host_free)(self.pointer.cast()) };
        }
    }
}
