//! An end to every wait: after a time limit, or when the whole run ends.

use busbw_net::Alarm;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Raises an alarm of its own when its time is over, or when the run's alarm is raised; neither once it is dropped.
pub(crate) struct Limit {
    alarm: Arc<Alarm>,
    _until_dropped: Sender<()>,
}

impl Limit {
    pub fn start(time: Duration, whole_run: &Arc<Alarm>) -> Self {
        let (alarm, run) = (Alarm::new(), Arc::clone(whole_run));
        let (raised, deadline) = (Arc::clone(&alarm), Instant::now() + time);
        let (until_dropped, dropped) = channel::<()>();
        std::thread::spawn(move || {
            while dropped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Some(reason) = run.reason() {
                    return raised.raise(reason);
                }
                if Instant::now() >= deadline {
                    return raised.raise(format!("nothing came of it within {} s", time.as_secs()));
                }
            }
        });
        Limit { alarm, _until_dropped: until_dropped }
    }

    pub fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }
}
