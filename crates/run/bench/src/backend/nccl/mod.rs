//! NCCL on GPUs: a thread per rank, each with a GPU.
//!
//! Small exchanges between ranks go over the embedded engine ([`Cpu`]), as those of nccl-tests go over MPI.

mod check;
mod environment;
mod group_calls;
mod guard;
mod join;
mod memory;
mod operation;
mod process;
mod progress;

pub use process::Process;

use crate::backend::cpu::Cpu;
use crate::backend::{Backend, Combine, Device, JobBackend, Library, Memory, NicBytes};
use crate::verify::{OnDevice, premul_scalar};
use crate::{Error, Result};
use busbw_collectives::{Data, Operation, Room};
use busbw_gpu::cuda::{Event, Graph, Stream};
use busbw_gpu::nccl::{Communicator, Feature};
use busbw_model::{Datatype, RedOp};
use busbw_nccl_abi::library as abi;
use busbw_transport::Cancellation;
use busbw_transport::wait::{Cores, Waiter};
use check::Checker;
use group_calls::Caller;
use guard::Guard;
use memory::Kind;
use operation::Part;
use progress::Progress;
use std::collections::HashMap;
use std::sync::Arc;

/// How many looks at the stream there are from one look at NCCL and the job to the next.
const LOOKS: u32 = 64;
/// What is left to CUDA, as in nccl-tests (`run` of `src/common.cu`).
const LEFT_TO_CUDA: u64 = 1 << 30;

/// One rank on a GPU.
pub struct Nccl {
    engine: Cpu,
    parts: Parts,
}

/// All of a rank but its part in the job. What comes first is dropped first.
struct Parts {
    graph: Option<Graph>,
    checker: Option<Checker>,
    marks: Vec<Event>,
    spare_marks: Vec<Event>,
    progress: Progress,
    guard: Guard,
    communicator: Arc<Communicator>,
    stream: Arc<Stream>,
    caller: Caller,
    cancel: Arc<Cancellation>,
    /// `mulsum`, for each datatype that has been used.
    premul_sums: HashMap<Datatype, abi::RedOp>,
    memory: Kind,
    device: Device,
    libraries: Vec<Library>,
    /// Why results are checked on the host, where they are.
    no_checker: Option<String>,
    ranks_on_gpu: usize,
    rank: usize,
    capturing: bool,
}

/// An error of a GPU, of NCCL or of the driver, while a job runs.
fn failed(error: busbw_gpu::Error) -> Error {
    Error::Job(error.to_string())
}

impl Parts {
    /// Runs calls that may block in NCCL. When they fail, the communicator ends: nothing on the GPU then waits for others, so
    /// that its memory can be freed.
    fn in_nccl<T>(&self, calls: impl FnOnce() -> Result<T>) -> Result<T> {
        // What is queued in a group is used until the group has ended.
        let held = self.communicator.hold().map_err(failed)?;
        let called = self.guard.during(calls);
        drop(held);
        called.inspect_err(|_| self.communicator.abort())
    }

    /// A call that is the same for a whole group of ranks: made once, by the first.
    fn once_for_group(&self, call: impl FnOnce() -> busbw_gpu::Result<()> + Send + 'static) -> Result<()> {
        if self.caller.is_alone() {
            return self.in_nccl(|| call().map_err(failed));
        }
        self.in_nccl(|| self.caller.once(Box::new(move || call().map(|()| None))))
    }

    /// NCCL's reduction, made for this rank where it is `mulsum`.
    fn redop(&mut self, redop: RedOp, datatype: Datatype) -> Result<abi::RedOp> {
        if let Some(known) = operation::redop(redop).or_else(|| self.premul_sums.get(&datatype).copied()) {
            return Ok(known);
        }
        let scalar = premul_scalar(datatype, self.rank);
        let made = self.communicator.premul_sum(scalar, operation::datatype(datatype)).map_err(failed)?;
        self.premul_sums.insert(datatype, made);
        Ok(made)
    }

