//! One chosen NIC: its interface and what was counted on it.

use crate::interfaces::Interface;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What went over one device since the transport was made. Payload only: neither headers nor what TCP adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes handed to the kernel for sending.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Sockets open now.
    pub sockets: usize,
}

pub(super) struct Device {
    pub interface: Interface,
    sent: AtomicU64,
    received: AtomicU64,
    sockets: AtomicUsize,
}

impl Device {
    pub fn new(interface: Interface) -> Self {
        Device { interface, sent: AtomicU64::new(0), received: AtomicU64::new(0), sockets: AtomicUsize::new(0) }
    }

    pub fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn stats(&self) -> Stats {
        Stats {
            sent_bytes: self.sent.load(Ordering::Relaxed),
            received_bytes: self.received.load(Ordering::Relaxed),
            sockets: self.sockets.load(Ordering::Relaxed),
        }
    }
}

/// Sockets of a connection, counted as long as it lives.
pub(super) struct SocketsInUse {
    device: Arc<Device>,
    sockets: usize,
}

impl SocketsInUse {
    pub fn new(device: Arc<Device>, sockets: usize) -> Self {
        device.sockets.fetch_add(sockets, Ordering::Relaxed);
        SocketsInUse { device, sockets }
    }
}

impl Drop for SocketsInUse {
    fn drop(&mut self) {
        self.device.sockets.fetch_sub(self.sockets, Ordering::Relaxed);
    }
}
