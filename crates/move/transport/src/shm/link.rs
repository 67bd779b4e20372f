//! What passes between two ranks over their socket: memory that one lets the other map.

use super::control::Control;
use super::memory::Mapping;
use super::socket;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// How many freed windows one message names.
pub(super) const FREED_AT_ONCE: usize = (socket::LONGEST - 16) / 8;

/// A message between two ranks of a group.
pub(super) enum Message<'a> {
    /// A window's number and memory.
    Window(u64, &'a Mapping),
    /// Windows that are no more.
    Freed(&'a [u64]),
    /// The sender's part of a board.
    Board(&'a Mapping),
    /// The sender's side of a connection.
    Channel(&'a Mapping),
}

const WINDOW: u64 = 1;
const FREED: u64 = 2;
const BOARD: u64 = 3;
const CHANNEL: u64 = 4;

impl Message<'_> {
    pub(super) fn encode(&self) -> (Vec<u8>, Option<BorrowedFd<'_>>) {
        let with = |kind: u64, id: u64, mapping: &Mapping| vec![kind, id, mapping.bytes() as u64];
        let (words, file) = match self {
            Message::Window(id, mapping) => (with(WINDOW, *id, mapping), Some(mapping.fd())),
            Message::Board(mapping) => (with(BOARD, 0, mapping), Some(mapping.fd())),
            Message::Channel(mapping) => (with(CHANNEL, 0, mapping), Some(mapping.fd())),
            Message::Freed(ids) => ([&[FREED], *ids].concat(), None),
        };
        (words.into_iter().flat_map(u64::to_ne_bytes).collect(), file)
    }
}

/// A peer of the group.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) process: i32,
    pub(super) control: Arc<Control>,
    pub(super) gone: Arc<AtomicBool>,
    pub(super) socket: Arc<OwnedFd>,
    link: Mutex<Link>,
}

/// The state of the socket to a peer, and what came over it.
#[derive(Default)]
pub(super) struct Link {
    sent: u32,
    taken: u32,
    windows: Vec<(u64, Arc<Mapping>)>,
    pub(super) boards: VecDeque<Mapping>,
    pub(super) channels: VecDeque<Mapping>,
}

impl Link {
    /// The mapping of the peer's window `id`.
    pub(super) fn window(&self, id: u64) -> Option<&Arc<Mapping>> {
        self.windows.iter().find(|(known, _)| *known == id).map(|(_, mapping)| mapping)
    }
}

impl Peer {
    pub(super) fn new(name: String, process: i32, control: Control, socket: OwnedFd) -> Self {
        Peer {
            name,
            process,
            control: Arc::new(control),
            gone: Arc::default(),
            socket: Arc::new(socket),
            link: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends one message, counted in `posted`, or says that there is no room.
    pub(super) fn send(&self, posted: &std::sync::atomic::AtomicU32, message: &Message<'_>) -> Result<bool> {
        let (bytes, file) = message.encode();
        let mut link = self.lock();
        if !socket::send(&self.socket, &bytes, file, &self.name)? {
            return Ok(false);
        }
        link.sent = link.sent.wrapping_add(1);
        posted.store(link.sent, Ordering::Release);
        Ok(true)
    }

    /// Takes what the peer has sent, without waiting; whether that was all that it says it has sent to `rank`.
    pub(super) fn catch_up(&self, link: &mut Link, rank: usize) -> Result<bool> {
        while link.taken != self.control.posted(rank).load(Ordering::Acquire) {
            let Some(message) = socket::receive(&self.socket, &self.name)? else { return Ok(false) };
            link.taken = link.taken.wrapping_add(1);
            self.take(link, message)?;
        }
        Ok(true)
    }

    fn take(&self, link: &mut Link, message: socket::Received) -> Result<()> {
        let words: Vec<u64> =
            message.bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
        let strange = || Error::Protocol { peer: self.name.clone(), what: "an unknown message".into() };
        match (words.as_slice(), message.file) {
            ([FREED, ids @ ..], None) => link.windows.retain(|(id, _)| !ids.contains(id)),
            (&[kind, id, bytes], Some(file)) => {
                let mapping = Mapping::adopt(file, bytes as usize, &self.name)?;
                match kind {
                    WINDOW => link.windows.push((id, Arc::new(mapping))),
                    BOARD => link.boards.push_back(mapping),
                    CHANNEL => link.channels.push_back(mapping),
                    _ => return Err(strange()),
                }
            }
            _ => return Err(strange()),
        }
        Ok(())
    }
}
