//! Listening: lets in the connections that hold the listener's token, and drops all others without disturbing those.

use super::receive::RecvComm;
use super::send::Parts;
use super::wire::{Hello, PROTOCOL};
use super::{Config, Handle, Shared, settle, socket_address, sockets_left};
use crate::handshake::{self, Admitted, Arrival, Failure, Limits, Strangers};
use crate::interfaces::Interface;
use crate::{Error, Result};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits for connections on one device's address.
pub struct Listener {
    sockets: handshake::Listener,
    handle: Handle,
    joining: HashMap<u64, Joining>,
    shared: Arc<Shared>,
}

/// A connection of which not every socket is there.
struct Joining {
    sockets: Vec<Option<OwnedFd>>,
    missing: usize,
    hello: Hello,
    from: SocketAddr,
    since: Instant,
}

impl Listener {
    /// Sockets of ranks that have not proven yet that they hold the token: these do not come again, and NCCL may not ask for a
    /// while. So they are many, and have time.
    const UNPROVEN: usize = 4096;
    const PATIENCE: Duration = Duration::from_secs(10);
    /// A connection whose other sockets do not follow for so long is dropped.
    const INCOMPLETE: Duration = Duration::from_secs(120);
    /// Connections in the kernel's queue; the system's own limit may be lower.
    const BACKLOG: i32 = 16384;

    pub(super) fn new(interface: Interface, shared: Arc<Shared>) -> Result<Self> {
        let address = socket_address(&interface, interface.address, 0);
        let socket = listen(address)
            .map_err(|e| Error::system(format!("listen on {} ({})", interface.name, address.ip()), e))?;
        let bound = socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
            .ok_or_else(|| Error::last_os("ask for the port of a listener"))?;
        let limits = Limits::within(sockets_left(), Self::UNPROVEN, Self::PATIENCE);
        let known = (shared.token, Vec::new());
        let sockets = handshake::Listener::new(socket.into(), PROTOCOL, known, limits)?;
        let most_sockets = shared.config.stripes(shared.cores, sockets_left()).sockets.min(Config::MOST_SOCKETS);
        Ok(Listener {
            sockets,
            handle: Handle::new(bound, shared.token, shared.config.checksum, most_sockets as u8),
            joining: HashMap::new(),
            shared,
        })
    }

    /// Where it listens, to be told to those who are to connect.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The next connection whose sockets have all come, with the purpose that its connector stated; `None` when there is
    /// none now. Never waits.
    pub fn accept(&mut self) -> Result<Option<(RecvComm, u64)>> {
        self.take_new()?;
        let waited = Instant::now();
        let late = |joining: &Joining| waited.duration_since(joining.since) > Self::INCOMPLETE;
        let missed: Vec<Joining> =
            self.joining.extract_if(|_, joining| late(joining)).map(|(_, joining)| joining).collect();
        for joining in missed {
            self.strangers().note(joining.from, &format!("{} of its sockets never came", joining.missing));
        }
        let Some(complete) = self.joining.iter().find(|(_, joining)| joining.missing == 0).map(|(id, _)| *id) else {
            return Ok(None);
        };
        self.joining.remove(&complete).map(|joining| self.join(joining)).transpose()
    }

    /// What was dropped, to be told in a log.
    pub fn strangers(&mut self) -> &mut Strangers {
        self.sockets.strangers()
    }

    fn take_new(&mut self) -> Result<()> {
        let cannot = |error, handle: &Handle| {
            let doing = "is the limit of open files (ulimit -n) too low?";
            Error::system(format!("accept a connection on {}; {doing}", handle.address()), error)
        };
        while let Some(arrival) = self.sockets.accept().map_err(|error| cannot(error, &self.handle))? {
            match arrival {
                Arrival::Admitted(Admitted { stream, from, payload }) => {
                    match Hello::from_bytes(&payload, Config::MOST_SOCKETS) {
                        Some(hello) => self.let_in(stream.into(), from, hello),
                        None => self.strangers().note(from, &"its greeting makes no sense"),
                    }
                }
                Arrival::Version { from, version } => self.strangers().note(from, &Failure::Version(version)),
            }
        }
        Ok(())
    }

    fn let_in(&mut self, fd: OwnedFd, from: SocketAddr, hello: Hello) {
        settle(&fd, &self.shared.config, from);
        let joining = self.joining.entry(hello.connection).or_insert_with(|| {
            let sockets = usize::from(hello.data_sockets) + 1;
            let since = Instant::now();
            Joining { sockets: (0..sockets).map(|_| None).collect(), missing: sockets, hello, from, since }
        });
        match joining.sockets.get_mut(usize::from(hello.index)) {
            Some(place @ None) => {
                *place = Some(fd);
                joining.missing -= 1;
            }
            _ => self.strangers().note(from, &"it repeats a socket of a connection"),
        }
    }

    fn join(&self, joining: Joining) -> Result<(RecvComm, u64)> {
        let purpose = joining.hello.purpose;
        let mut fds = joining.sockets.into_iter().flatten();
        let Some(control) = fds.next() else { return Err(Error::Config("a connection without sockets".into())) };
        let data: Vec<OwnedFd> = fds.collect();
        let parts = Parts {
            control,
            data,
            threads: self.shared.config.stripes(self.shared.cores, usize::MAX).threads,
            address: joining.from.to_string(),
            cancel: Arc::clone(&self.shared.cancel),
            checksum: joining.hello.checksum,
            growth: self.shared.growth(),
        };
        Ok((RecvComm::new(parts, joining.hello.inline_up_to as usize)?, purpose))
    }
}

fn listen(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(Listener::BACKLOG)?;
    Ok(socket)
}