    fn run(&mut self, operation: &Operation<'_>) -> Result<()> {
        operation.check_buffers(self.rank, self.communicator.nranks())?;
        let redop = self.redop(operation.redop, operation.datatype)?;
        let part = Part::new((&self.communicator, &self.stream), self.rank, operation, redop);
        for step in 0..operation::steps(operation.collective, self.communicator.nranks()) {
            if self.caller.is_alone() {
                // SAFETY: the buffers hold what the operation needs, and are there until it is done.
                self.in_nccl(|| unsafe { part.queue(step) }.map_err(failed))?;
            } else {
                let part = part.clone();
                let call = Box::new(move || {
                    let held = part.communicator.hold()?;
                    // SAFETY: as above.
                    unsafe { part.queue(step)? };
                    Ok(Some(held))
                });
                self.in_nccl(|| self.caller.together(call))?;
                // The calls of the others are for other GPUs.
                self.stream.gpu().make_current().map_err(failed)?;
            }
        }
        if self.capturing {
            return Ok(());
        }
        self.progress.queued(operation.bytes(), &self.stream).map_err(failed)
    }

    /// Waits for the stream, with an eye on NCCL and on the job.
    fn synchronize(&mut self) -> Result<()> {
        let mut waiter = Waiter::new(&self.cancel, Cores::Shared);
        let mut looks = 0u32;
        let mut wait = || -> Result<()> {
            while !self.stream.is_done().map_err(failed)? {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS) {
                    self.communicator.check().map_err(failed)?;
                    self.progress.look().map_err(failed)?;
                    self.cancel.check()?;
                }
                waiter.pause()?;
            }
            self.progress.done();
            Ok(())
        };
        let waited = wait();
        waited.inspect_err(|_| self.communicator.abort())
    }

    /// What goes over the engine: when it fails, so does what this rank has on its GPU.
    fn over_engine<T>(&self, given: Result<T>) -> Result<T> {
        given.inspect_err(|_| self.communicator.abort())
    }

    /// Ends the rank's part. Operations are done.
    fn end(&mut self) -> Result<()> {
        for (_, op) in self.premul_sums.drain() {
            self.communicator.destroy_op(op).map_err(failed)?;
        }
        self.graph = None;
        let communicator = Arc::clone(&self.communicator);
        let ended =
            group_calls::apart(&self.cancel, None, move || communicator.destroy().map_err(|error| error.to_string()))?;
        ended.map_err(Error::Job)
    }
}

