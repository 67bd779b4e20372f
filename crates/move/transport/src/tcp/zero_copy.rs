//! Sends without a copy (MSG_ZEROCOPY, Linux 4.14): which the kernel still reads from, and whether it copied after all.
//!
//! The kernel numbers such sends per socket and reports ranges of numbers it has done with on the socket's error queue
//! (Linux's Documentation/networking/msg_zerocopy.rst).

use super::send::SendShared;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// `SO_EE_ORIGIN_ZEROCOPY` of linux/errqueue.h.
const ORIGIN: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED` of linux/errqueue.h.
const COPIED: u8 = 1;

/// The zero-copy sends of one socket that are not done, oldest first: the message each belongs to, `None` once done.
#[derive(Default)]
pub(super) struct Pinned {
    sends: VecDeque<Option<u64>>,
    /// The kernel's number of the oldest.
    oldest: u32,
}

impl Pinned {
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// A send of `message` was accepted.
    pub fn add(&mut self, message: u64) {
        self.sends.push_back(Some(message));
    }

    /// Takes the kernel's reports.
    pub fn reap(&mut self, socket: &OwnedFd, shared: &SendShared) {
        while let Some((first, last, copied)) = report(socket) {
            if copied {
                shared.zero_copy.store(false, Ordering::Relaxed);
            }
            self.done(first, last, |message| shared.unpinned(message));
        }
    }

    /// The sends with the kernel's numbers from `first` to `last` are done.
    fn done(&mut self, first: u32, last: u32, mut each: impl FnMut(u64)) {
        let from = first.wrapping_sub(self.oldest) as usize;
        let to = last.wrapping_sub(self.oldest) as usize;
        for send in self.sends.iter_mut().take(to.saturating_add(1)).skip(from) {
            if let Some(message) = send.take() {
                each(message);
            }
        }
        while let Some(None) = self.sends.front() {
            self.sends.pop_front();
            self.oldest = self.oldest.wrapping_add(1);
        }
    }
}

/// The next report of the error queue: first and last number, and whether the kernel copied.
fn report(socket: &OwnedFd) -> Option<(u32, u32, bool)> {
    let mut control = [0_u64; 16];
    // SAFETY: msghdr is plain data; all zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header names room on this stack, with its size.
    let rc = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if rc < 0 {
        return None;
    }
    // SAFETY: the kernel has filled in the header; CMSG_FIRSTHDR stays inside its control room or is null.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message).as_ref() }?;
    let kinds = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)];
    if !kinds.contains(&(header.cmsg_level, header.cmsg_type)) {
        return None;
    }
    // SAFETY: a control message of this kind carries a sock_extended_err.
    let error = unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned() };
    (error.ee_origin == ORIGIN && error.ee_errno == 0).then_some((
        error.ee_info,
        error.ee_data,
        error.ee_code == COPIED,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_done_in_any_order_and_numbers_wrap() {
        let mut pinned = Pinned { oldest: u32::MAX - 1, ..Pinned::default() };
        (10..16).for_each(|message| pinned.add(message));
        let mut done = Vec::new();
        pinned.done(0, 1, |message| done.push(message));
        assert_eq!((done.as_slice(), pinned.sends.len()), (&[12, 13][..], 6));
        pinned.done(u32::MAX - 1, u32::MAX, |message| done.push(message));
        assert_eq!((done.as_slice(), pinned.sends.len(), pinned.oldest), (&[12, 13, 10, 11][..], 2, 2));
        pinned.done(2, 3, |message| done.push(message));
        assert!(pinned.is_empty() && done == [12, 13, 10, 11, 14, 15]);
    }
}
