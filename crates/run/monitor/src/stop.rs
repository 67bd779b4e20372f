//! Waiting that a signal ends.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Knows whether somebody wants an end: Ctrl-C, `kill`, a terminal that was closed.
#[derive(Debug)]
pub struct Stop {
    signals: UnixStream,
    wanted: bool,
}

impl Stop {
    /// Listens for signals from now on, instead of being ended by them. SIGHUP stays ignored where nohup has it ignored.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn on_signals() -> io::Result<Self> {
        let (signals, written) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            pipe::register(signal, written.try_clone()?)?;
        }
        if !ignores(SIGHUP) {
            pipe::register(SIGHUP, written)?;
        }
        Ok(Stop { signals, wanted: false })
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

/// Whether this process was told to ignore a signal, by proc(5).
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
