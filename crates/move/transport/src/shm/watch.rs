//! Notices when a peer's process ends: its socket closes.

use super::control::Control;
use crate::{Cancellation, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What is watched of one peer.
pub(super) struct Watched {
    pub(super) name: String,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) control: Arc<Control>,
    /// Set once the peer has ended, in good order or not.
    pub(super) gone: Arc<AtomicBool>,
}

/// The thread that watches; ends when dropped.
pub(super) struct Watch {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches `peers`; the end of one that did not leave in good order triggers `cancel`.
    pub(super) fn start(peers: Vec<Watched>, cancel: Arc<Cancellation>) -> Result<Self> {
        let (stop, stopped) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
            .map_err(|source| Error::system("open a pipe", source.into()))?;
        let thread = std::thread::Builder::new()
            .name("busbw-watch".into())
            .spawn(move || watch(peers, &stopped, &cancel))
            .map_err(|source| Error::system("start a thread", source))?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread holds no lock that a panic could poison, so only its end matters.
            let _ = thread.join();
        }
    }
}

fn watch(mut peers: Vec<Watched>, stopped: &OwnedFd, cancel: &Cancellation) {
    loop {
        // No flags: a hang-up is reported anyway, and messages that wait to be read are not of interest here.
        let mut polled: Vec<PollFd<'_>> =
            peers.iter().map(|peer| PollFd::new(peer.socket.as_fd(), PollFlags::empty())).collect();
        polled.push(PollFd::new(stopped.as_fd(), PollFlags::POLLIN));
        if poll(&mut polled, PollTimeout::NONE).is_err() {
            continue;
        }
        let closed: Vec<bool> =
            polled.iter().map(|one| one.revents().is_some_and(|events| !events.is_empty())).collect();
        if closed.last() == Some(&true) {
            return;
        }
        let mut closed = closed.into_iter();
        peers.retain(|peer| {
            let ended = closed.next() == Some(true);
            if ended {
                if peer.control.left().load(Ordering::Acquire) == 0 {
                    cancel.trigger(Error::Closed { peer: peer.name.clone() }.to_string());
                }
                peer.gone.store(true, Ordering::Release);
            }
            !ended
        });
    }
}
