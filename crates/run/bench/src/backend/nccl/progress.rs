//! Tells the job that this rank makes progress, while many operations run that were started together.

use busbw_gpu::Result;
use busbw_gpu::cuda::{Event, Stream};
use busbw_transport::Cancellation;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes from one mark to the next: so many take a second on the slowest network, and a mark costs a microsecond.
const BYTES_PER_MARK: usize = 64 << 20;

/// Marks in a stream.
pub struct Progress {
    cancel: Arc<Cancellation>,
    bytes: usize,
    ahead: VecDeque<Event>,
    passed: Vec<Event>,
}

impl Progress {
    pub fn new(cancel: &Arc<Cancellation>) -> Self {
        Progress { cancel: Arc::clone(cancel), bytes: 0, ahead: VecDeque::new(), passed: Vec::new() }
    }

    /// Counts what was queued; sets a mark behind it when it is much.
    pub fn queued(&mut self, bytes: usize, stream: &Stream) -> Result<()> {
        self.cancel.advance();
        self.bytes += bytes;
        if self.bytes < BYTES_PER_MARK {
            return Ok(());
        }
        self.launched(stream)
    }

    /// Sets a mark behind a graph that was queued.
    pub fn launched(&mut self, stream: &Stream) -> Result<()> {
        self.bytes = 0;
        let event = self.passed.pop().map_or_else(|| Event::without_time(stream.gpu()), Ok)?;
        event.record(stream)?;
        self.ahead.push_back(event);
        Ok(())
    }

    /// Looks which marks the stream has passed.
    pub fn look(&mut self) -> Result<()> {
        while let Some(event) = self.ahead.pop_front() {
            if !event.has_passed()? {
                self.ahead.push_front(event);
                break;
            }
            self.passed.push(event);
            self.cancel.advance();
        }
        Ok(())
    }

    pub fn done(&mut self) {
        self.passed.extend(self.ahead.drain(..));
        self.bytes = 0;
        self.cancel.advance();
    }
}
