//! Limits every wait: by a time limit, and by the end of the run.

use busbw_transport::Cancellation;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Triggers a cancellation of its own when its time is over, or when the run is cancelled; neither once it is dropped.
pub(crate) struct Limit {
    cancel: Arc<Cancellation>,
    _until_dropped: Sender<()>,
}

impl Limit {
    pub fn start(time: Duration, whole_run: &Arc<Cancellation>) -> Self {
        let (cancel, run) = (Cancellation::new(), Arc::clone(whole_run));
        let (cancelled, deadline) = (Arc::clone(&cancel), Instant::now() + time);
        let (until_dropped, dropped) = channel::<()>();
        std::thread::spawn(move || {
            while dropped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Some(reason) = run.reason() {
                    return cancelled.trigger(reason);
                }
                if Instant::now() >= deadline {
                    return cancelled.trigger(format!("no result within {} s", time.as_secs()));
                }
            }
        });
        Limit { cancel, _until_dropped: until_dropped }
    }

    pub fn cancellation(&self) -> &Arc<Cancellation> {
        &self.cancel
    }
}
