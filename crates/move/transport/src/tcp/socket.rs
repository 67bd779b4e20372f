//! System calls on sockets that never wait: options, vectored sends and receives, readiness.

use super::failure::Failure;
use crate::{Error, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A part of a vectored send or receive.
pub(super) fn part(data: *const u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: data.cast_mut().cast(), iov_len: len }
}

fn message(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is plain data; all zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

/// Sends what the socket takes now.
///
/// # Safety
/// Each part names readable memory.
pub(super) unsafe fn send(socket: &OwnedFd, parts: &mut [libc::iovec], flags: libc::c_int) -> io::Result<usize> {
    let message = message(parts);
    loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | flags;
        // SAFETY: the parts are readable by the caller's promise; the header lives on this stack.
        let sent = unsafe {
            match parts {
                [part] => libc::send(socket.as_raw_fd(), part.iov_base, part.iov_len, flags),
                _ => libc::sendmsg(socket.as_raw_fd(), &message, flags),
            }
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// What a receive found.
pub(super) enum Received {
    Bytes(usize),
    Nothing,
    /// The peer has closed the socket.
    Ended,
}

/// Receives what is there now.
///
/// # Safety
/// Each part names writable memory that nobody else looks at.
pub(super) unsafe fn receive(
    socket: &OwnedFd,
    parts: &mut [libc::iovec],
    flags: libc::c_int,
) -> std::result::Result<Received, Failure> {
    let mut message = message(parts);
    loop {
        let flags = libc::MSG_DONTWAIT | flags;
        // SAFETY: the parts are writable by the caller's promise; the header lives on this stack.
        let received = unsafe {
            match parts {
                // Cheaper by a tenth: the kernel copies no header.
                [part] => libc::recv(socket.as_raw_fd(), part.iov_base, part.iov_len, flags),
                _ => libc::recvmsg(socket.as_raw_fd(), &mut message, flags),
            }
        };
        match usize::try_from(received) {
            Ok(0) => return Ok(Received::Ended),
            Ok(received) => return Ok(Received::Bytes(received)),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                    io::ErrorKind::ConnectionReset => return Ok(Received::Ended),
                    _ => return Err(Failure::system("receive from", &error)),
                }
            }
        }
    }
}

/// Sets an integer option.
pub(super) fn set_option(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is an int of this stack, with its size.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Chooses the congestion control; a kernel that lacks it, or reserves it for root, keeps the system's.
pub(super) fn set_congestion(socket: &OwnedFd, name: &str) {
    // SAFETY: the name is readable for its length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        );
    }
}

/// Readiness of a lane's sockets, reported once per change.
pub(super) struct Epoll(OwnedFd);

/// One report: the number given at [`Epoll::add`] and the events.
pub(super) struct Ready {
    pub index: usize,
    pub events: u32,
}

impl Epoll {
    /// The most reports of one call.
    const MOST: usize = 64;

    pub fn new() -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(Error::last_os("watch the sockets of a connection"));
        }
        // SAFETY: the call returned a new descriptor that nobody else owns.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches a descriptor for `events`, edge-triggered.
    pub fn add(&self, fd: &(impl AsFd + ?Sized), index: usize, events: i32) -> Result<()> {
        let mut event = libc::epoll_event { events: (events | libc::EPOLLET) as u32, u64: index as u64 };
        // SAFETY: both descriptors are open; the event is copied by the kernel.
        let rc =
            unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_fd().as_raw_fd(), &mut event) };
        if rc == 0 { Ok(()) } else { Err(Error::last_os("watch a socket")) }
    }

    /// Watches it no more.
    pub fn remove(&self, fd: &OwnedFd) {
        // SAFETY: both descriptors are open. One that is not watched is an error without effect.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut()) };
    }

    /// Calls `each` for every change, after waiting up to `timeout_ms` for the first.
    pub fn wait(&self, timeout_ms: i32, mut each: impl FnMut(Ready)) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; Self::MOST];
        // SAFETY: the array has room for the number of events given.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), Self::MOST as libc::c_int, timeout_ms) };
        for event in events.iter().take(usize::try_from(n).unwrap_or(0)) {
            each(Ready { index: event.u64 as usize, events: event.events });
        }
    }

    /// Sleeps until there is a change, or for `most`; whether there was one. It is taken for seen.
    pub fn sleep(&self, most: Duration) -> bool {
        let mut sockets = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let changed = ppoll(&mut sockets, Some(most.into()), None).is_ok_and(|ready| ready > 0);
        if changed {
            self.wait(0, drop);
        }
        changed
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a helper that waits in [`Epoll::wait`].
pub(super) struct Wakeup(OwnedFd);

impl Wakeup {
    pub fn new() -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::last_os("make a descriptor to wake a helper thread"));
        }
        // SAFETY: the call returned a new descriptor that nobody else owns.
        Ok(Wakeup(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Each trigger is a new edge, so that nobody has to read the counter; it cannot overflow in the life of a machine.
    pub fn trigger(&self) {
        let one = 1_u64;
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}
