//! The signals that a parent of ranks waits for, blocked for as long as it does.

use crate::{Error, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// A signal that asks this process to end.
pub(crate) struct EndSignal {
    pub signal: Signal,
    /// The kernel has sent it, for Ctrl-C or the terminal's end, and then to all of the process group (SI_KERNEL of
    /// sigaction(2) is above 0; what processes send is not).
    pub at_a_terminal: bool,
}

/// The signals, without SIGHUP where this process was started with it ignored, by proc(5): `nohup` wants it to go on, and the
/// kernel keeps an ignored signal for those who block it, so that a signalfd would read it. All others are heeded even so: a
/// script's shell has SIGINT ignored in what it starts in the background, and ends that by `kill -INT`, as it ends tcpdump.
pub fn heeded<const N: usize>(signals: [Signal; N]) -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let hangup_is_ignored = mask.unwrap_or(0) >> (Signal::SIGHUP as i32 - 1) & 1 == 1;
    signals.into_iter().filter(|signal| *signal != Signal::SIGHUP || !hangup_is_ignored).collect()
}

/// Blocks Ctrl-C, SIGTERM, SIGHUP and SIGQUIT, as far as they are heeded, and SIGCHLD in this thread, and those it starts, until
/// dropped.
pub(crate) struct Signals {
    before: SigSet,
    descriptor: SignalFd,
}

impl Signals {
    pub fn block() -> Result<Self> {
        let wrap = |error: Errno| Error::system("wait for signals", error.into());
        let mut awaited = heeded([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT]);
        awaited.add(Signal::SIGCHLD);
        let before = awaited.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(wrap)?;
        match SignalFd::with_flags(&awaited, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC) {
            Ok(descriptor) => Ok(Signals { before, descriptor }),
            Err(error) => {
                let _ = before.thread_set_mask();
                Err(wrap(error))
            }
        }
    }

    /// The signals that were blocked before.
    pub fn before(&self) -> SigSet {
        self.before
    }

    /// Waits until a child has ended, or a signal that asks to end has come: that one.
    pub fn wait(&self, patience: Duration) -> std::io::Result<Option<EndSignal>> {
        let mut waited = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(information) = self.descriptor.read_signal()? {
            let signal = Signal::try_from(information.ssi_signo as i32)?;
            if signal != Signal::SIGCHLD {
                return Ok(Some(EndSignal { signal, at_a_terminal: information.ssi_code > 0 }));
            }
        }
        Ok(None)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
