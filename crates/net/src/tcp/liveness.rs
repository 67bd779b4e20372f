//! Whether the other side still answers: its kernel, that is, for a rank may be busy with other things for as long as it likes.
//!
//! An idle socket is watched by TCP's keep-alive. One with bytes under way is not, and TCP_USER_TIMEOUT would not do: it also
//! ends connections whose peer answers every probe that it has no room yet (Linux's `tcp_probe_timer`). So the sender looks
//! at what the kernel knows: a peer that answers ends a series of retransmissions, or of probes, with its first answer.

use super::failure::Failure;
use super::socket;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Probes that an idle socket's peer must leave unanswered.
const PROBES: u32 = 3;

/// Has the kernel end a socket whose peer does not answer for so long while nothing is sent.
pub(super) fn keep_alive(fd: &OwnedFd, timeout: Duration) {
    let seconds = (timeout.as_secs() as u32 / (PROBES + 1)).clamp(1, 32_767) as i32;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES as i32),
    ];
    for (level, option, value) in options {
        // A socket that is not watched works as well.
        let _ = socket::set_option(fd, level, option, value);
    }
}

/// When to look at sockets with bytes under way, and how long to put up with silence.
pub(super) struct Watch {
    timeout: Option<Duration>,
    looked: Instant,
}

impl Watch {
    /// Answers come within milliseconds, or not for seconds.
    const EVERY: Duration = Duration::from_millis(250);

    pub fn new(timeout: Option<Duration>) -> Self {
        Watch { timeout, looked: Instant::now() }
    }

    /// How long silence is put up with.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// To be called while nothing moves, with the sockets whose peer should take something.
    ///
    /// # Errors
    /// [`Failure::Silent`] once a peer has not answered for the time allowed.
    pub fn look<'a>(&mut self, sockets: impl Iterator<Item = (&'a OwnedFd, &'a mut Silence)>) -> Result<(), Failure> {
        let Some(timeout) = self.timeout else { return Ok(()) };
        let now = Instant::now();
        if now.duration_since(self.looked) < Self::EVERY {
            return Ok(());
        }
        self.looked = now;
        for (fd, silence) in sockets {
            silence.0 = unanswered(fd).then(|| silence.0.unwrap_or(now));
            if silence.0.is_some_and(|since| now.duration_since(since) >= timeout) {
                return Err(Failure::Silent);
            }
        }
        Ok(())
    }
}

/// Since when a socket's peer has not answered, if it should have.
#[derive(Default)]
pub(super) struct Silence(Option<Instant>);

/// Whether the kernel is sending something again, because no answer comes.
fn unanswered(fd: &OwnedFd) -> bool {
    // SAFETY: tcp_info is plain data; all zero is a valid value.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the room and its length are of this stack.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len)
    };
    rc == 0 && (info.tcpi_retransmits > 0 || info.tcpi_probes > 0)
}