impl Backend for Nccl {
    fn name(&self) -> &'static str {
        "nccl"
    }

    fn details(&self) -> String {
        let checked = match &self.parts.no_checker {
            None => "checked on the GPU".to_string(),
            Some(why) => format!("checked on the host ({why})"),
        };
        match self.parts.ranks_on_gpu {
            1 => checked,
            ranks => format!("{ranks} ranks share a GPU, {checked}"),
        }
    }

    fn libraries(&self) -> Vec<Library> {
        self.parts.libraries.clone()
    }

    fn hosts(&self) -> Option<usize> {
        self.engine.hosts()
    }

    fn rank(&self) -> usize {
        self.parts.rank
    }

    fn nranks(&self) -> usize {
        self.parts.communicator.nranks()
    }

    fn describe(&self) -> Device {
        self.parts.device.clone()
    }

    fn available_bytes(&self) -> u64 {
        let free = self.parts.stream.gpu().memory().map_or(0, |(free, _)| free);
        free.saturating_sub(LEFT_TO_CUDA) / self.parts.ranks_on_gpu as u64
    }

    fn used_bytes(&self) -> u64 {
        self.parts.stream.gpu().memory().map_or(0, |(free, total)| total - free)
    }

    fn lacks(&self, datatype: Datatype, _: Option<RedOp>) -> Option<String> {
        if !matches!(datatype, Datatype::F8e4m3 | Datatype::F8e5m2) {
            return None;
        }
        let nccl = self.parts.communicator.nccl();
        let (major, minor) = self.parts.stream.gpu().device().capability;
        match (nccl.has(Feature::Float8), major) {
            (false, _) => Some(format!("needs NCCL {} or later, this is {}", Feature::Float8.since(), nccl.version())),
            // NCCL's kernels of these types are compiled for Hopper and later.
            (true, ..9) => Some(format!("needs compute capability 9.0 or later, this GPU has {major}.{minor}")),
            _ => None,
        }
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice> {
        self.parts.checker.as_mut().map(|checker| checker as &mut dyn OnDevice)
    }

    fn alloc(&mut self, bytes: usize) -> Result<Memory> {
        let parts = &self.parts;
        parts.in_nccl(|| memory::alloc(parts.memory, &parts.communicator, parts.stream.gpu(), bytes).map_err(failed))
    }

    fn write(&mut self, to: Room, from: &[u8]) -> Result<()> {
        // SAFETY: the room has the bytes, and both are there until the wait is over.
        unsafe { self.parts.stream.copy_in(to.take(from.len()).as_ptr() as u64, from) }.map_err(failed)?;
        self.parts.stream.wait().map_err(failed)
    }

    fn zero(&mut self, to: Room) -> Result<()> {
        // SAFETY: the room has the bytes.
        unsafe { self.parts.stream.zero(to.as_ptr() as u64, to.len()) }.map_err(failed)
    }

    fn read(&mut self, from: Data, to: &mut [u8]) -> Result<()> {
        // SAFETY: the bytes are there, and both are until the wait is over.
        unsafe { self.parts.stream.copy_out(from.take(to.len()).as_ptr() as u64, to) }.map_err(failed)?;
        self.parts.stream.wait().map_err(failed)
    }

    fn group_start(&mut self) -> Result<()> {
        let nccl = Arc::clone(self.parts.communicator.nccl());
        self.parts.once_for_group(move || nccl.group_start())
    }

    fn group_end(&mut self) -> Result<()> {
        let nccl = Arc::clone(self.parts.communicator.nccl());
        self.parts.once_for_group(move || nccl.group_end())
    }

    fn run(&mut self, operation: &Operation<'_>) -> Result<()> {
        self.parts.run(operation)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.parts.synchronize()
    }

    fn barrier(&mut self) -> Result<()> {
        let given = self.engine.barrier();
        self.parts.over_engine(given)
    }

    fn all_reduce_f64(&mut self, values: &mut [f64], how: Combine) -> Result<()> {
        let given = self.engine.all_reduce_f64(values, how);
        self.parts.over_engine(given)
    }

    fn gather(&mut self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let given = self.engine.gather(mine);
        self.parts.over_engine(given)
    }

    fn cancellation(&self) -> Option<Arc<Cancellation>> {
        self.engine.cancellation()
    }

    fn nics(&mut self) -> Result<Vec<NicBytes>> {
        self.engine.nics()
    }

    fn mark(&mut self) -> Result<bool> {
        let parts = &mut self.parts;
        let event = parts.spare_marks.pop().map_or_else(|| Event::new(parts.stream.gpu()), Ok).map_err(failed)?;
        event.record(&parts.stream).map_err(failed)?;
        parts.marks.push(event);
        Ok(true)
    }

    fn marks(&mut self) -> Result<Vec<f64>> {
        let parts = &mut self.parts;
        let Some(first) = parts.marks.first() else { return Ok(Vec::new()) };
        let seconds = parts.marks.iter().map(|mark| mark.seconds_since(first)).collect::<busbw_gpu::Result<_>>();
        parts.spare_marks.append(&mut parts.marks);
        seconds.map_err(failed)
    }

    fn begin_graph(&mut self) -> Result<()> {
        self.parts.stream.begin_capture().map_err(failed)?;
        self.parts.capturing = true;
        Ok(())
    }

    fn end_graph(&mut self) -> Result<()> {
        self.parts.capturing = false;
        self.parts.graph = Some(self.parts.stream.end_capture().map_err(failed)?);
        Ok(())
    }

    fn launch_graph(&mut self) -> Result<()> {
        let parts = &mut self.parts;
        let graph = parts.graph.as_ref().ok_or_else(|| Error::Job("there is no graph to launch".into()))?;
        graph.launch(&parts.stream).map_err(failed)?;
        parts.progress.launched(&parts.stream).map_err(failed)
    }
}

impl JobBackend for Nccl {
    fn begin(&self) {
        self.engine.begin();
    }

    fn leave(mut self) -> Result<()> {
        if let Err(error) = self.parts.end() {
            return Err(Error::Job(self.fail(&error.to_string())));
        }
        let Nccl { engine, parts } = self;
        drop(parts);
        engine.leave()
    }

    fn fail(self, reason: &str) -> String {
        let Nccl { engine, parts } = self;
        parts.communicator.abort();
        let told = engine.fail(reason);
        drop(parts);
        told
    }
}
