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
        // A socket without keep-alive still works.
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
            if silence.note(now, heard(fd)) >= timeout {
                return Err(Failure::Silent);
            }
        }
        Ok(())
    }
}

/// Since when a socket's peer has not answered, if it should have.
#[derive(Default)]
pub(super) struct Silence(Option<Instant>);

impl Silence {
    /// How long the peer has been silent. Nobody looks while bytes move, nor while there are none, so that an answer may have
    /// come unseen: what is unanswered after it is another silence.
    fn note(&mut self, now: Instant, heard: Heard) -> Duration {
        let goes_on = |since: &Instant| now.duration_since(*since) <= heard.last_answer;
        self.0 = heard.unanswered.then(|| self.0.filter(goes_on).unwrap_or(now));
        self.0.map_or(Duration::ZERO, |since| now.duration_since(since))
    }
}

/// What the kernel has heard of a socket's peer.
#[derive(Debug, Clone, Copy)]
struct Heard {
    /// The kernel is sending something again, because no answer comes.
    unanswered: bool,
    /// How long ago the last answer came.
    last_answer: Duration,
}

/// A socket that cannot be asked about is one whose peer answers.
fn heard(fd: &OwnedFd) -> Heard {
    // SAFETY: tcp_info is plain data; all zero is a valid value.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the room and its length are of this stack.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len)
    };
    Heard {
        unanswered: rc == 0 && (info.tcpi_retransmits > 0 || info.tcpi_probes > 0),
        last_answer: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_lasts_until_an_answer_whether_or_not_that_was_seen() {
        let (began, seconds) = (Instant::now(), Duration::from_secs_f64);
        let mut silence = Silence::default();
        for (at, unanswered, last_answer, silent) in [
            (0.0, false, 5.0, 0.0),
            (10.0, true, 0.3, 0.0),
            (11.0, true, 1.3, 1.0),
            (39.0, true, 29.3, 29.0),
            // The peer answered; one packet lost hours later must not count from the first loss.
            (9000.0, true, 8000.0, 0.0),
            (9001.0, true, 8001.0, 1.0),
            (9001.5, false, 0.1, 0.0),
            (9002.0, true, 0.6, 0.0),
        ] {
            let heard = Heard { unanswered, last_answer: seconds(last_answer) };
            assert_eq!(silence.note(began + seconds(at), heard), seconds(silent), "at {at} s");
        }
    }
}
