//! Buffers in a GPU's memory, registered with NCCL where that is asked for.

use crate::Flags;
use crate::backend::Memory;
use busbw_gpu::Result;
use busbw_gpu::cuda::{Context, DeviceMemory};
use busbw_gpu::nccl::{Communicator, NcclMemory, Registration};
use std::sync::Arc;

/// Where buffers come from, and whether NCCL knows them (`-R`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// From NCCL, registered by each rank.
    Local,
    /// From NCCL, registered by all ranks as one window.
    Symmetric,
}

impl Kind {
    pub fn of(flags: &Flags) -> Self {
        match flags.local_register {
            0 => Kind::Plain,
            1 => Kind::Local,
            _ => Kind::Symmetric,
        }
    }
}

/// Memory that NCCL knows. The registration ends before the memory does.
struct Registered {
    _registration: Registration,
    _memory: NcclMemory,
}

pub fn alloc(kind: Kind, communicator: &Arc<Communicator>, gpu: &Context, bytes: usize) -> Result<Memory> {
    if kind == Kind::Plain {
        let memory = DeviceMemory::new(gpu, bytes)?;
        return Ok(Memory::new(memory.address() as *mut u8, bytes, Box::new(memory)));
    }
    let memory = NcclMemory::new(communicator.nccl(), gpu, bytes)?;
    let pointer = memory.pointer();
    // SAFETY: the memory is kept beside the registration, and dropped behind it.
    let registration = unsafe {
        match kind {
            Kind::Symmetric => Registration::symmetric(communicator, pointer, bytes)?,
            _ => Registration::local(communicator, pointer, bytes)?,
        }
    };
    Ok(Memory::new(pointer, bytes, Box::new(Registered { _registration: registration, _memory: memory })))
}
