//! Streams, events in them, and graphs captured from them.

use super::Context;
use super::api::{CAPTURE_THREAD_LOCAL, EVENT_WITHOUT_TIME, Handle, NOT_READY, STREAM_NON_BLOCKING};
use crate::Result;
use std::ffi::c_void;

/// A queue of a GPU's work.
pub struct Stream {
    gpu: Context,
    raw: Handle,
}

// SAFETY: any thread may queue work into a stream; the driver has locks of its own.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(gpu: &Context) -> Result<Self> {
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives through the call.
        let code = unsafe { (gpu.cuda().api.stream_create)(&mut raw, STREAM_NON_BLOCKING) };
        gpu.cuda().checked("cuStreamCreate", code)?;
        Ok(Stream { gpu: gpu.clone(), raw })
    }

    /// The null stream, which every GPU has.
    pub fn null(gpu: &Context) -> Self {
        Stream { gpu: gpu.clone(), raw: std::ptr::null_mut() }
    }

    pub fn gpu(&self) -> &Context {
        &self.gpu
    }

    /// `CUstream`, for NCCL.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Whether all work is done.
    pub fn is_done(&self) -> Result<bool> {
        let cuda = self.gpu.cuda();
        // SAFETY: the stream lives.
        match unsafe { (cuda.api.stream_query)(self.raw) } {
            NOT_READY => Ok(false),
            code => cuda.checked("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Waits until all work is done. For work that ends by itself only: what waits for other ranks is asked with
    /// [`Stream::is_done`].
    pub fn wait(&self) -> Result<()> {
        self.gpu.make_current()?;
        while !self.is_done()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Queues a copy to the GPU.
    ///
    /// # Safety
    /// There is room at `to`, and `from` stays as it is until the stream has done it.
    pub unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        // SAFETY: the caller's promise.
        let code = unsafe { (cuda.api.copy_to_device)(to, from.as_ptr().cast(), from.len(), self.raw) };
        cuda.checked("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy from the GPU.
    ///
    /// # Safety
    /// `from` has as many bytes, and nobody touches `to` until the stream has done it.
    pub unsafe fn copy_out(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        // SAFETY: the caller's promise.
        let code = unsafe { (cuda.api.copy_to_host)(to.as_mut_ptr().cast(), from, to.len(), self.raw) };
        cuda.checked("cuMemcpyDtoHAsync", code)
    }

    /// Queues a copy within the GPU.
    ///
    /// # Safety
    /// Both have `len` bytes and do not overlap.
    pub unsafe fn copy_within(&self, from: u64, to: u64, len: usize) -> Result<()> {
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        // SAFETY: the caller's promise.
        cuda.checked("cuMemcpyDtoDAsync", unsafe { (cuda.api.copy_on_device)(to, from, len, self.raw) })
    }

    /// Queues zeros.
    ///
    /// # Safety
    /// There are `len` bytes at `to`.
    pub unsafe fn zero(&self, to: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        // SAFETY: the caller's promise.
        cuda.checked("cuMemsetD8Async", unsafe { (cuda.api.set_bytes)(to, 0, len, self.raw) })
    }

    /// Begins to keep what this thread queues for a graph instead of running it.
    ///
    /// # Errors
    /// The driver's: the null stream cannot.
    pub fn begin_capture(&self) -> Result<()> {
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        // SAFETY: the stream lives.
        let code = unsafe { (cuda.api.stream_begin_capture)(self.raw, CAPTURE_THREAD_LOCAL) };
        cuda.checked("cuStreamBeginCapture", code)
    }

    /// Ends that; gives what was kept, ready to launch.
    pub fn end_capture(&self) -> Result<Graph> {
        self.gpu.make_current()?;
        let cuda = self.gpu.cuda();
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the pointers are to values that live through the calls; the graph is not used after its end.
        unsafe {
            cuda.checked("cuStreamEndCapture", (cuda.api.stream_end_capture)(self.raw, &mut graph))?;
            let code = (cuda.api.graph_instantiate)(&mut executable, graph, 0);
            (cuda.api.graph_destroy)(graph);
            cuda.checked("cuGraphInstantiate", code)?;
        }
        Ok(Graph { gpu: self.gpu.clone(), executable })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.gpu.make_current().is_ok() {
            // SAFETY: created once, destroyed once; work that is queued is still done.
            unsafe { (self.gpu.cuda().api.stream_destroy)(self.raw) };
        }
    }
}

/// Work that was captured, to be launched as one.
pub struct Graph {
    gpu: Context,
    executable: Handle,
}

impl Graph {
    /// Queues the graph's work.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let cuda = self.gpu.cuda();
        // SAFETY: both live.
        cuda.checked("cuGraphLaunch", unsafe { (cuda.api.graph_launch)(self.executable, stream.raw) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: instantiated once, destroyed once; the driver keeps it while it runs.
            unsafe { (self.gpu.cuda().api.graph_executable_destroy)(self.executable) };
        }
    }
}

/// A moment in a stream.
pub struct Event {
    gpu: Context,
    raw: Handle,
}

impl Event {
    /// An event that can measure time.
    pub fn new(gpu: &Context) -> Result<Self> {
        Event::with(gpu, 0)
    }

    /// One that only tells whether it has passed, which is cheaper.
    pub fn without_time(gpu: &Context) -> Result<Self> {
        Event::with(gpu, EVENT_WITHOUT_TIME)
    }

    fn with(gpu: &Context, flags: u32) -> Result<Self> {
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives through the call.
        gpu.cuda().checked("cuEventCreate", unsafe { (gpu.cuda().api.event_create)(&mut raw, flags) })?;
        Ok(Event { gpu: gpu.clone(), raw })
    }

    /// Sets it behind what the stream has queued so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let cuda = self.gpu.cuda();
        // SAFETY: both live.
        cuda.checked("cuEventRecord", unsafe { (cuda.api.event_record)(self.raw, stream.raw) })
    }

    /// Whether the stream has come there.
    pub fn has_passed(&self) -> Result<bool> {
        let cuda = self.gpu.cuda();
        // SAFETY: the event lives.
        match unsafe { (cuda.api.event_query)(self.raw) } {
            NOT_READY => Ok(false),
            code => cuda.checked("cuEventQuery", code).map(|()| true),
        }
    }

    /// Seconds from `earlier` to this; both have passed.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64> {
        let cuda = self.gpu.cuda();
        let mut milliseconds = 0.0;
        // SAFETY: both live, and the pointer is to a value that lives through the call.
        let code = unsafe { (cuda.api.event_elapsed)(&mut milliseconds, earlier.raw, self.raw) };
        cuda.checked("cuEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: created once, destroyed once.
            unsafe { (self.gpu.cuda().api.event_destroy)(self.raw) };
        }
    }
}
