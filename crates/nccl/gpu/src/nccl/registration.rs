//! Memory as NCCL gives it, and its registration with a communicator.

use super::{Communicator, Feature, Nccl};
use crate::cuda::Context;
use crate::{Error, Result};
use busbw_nccl_abi::library::WINDOW_SYMMETRIC;
use std::ffi::c_void;
use std::sync::Arc;

/// GPU memory of `ncclMemAlloc`, which every way of registering accepts.
pub struct NcclMemory {
    nccl: Arc<Nccl>,
    gpu: Context,
    pointer: *mut c_void,
}

impl NcclMemory {
    /// At least `len` bytes.
    pub fn new(nccl: &Arc<Nccl>, gpu: &Context, len: usize) -> Result<Self> {
        let alloc = nccl.api.mem_alloc.zip(nccl.api.mem_free);
        let (alloc, _) = alloc.ok_or_else(|| missing(nccl, "ncclMemAlloc"))?;
        gpu.make_current()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives through the call.
        nccl.checked("ncclMemAlloc", unsafe { alloc(&mut pointer, len.max(1)) })?;
        Ok(NcclMemory { nccl: Arc::clone(nccl), gpu: gpu.clone(), pointer })
    }

    pub fn pointer(&self) -> *mut u8 {
        self.pointer.cast()
    }
}

impl Drop for NcclMemory {
    fn drop(&mut self) {
        if let (Some(free), Ok(())) = (self.nccl.api.mem_free, self.gpu.make_current()) {
            // SAFETY: allocated once, freed once. An error leaves nothing to be done.
            let _ = unsafe { free(self.pointer) };
        }
    }
}

/// Memory that a communicator knows. Given back when dropped, unless the communicator has ended.
pub struct Registration {
    communicator: Arc<Communicator>,
    handle: *mut c_void,
    symmetric: bool,
}

impl Registration {
    /// Registers memory of this rank alone.
    ///
    /// # Safety
    /// The memory outlives the registration.
    pub unsafe fn local(communicator: &Arc<Communicator>, pointer: *mut u8, len: usize) -> Result<Self> {
        let nccl = communicator.nccl();
        nccl.needs("-R 1", Feature::LocalRegistration)?;
        let register = nccl.api.register.ok_or_else(|| missing(nccl, "ncclCommRegister"))?;
        let mut handle = std::ptr::null_mut();
        let held = communicator.hold()?;
        // SAFETY: the caller's promise, and a pointer to a value that lives through the call.
        let result = unsafe { register(held.raw(), pointer.cast(), len.max(1), &mut handle) };
        nccl.checked("ncclCommRegister", result)?;
        Ok(Registration { communicator: Arc::clone(communicator), handle, symmetric: false })
    }

    /// Registers memory of all ranks as one window; every rank calls it, with as much.
    ///
    /// # Safety
    /// The memory outlives the registration.
    pub unsafe fn symmetric(communicator: &Arc<Communicator>, pointer: *mut u8, len: usize) -> Result<Self> {
        let nccl = communicator.nccl();
        nccl.needs("-R 2", Feature::SymmetricRegistration)?;
        let register = nccl.api.window_register.ok_or_else(|| missing(nccl, "ncclCommWindowRegister"))?;
        let mut handle = std::ptr::null_mut();
        let held = communicator.hold()?;
        // SAFETY: as above.
        let result = unsafe { register(held.raw(), pointer.cast(), len.max(1), &mut handle, WINDOW_SYMMETRIC) };
        nccl.checked("ncclCommWindowRegister", result)?;
        Ok(Registration { communicator: Arc::clone(communicator), handle, symmetric: true })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // An aborted communicator has forgotten its registrations; NCCL gives no handle for what it does not register.
        let Ok(held) = self.communicator.hold() else { return };
        let api = &self.communicator.nccl().api;
        let end = if self.symmetric { api.window_deregister } else { api.deregister };
        if let (Some(end), false) = (end, self.handle.is_null()) {
            // SAFETY: registered once, given back once. An error leaves nothing to be done.
            let _ = unsafe { end(held.raw(), self.handle) };
        }
    }
}

fn missing(nccl: &Nccl, symbol: &'static str) -> Error {
    let remedy = "name another NCCL with --nccl-library PATH";
    Error::Symbol { path: nccl.path().to_path_buf(), symbol, remedy }
}
