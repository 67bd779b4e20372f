//! One socket for the small messages of both directions between two ranks.
//!
//! TCP acknowledges what came with what goes. Where bytes go one way only the kernel sends a packet for it, which costs as much
//! as a small message. So where two connections join the same two ranks, one end sends its small messages on the control
//! socket of the connection that it receives from.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The control socket of a connection, lent to the connection that goes the other way; it is there once that connection
/// stands. Both ends of both connections hold one: [`SendComm::return_by`](super::SendComm::return_by) where one end sends,
/// [`RecvComm::hear`](super::RecvComm::hear) at the other.
#[derive(Clone, Default)]
pub struct WayBack(Arc<Shared>);

#[derive(Default)]
struct Shared {
    control: OnceLock<Arc<OwnedFd>>,
    /// Something was sent on it since [`WayBack::answered`] was asked.
    sent: AtomicBool,
}

impl WayBack {
    pub(super) fn lend(&self, control: &Arc<OwnedFd>) {
        let _ = self.0.control.set(Arc::clone(control));
    }

    pub(super) fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.0.control.get().cloned()
    }

    /// Notes that something was sent on it.
    pub(super) fn sent(&self) {
        self.0.sent.store(true, Ordering::Relaxed);
    }

    /// Whether something was sent on it since this was asked last.
    pub(super) fn answered(&self) -> bool {
        self.0.sent.swap(false, Ordering::Relaxed)
    }
}
