//! Ctrl-C and its kin end a run in order: what was measured by then is still told.

use crate::{Error, Result};
use busbw_net::Alarm;
use nix::sys::signal::{SigSet, Signal};
use std::sync::Arc;

/// Has SIGINT, SIGTERM and SIGHUP raise `alarm`; a second one ends the process. Called before any thread is started, for all
/// of them must leave the signals to one.
pub(crate) fn raise(alarm: &Arc<Alarm>) -> Result<()> {
    let mut awaited = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        awaited.add(signal);
    }
    awaited.thread_block().map_err(|error| Error::system("wait for signals", error.into()))?;
    let alarm = Arc::clone(alarm);
    std::thread::spawn(move || {
        while let Ok(signal) = awaited.wait() {
            if alarm.reason().is_some() {
                std::process::exit(128 + signal as i32);
            }
            alarm.raise(format!("interrupted by {signal}"));
        }
    });
    Ok(())
}
