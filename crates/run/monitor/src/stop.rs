//! Waiting that a signal ends.

use busbw_launch::start::heeded;
use nix::sys::signal::Signal;
use signal_hook::low_level::pipe;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Knows whether somebody wants an end: Ctrl-C, `kill`, a terminal that was closed.
#[derive(Debug)]
pub struct Stop {
    signals: UnixStream,
    /// Where all signals are ignored, nobody else holds this end open.
    _written: UnixStream,
    wanted: bool,
}

impl Stop {
    /// Listens for signals from now on, instead of being ended by them. SIGHUP stays ignored where it is.
    pub fn on_signals() -> io::Result<Self> {
        let (signals, written) = UnixStream::pair()?;
        for signal in &heeded([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]) {
            pipe::register(signal as i32, written.try_clone()?)?;
        }
        Ok(Stop { signals, _written: written, wanted: false })
    }

    /// Waits, at most until a signal comes. Whether one has come.
    pub fn wait(&mut self, time: Duration) -> bool {
        if !self.wanted {
            self.wanted = self.signalled(time);
        }
        self.wanted
    }

    fn signalled(&mut self, time: Duration) -> bool {
        let set = if time.is_zero() {
            self.signals.set_nonblocking(true)
        } else {
            self.signals.set_nonblocking(false).and_then(|()| self.signals.set_read_timeout(Some(time)))
        };
        match set.and_then(|()| self.signals.read(&mut [0; 16])) {
            Ok(_) => true,
            // The time is over; a call that a signal interrupted finds the signal's byte the next time.
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ),
        }
    }
}
