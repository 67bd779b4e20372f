//! Ctrl-C and its kin end a run in order: what was measured by then is still told.

use crate::{Error, Result};
use busbw_net::Cancellation;
use nix::sys::signal::{SigSet, Signal};
use std::sync::Arc;

/// Has SIGINT, SIGTERM and SIGHUP cancel the run; a second one ends the process. Called before any thread is started, for all
/// of them must leave the signals to one.
pub(crate) fn cancel_on_signal(cancel: &Arc<Cancellation>) -> Result<()> {
    let mut awaited = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        awaited.add(signal);
    }
    awaited.thread_block().map_err(|error| Error::system("wait for signals", error.into()))?;
    let cancel = Arc::clone(cancel);
    std::thread::spawn(move || {
        while let Ok(signal) = awaited.wait() {
            if cancel.reason().is_some() {
                std::process::exit(128 + signal as i32);
            }
            cancel.trigger(format!("interrupted by {signal}"));
        }
    });
    Ok(())
}
