//! Unix sockets between the ranks of a host: messages that may carry a file descriptor.

use crate::{Error, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The longest message.
pub(super) const LONGEST: usize = 528;

/// A message with the descriptor that it carried.
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    pub(super) file: Option<OwnedFd>,
}

fn new_socket(flags: SockFlag) -> Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | flags, None)
        .map_err(|source| Error::system("open a Unix socket", source.into()))
}

fn abstract_address(name: &[u8]) -> Result<UnixAddr> {
    UnixAddr::new_abstract(name).map_err(|source| Error::system("name a Unix socket", source.into()))
}

/// Listens under `name` in the abstract namespace, which needs no file.
pub(super) fn listen_at(name: &[u8], backlog: usize) -> Result<OwnedFd> {
    let listener = new_socket(SockFlag::SOCK_NONBLOCK)?;
    let system = |source: Errno| Error::system("listen on a Unix socket", source.into());
    bind(listener.as_raw_fd(), &abstract_address(name)?).map_err(system)?;
    let backlog = i32::try_from(backlog).ok().and_then(|backlog| Backlog::new(backlog).ok());
    listen(&listener, backlog.unwrap_or(Backlog::MAXCONN)).map_err(system)?;
    Ok(listener)
}

/// Connects to the listener `name` of `peer`.
pub(super) fn connect_to(name: &[u8], peer: &str, patience_s: i64) -> Result<OwnedFd> {
    let connection = new_socket(SockFlag::empty())?;
    let system = |source: Errno| Error::system(format!("connect to the Unix socket of {peer}"), source.into());
    setsockopt(&connection, sockopt::SendTimeout, &TimeVal::seconds(patience_s)).map_err(system)?;
    connect(connection.as_raw_fd(), &abstract_address(name)?).map_err(system)?;
    Ok(connection)
}

/// The next connection, if one is there.
pub(super) fn accept_from(listener: &OwnedFd) -> Result<Option<OwnedFd>> {
    match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
        // SAFETY: the descriptor is new and nobody else's.
        Ok(accepted) => Ok(Some(unsafe { OwnedFd::from_raw_fd(accepted) })),
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => Ok(None),
        Err(source) => Err(Error::system("accept a connection on a Unix socket", source.into())),
    }
}

/// Who is at the other end.
pub(super) fn credentials(connection: &OwnedFd) -> Result<UnixCredentials> {
    getsockopt(connection, sockopt::PeerCredentials)
        .map_err(|source| Error::system("ask who is at the other end of a Unix socket", source.into()))
}

/// Sends a message; `false` when the peer has too many unread.
pub(super) fn send(connection: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>, peer: &str) -> Result<bool> {
    let files: Vec<i32> = file.iter().map(|file| file.as_raw_fd()).collect();
    let control = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &[][..] } else { &control[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    match sendmsg::<()>(connection.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::ETOOMANYREFS | Errno::EINTR) => Ok(false),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::Closed { peer: peer.into() }),
        Err(source) => Err(Error::system(format!("send to {peer}"), source.into())),
    }
}

/// The next message, `None` when there is none yet.
pub(super) fn receive(connection: &OwnedFd, peer: &str) -> Result<Option<Received>> {
    match receive_once(connection, peer) {
        // A peer that closed without reading all resets the connection; what it had sent before can still be read.
        Err(Error::Closed { .. }) => receive_once(connection, peer),
        result => result,
    }
}

fn receive_once(connection: &OwnedFd, peer: &str) -> Result<Option<Received>> {
    let mut bytes = vec![0; LONGEST];
    let mut room = nix::cmsg_space!([i32; 1]);
    let (len, file) = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<()>(connection.as_raw_fd(), &mut parts, Some(&mut room), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(Errno::ECONNRESET) => return Err(Error::Closed { peer: peer.into() }),
            Err(source) => return Err(Error::system(format!("receive from {peer}"), source.into())),
        };
        let mut file = None;
        for control in message.cmsgs().map_err(|source| Error::system(format!("receive from {peer}"), source.into()))? {
            if let ControlMessageOwned::ScmRights(files) = control {
                // SAFETY: the kernel has just made these descriptors for us.
                file = files
                    .into_iter()
                    .map(|file| unsafe { OwnedFd::from_raw_fd(file) })
                    .fold(file, |_, next| Some(next));
            }
        }
        (message.bytes, file)
    };
    if len == 0 {
        return Err(Error::Closed { peer: peer.into() });
    }
    bytes.truncate(len);
    Ok(Some(Received { bytes, file }))
}

/// Waits until `connection` can be read, at most `milliseconds`; whether it can.
pub(super) fn wait_readable(connection: &impl AsFd, milliseconds: u16) -> bool {
    use nix::poll::{PollFd, PollFlags, poll};
    // An interrupted poll is as good as one that ran out: the caller tries again until its own deadline.
    poll(&mut [PollFd::new(connection.as_fd(), PollFlags::POLLIN)], milliseconds).is_ok_and(|ready| ready > 0)
}
