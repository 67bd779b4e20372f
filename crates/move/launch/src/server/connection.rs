//! One connection of the rendezvous server: never blocks, keeps what is to be sent.

use crate::frames::Inbox;
use crate::silence;
use crate::wire;
use serde::Serialize;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By its other end.
    Closed,
    /// Nothing gets through any more.
    Unreachable,
}

pub(super) struct Connection {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub since: Instant,
    pub inbox: Inbox,
    pub rank: Option<usize>,
    pub ended: Option<Ended>,
    out: VecDeque<Arc<Vec<u8>>>,
    sent: usize,
}

impl Connection {
    pub fn new(stream: TcpStream, peer: SocketAddr, now: Instant, timeout: Duration) -> std::io::Result<Self> {
        silence::notice(&stream, timeout)?;
        Ok(Self::over(stream, peer, now))
    }

    pub(super) fn over(stream: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        let inbox = Inbox::new(wire::LONGEST_HELLO);
        Connection { stream, peer, since: now, inbox, rank: None, ended: None, out: VecDeque::new(), sent: 0 }
    }

    pub fn pull(&mut self) {
        let mut bytes = [0; 16 << 10];
        // One connection with much data must not block the others.
        for _ in 0..64 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return self.end(Ended::Closed),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(error) => return self.meet(&error),
            }
            // One that has not said which rank it is gets no memory but for its hello.
            if self.rank.is_none() {
                return;
            }
        }
    }

    pub fn push(&mut self) {
        while let Some(frame) = self.out.front() {
            match self.stream.write(&frame[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) => return self.meet(&error),
            }
            if self.sent == frame.len() {
                self.out.pop_front();
                self.sent = 0;
            }
        }
    }

    pub fn send<T: Serialize>(&mut self, message: &T) {
        if let Ok(frame) = wire::frame(message) {
            self.send_frame(&Arc::new(frame));
        }
    }

    pub fn send_frame(&mut self, frame: &Arc<Vec<u8>>) {
        self.out.push_back(Arc::clone(frame));
    }

    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    fn meet(&mut self, error: &std::io::Error) {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
            ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                self.end(Ended::Unreachable)
            }
            _ => self.end(Ended::Closed),
        }
    }

    fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }
}
