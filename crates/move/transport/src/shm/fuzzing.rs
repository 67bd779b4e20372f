//! A rank with one peer that may say anything, for fuzz targets.

use super::channel::{Channel, Header};
use super::control::Control;
use super::group::Shared;
use super::link::{Message, Peer};
use super::memory::Mapping;
use super::receiver::RecvComm;
use super::socket;
use crate::{Cancellation, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The peer's side, without its manners.
pub struct Stranger {
    socket: OwnedFd,
    control: Control,
    channel: Channel,
    messages: u32,
    published: u64,
}

/// How the peer says that a message is carried.
#[derive(Debug, Clone, Copy)]
pub struct PeerHeader {
    /// Bytes of the message.
    pub len: u64,
    /// A window's number.
    pub window: u64,
    /// Where in the window, or in the peer's memory.
    pub offset: u64,
    /// The message's tag.
    pub tag: u32,
    /// How it is carried.
    pub carried: u32,
}

/// A peer, and the receiving end of a connection from it.
pub fn pair(cross_memory: bool) -> Result<(Stranger, RecvComm)> {
    let failed = |source| crate::Error::system("make a pair", source);
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|error| failed(error.into()))?;
    let (own, control) = (Control::create(2)?, Control::create(2)?);
    let seen = Control::adopt(control.fd().try_clone_to_owned().map_err(failed)?, 2, "a peer")?;
    let peer = Peer::new("a peer".into(), std::process::id() as i32, seen, ours);
    let shared = Shared::alone(own, vec![None, Some(peer)], Cancellation::new(), cross_memory);
    let channel = Channel::create(!cross_memory)?;
    let file = channel.mapping.fd().try_clone_to_owned().map_err(failed)?;
    let mapped = Mapping::adopt(file, channel.mapping.bytes(), "a peer")?;
    let receiver = RecvComm::open(&Arc::new(shared), 1, mapped)?;
    Ok((Stranger { socket: theirs, control, channel, messages: 0, published: 0 }, receiver))
}

impl Stranger {
    /// Sends any bytes, with `memory` if there is some.
    pub fn send(&mut self, bytes: &[u8], memory: Option<&impl AsFd>) -> Result<()> {
        if socket::send(&self.socket, bytes, memory.map(AsFd::as_fd), "the rank")? {
            self.messages += 1;
            self.control.posted(0).store(self.messages, Ordering::Release);
        }
        Ok(())
    }

    /// Sends memory as a rank does.
    pub fn show(&mut self, window: u64, bytes: usize) -> Result<()> {
        let mapping = Mapping::create(bytes)?;
        let message = Message::Window(window, &mapping);
        let (bytes, file) = message.encode();
        self.send(&bytes, file.as_ref())
    }

    /// Says that messages were sent which were not.
    pub fn boast(&mut self) {
        self.messages = self.messages.wrapping_add(1);
        self.control.posted(0).store(self.messages, Ordering::Release);
    }

    /// Shows the next message.
    pub fn publish(&mut self, said: PeerHeader) {
        let PeerHeader { len, window, offset, tag, carried } = said;
        self.channel.publish(self.published, Header { len, window, offset, tag, carried });
        self.published += 1;
    }

    /// Says that `chunks` chunks are filled.
    pub fn fill(&self, chunks: u64) {
        self.channel.chunks_put().store(chunks, Ordering::Release);
    }
}
