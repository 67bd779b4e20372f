//! What the benchmark asks of whatever carries a collective: memory, running an operation, and small exchanges between
//! ranks.

mod choice;
pub mod cpu;
mod memory;
pub mod nccl;

pub use memory::Memory;

use crate::verify::OnDevice;
use crate::{Error, Result};
use busbw_collectives::{Data, Operation, Room};
use busbw_model::{Collective, Datatype, HostMemory, RedOp};
use busbw_transport::Cancellation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How numbers of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Min,
    Max,
    Avg,
}

/// Who a rank is, as the device list above the table shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Device {
    /// Rank among all ranks of the job. Rank 0 writes.
    pub rank: usize,
    /// The group that it tests with (`NCCL_TESTS_SPLIT`): 0 where there is one group.
    pub group: u32,
    pub pid: u32,
    /// Host name without domain.
    pub host: String,
    /// Index of the device on its host; for a rank on cores, its rank on the host.
    pub device: usize,
    /// PCI bus id as nccl-tests prints it, `0000:0f:00`; zeros for a rank on cores.
    pub bus_id: String,
    /// The device's name; for a rank on cores, the processor's.
    pub name: String,
}

/// A library that was found at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Library {
    /// What it is: `nccl`.
    pub name: &'static str,
    /// Its version: `2.27.7`.
    pub version: String,
    /// As a number, the way NCCL tells it (22707); 0 for others.
    pub code: i32,
    /// Its file.
    pub path: String,
}

/// What a network interface has carried since it came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicBytes {
    /// Its host, as in [`Device::host`].
    pub host: String,
    /// Its name: `eth0`, `mlx5_0`.
    pub name: String,
    /// Bytes sent.
    pub tx: u64,
    /// Bytes received.
    pub rx: u64,
}

/// One rank of a job. Every rank makes the same calls in the same order.
///
/// An operation runs among the ranks of a group; barrier, all-reduce and gather below speak to all ranks of the job, as
/// nccl-tests' calls on `MPI_COMM_WORLD` do.
pub trait Backend {
    /// The name in the line below the version: `cpu`.
    fn name(&self) -> &'static str;

    /// What else tells this run from another, for the same line: instruction set, transports. May be empty.
    fn details(&self) -> String {
        String::new()
    }

    /// The libraries that carry the operations and were found at run time.
    fn libraries(&self) -> Vec<Library> {
        Vec::new()
    }

    /// What this host's memory carries, where operations are copies in it. Rank 0 is asked, while the others wait for it.
    fn memory(&mut self) -> Option<HostMemory> {
        None
    }

    /// How many hosts the job has, where that is not the number of their names.
    fn hosts(&self) -> Option<usize> {
        None
    }

    /// This rank's number in its group.
    fn rank(&self) -> usize;

    fn nranks(&self) -> usize;

    fn describe(&self) -> Device;

    /// Bytes that this rank may allocate for buffers; see [`crate::limit::share_of_host`] for ranks on cores.
    fn available_bytes(&self) -> u64;

    /// Bytes that this rank's process, or device, holds now: for `-M`.
    fn used_bytes(&self) -> u64 {
        0
    }

    /// Why this datatype, or this reduction of it, cannot run; `None` where it can. What cannot is left out of `-o all` and
    /// `-d all`.
    fn lacks(&self, datatype: Datatype, redop: Option<RedOp>) -> Option<String> {
        let _ = datatype;
        (redop == Some(RedOp::MulSum)).then(|| format!("the backend {} does not run it", self.name()))
    }

    /// The part of this backend that makes and compares the data of checks; `None` where that is done in the host's memory.
    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        None
    }

    /// Memory that operations can work on, aligned to at least 64 bytes.
    fn alloc(&mut self, bytes: usize) -> Result<Memory>;

    /// Copies to the beginning of memory of this backend, on which no operation works.
    fn write(&mut self, to: Room, from: &[u8]) -> Result<()> {
        // SAFETY: the room has the bytes; memory that is not the host's needs its own implementation.
        unsafe { to.take(from.len()).as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Zeros memory of this backend, on which no operation works.
    fn zero(&mut self, to: Room) -> Result<()> {
        // SAFETY: the room has the bytes; memory that is not the host's needs its own implementation.
        unsafe { to.as_ptr().write_bytes(0, to.len()) };
        Ok(())
    }

    /// Copies out of memory of this backend, from the beginning of `from`, on which no operation works.
    fn read(&mut self, from: Data, to: &mut [u8]) -> Result<()> {
        // SAFETY: the bytes are there; memory that is not the host's needs its own implementation.
        unsafe { from.take(to.len()).as_ptr().copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Whether bytes between hosts are checked when they arrive.
    fn has_checksums(&self) -> bool {
        false
    }

    /// Begins operations that are handed over together (`-m`), as `ncclGroupStart` does.
    fn group_start(&mut self) -> Result<()> {
        Ok(())
    }

    fn group_end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Starts an operation, and may finish it. Its buffers are of this backend's memory, and nobody else touches them until
    /// [`Backend::synchronize`] returns: the promise of who made them.
    fn run(&mut self, operation: &Operation<'_>) -> Result<()>;

    /// Returns when every operation that was started is done here.
    fn synchronize(&mut self) -> Result<()>;

    /// Returns when every rank of the job has come here.
    fn barrier(&mut self) -> Result<()>;

    /// Makes each of the numbers one for all ranks of the job.
    fn all_reduce_f64(&mut self, values: &mut [f64], how: Combine) -> Result<()>;

    /// Brings what every rank of the job gives to rank 0, in the order of ranks; `None` on other ranks.
    fn gather(&mut self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>>;

    /// Notes the moment that operations started so far are done, on the device's clock; `false` where the host's counts.
    fn mark(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Seconds from the first mark to each, of those since the last call. All operations are done.
    fn marks(&mut self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    /// Begins to keep operations for a graph (`-G`) instead of starting them.
    fn begin_graph(&mut self) -> Result<()> {
        Err(no_graphs(self.name()))
    }

    /// Ends that; the graph is kept until the next.
    fn end_graph(&mut self) -> Result<()> {
        Err(no_graphs(self.name()))
    }

    /// Starts the operations of the graph.
    fn launch_graph(&mut self) -> Result<()> {
        Err(no_graphs(self.name()))
    }

    /// What ends every wait of this rank, where something can.
    fn cancellation(&self) -> Option<Arc<Cancellation>> {
        None
    }

    /// The counters of this host's network interfaces that may carry the job.
    fn nics(&mut self) -> Result<Vec<NicBytes>> {
        Ok(Vec::new())
    }
}

fn no_graphs(name: &str) -> Error {
    Error::Setting(format!("-G,--cudagraph: the backend {name} has no graphs; leave it out"))
}

/// A backend that has a place in a job of several processes.
pub trait JobBackend: Backend {
    /// Says that operations begin: from now on a job in which nobody gets on counts as stuck.
    fn begin(&self);

    /// What the user should know of how `collective` will run.
    fn note(&self, collective: Collective) -> Option<String> {
        let _ = collective;
        None
    }

    /// Leaves the job when every rank has done its part.
    fn leave(self) -> Result<()>;

    /// Leaves the job because of `reason`; gives what the whole job failed of.
    fn fail(self, reason: &str) -> String;
}
