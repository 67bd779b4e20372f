//! A TCP listener that gives only connections whose other end has proven that it holds the token.

use super::{Acceptor, Failure, Protocol, Strangers};
use crate::{Error, Result, Token};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// What those may cost who have not proven anything.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many of them there are at most. The oldest that has said nothing makes way first.
    pub most: usize,
    /// How long they may take.
    pub patience: Duration,
    /// So long they need not make way: where one that belongs to the job would not try again.
    pub undisturbed: Duration,
}

impl Limits {
    /// For `awaited` connections of the job and as many strangers as a port scan brings, within a number of descriptors.
    pub fn within(descriptors: usize, awaited: usize, patience: Duration) -> Self {
        const STRANGERS: usize = 64;
        let most = (awaited + STRANGERS).min(descriptors).max(STRANGERS);
        Limits { most, patience, undisturbed: patience / 10 }
    }
}

/// Listens, and lets in who holds the token. What it dropped, [`Strangers`] tells.
pub struct Listener {
    listener: TcpListener,
    protocol: Protocol,
    token: Token,
    offer: Vec<u8>,
    limits: Limits,
    /// Whether connectors prove which address they wanted to come to.
    places: bool,
    unproven: Vec<Unproven>,
    arrived: VecDeque<Arrival>,
    strangers: Strangers,
}

/// A connection whose other end may be anybody.
struct Unproven {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    acceptor: Acceptor,
}

/// Who holds the token.
pub enum Arrival {
    /// One that was let in.
    Admitted(Admitted),
    /// One of another version, which was turned away.
    Version {
        /// Its address.
        from: SocketAddr,
        /// Its version.
        version: u16,
    },
}

/// A connection that was let in; its stream does not block.
pub struct Admitted {
    /// The connection, of which only the handshake was read.
    pub stream: TcpStream,
    /// Its other end's address.
    pub from: SocketAddr,
    /// What the other end had to say with its proof.
    pub payload: Vec<u8>,
}

impl Listener {
    /// One that lets in who holds `token`. `offer` is told to everyone who connects.
    ///
    /// # Errors
    /// [`Error::System`] when the socket cannot be kept from blocking.
    pub fn new(
        listener: TcpListener,
        protocol: Protocol,
        (token, offer): (Token, Vec<u8>),
        limits: Limits,
    ) -> Result<Self> {
        listener.set_nonblocking(true).map_err(|e| Error::system("listen", e))?;
        let (unproven, arrived, strangers) = Default::default();
        Ok(Listener { listener, protocol, token, offer, limits, places: false, unproven, arrived, strangers })
    }

    /// The same, and lets in only who wanted to come to the address that he has come to: where connectors have it from a
    /// place that strangers can write to. It keeps out connections whose addresses are translated on the way.
    pub fn with_places(self) -> Self {
        Listener { places: true, ..self }
    }

    /// The next connection that has proven that it holds the token; `None` when there is none now. Never waits.
    ///
    /// # Errors
    /// Those of accept(2), where no connection can make way.
    pub fn accept(&mut self) -> io::Result<Option<Arrival>> {
        if self.arrived.is_empty() {
            self.take_new()?;
            self.hear();
        }
        Ok(self.arrived.pop_front())
    }

    /// What to wait for: that somebody connects, or goes on.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let unproven = self.unproven.iter().map(|unproven| unproven.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(unproven)
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What it has dropped; for a caller to add to.
    pub fn strangers(&mut self) -> &mut Strangers {
        &mut self.strangers
    }

    fn take_new(&mut self) -> io::Result<()> {
        loop {
            if self.unproven.len() >= self.limits.most && !self.make_way() {
                // The kernel keeps the next until somebody has made way.
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, from)) => self.begin(stream, from),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(()),
                    // Ended before it was accepted.
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPERM | libc::EPROTO) => {}
                    Some(libc::EMFILE | libc::ENFILE) if self.make_way() => {}
                    Some(libc::EMFILE | libc::ENFILE) if !self.unproven.is_empty() => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, from: SocketAddr) {
        let acceptor = Acceptor::new(self.protocol, self.token, &self.offer);
        let ready = acceptor.map_err(Failure::Offer).and_then(|acceptor| {
            stream.set_nonblocking(true).map_err(Failure::System)?;
            let acceptor = match self.places {
                true => acceptor.at(stream.local_addr().map_err(Failure::System)?),
                false => acceptor,
            };
            Ok(Unproven { stream, from, since: Instant::now(), acceptor })
        });
        match ready {
            // What it has said already tells it from those that say nothing.
            Ok(unproven) => self.hear_one(unproven),
            Err(why) => self.strangers.note(from, &why),
        }
    }

    /// Drops the oldest that has said nothing, or else the oldest, if it may be disturbed.
    fn make_way(&mut self) -> bool {
        let oldest = self.unproven.iter().position(|one| one.acceptor.is_silent()).unwrap_or(0);
        if self.unproven.get(oldest).is_none_or(|one| one.since.elapsed() < self.limits.undisturbed) {
            return false;
        }
        let Unproven { from, .. } = self.unproven.remove(oldest);
        self.strangers.note(from, &Failure::Crowded);
        true
    }

    /// Hears each of those that have not proven anything.
    fn hear(&mut self) {
        for one in std::mem::take(&mut self.unproven) {
            self.hear_one(one);
        }
    }

    fn hear_one(&mut self, mut one: Unproven) {
        let Unproven { from, since, .. } = one;
        match one.acceptor.poll(&mut one.stream) {
            Ok(None) if since.elapsed() > self.limits.patience => self.strangers.note(from, &Failure::Silent),
            Ok(None) => self.unproven.push(one),
            Ok(Some(payload)) => {
                self.arrived.push_back(Arrival::Admitted(Admitted { stream: one.stream, from, payload }));
            }
            Err(Failure::Version(version)) => self.arrived.push_back(Arrival::Version { from, version }),
            Err(why) => self.strangers.note(from, &why),
        }
    }
}
