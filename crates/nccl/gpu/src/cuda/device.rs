//! A GPU: what it is, and its primary context.

use super::Cuda;
use super::api::attribute::{self, Attribute};
use super::api::{Handle, RawDevice};
use crate::Result;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// A GPU, as the driver numbers it.
#[derive(Clone)]
pub struct Device {
    cuda: Arc<Cuda>,
    raw: RawDevice,
    pub index: usize,
    /// Its name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Where it is: `0000:1b:00`, as nccl-tests writes it.
    pub bus_id: String,
    /// Its compute capability: (9, 0).
    pub capability: (i32, i32),
    /// How many multiprocessors it has.
    pub processors: i32,
}

impl Device {
    pub(super) fn new(cuda: Arc<Cuda>, index: c_int) -> Result<Self> {
        let (mut raw, mut name) = (0, [0 as c_char; 256]);
        // SAFETY: the pointers are to values that live through the calls; the name is ended with 0 within its array.
        let name = unsafe {
            cuda.checked("cuDeviceGet", (cuda.api.device_get)(&mut raw, index))?;
            cuda.checked("cuDeviceGetName", (cuda.api.device_name)(name.as_mut_ptr(), name.len() as c_int, raw))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().trim().to_owned()
        };
        let told = |which: Attribute| {
            let (which, mut value) = (which.of(cuda.vendor), 0);
            // SAFETY: the pointer is to a value that lives through the call.
            let code = unsafe { (cuda.api.device_attribute)(&mut value, which, raw) };
            cuda.checked("cuDeviceGetAttribute", code).map(|()| value)
        };
        let (domain, bus, device) =
            (told(attribute::PCI_DOMAIN)?, told(attribute::PCI_BUS)?, told(attribute::PCI_DEVICE)?);
        let capability = (told(attribute::CAPABILITY_MAJOR)?, told(attribute::CAPABILITY_MINOR)?);
        let processors = told(attribute::PROCESSORS)?;
        let bus_id = format!("{domain:04x}:{bus:02x}:{device:02x}");
        Ok(Device { raw, index: index as usize, name, bus_id, capability, processors, cuda })
    }

    /// Opens the GPU for this process: its primary context, which NCCL uses too.
    pub fn open(&self) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives through the call.
        let code = unsafe { (self.cuda.api.context_retain)(&mut context, self.raw) };
        self.cuda.checked("cuDevicePrimaryCtxRetain", code)?;
        Ok(Context(Arc::new(Primary { device: self.clone(), context })))
    }
}

/// A GPU's primary context, held. Clones hold the same.
#[derive(Clone)]
pub struct Context(pub(super) Arc<Primary>);

/// What is given back when the last holder goes.
pub(super) struct Primary {
    device: Device,
    context: Handle,
}

// SAFETY: a context may be used by any thread; the driver has locks of its own.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. An error says that the driver has shut down: nothing is left to do.
        unsafe { (self.device.cuda.api.context_release)(self.device.raw) };
    }
}

impl Context {
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(super) fn cuda(&self) -> &Cuda {
        &self.0.device.cuda
    }

    /// Makes this the GPU that the calling thread's calls are for. What this module makes does it by itself where it
    /// needs it, but NCCL takes the thread's GPU when a communicator begins.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained as long as this value lives.
        self.cuda().checked("cuCtxSetCurrent", unsafe { (self.cuda().api.context_set)(self.0.context) })
    }

    /// Bytes that are free now, and all.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to values that live through the call.
        self.cuda().checked("cuMemGetInfo", unsafe { (self.cuda().api.memory_info)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }
}
